"""Evaluation of arithmetic in documents, and comparison with the written figures."""

import math
from decimal import Decimal

# The natural logarithm, and the logarithmic mean.
FUNCTIONS = {"ln": math.log, "L": lambda a, b: (a - b) / math.log(a / b)}


def by_hand(expression):
    """Evaluate a line of arithmetic of our own documents."""
    return float(eval(expression, {"__builtins__": {}, **FUNCTIONS}))  # noqa: S307 - as above


def is_as_written(value, written):
    """Return whether a value equals the written one, to its last digit and within 0.2 %."""
    expected = Decimal(written)
    half = 10.0 ** int(expected.as_tuple().exponent) / 2
    tolerance = min(half, abs(float(expected)) * 2e-3)
    return abs(float(value) - float(expected)) <= tolerance + 1e-15
