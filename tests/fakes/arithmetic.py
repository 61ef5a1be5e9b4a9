"""Evaluation of arithmetic in documents, and comparison with the written figures."""

import ast
import math
import operator
from decimal import Decimal

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def by_hand(expression):
    """Evaluate a line of arithmetic, with ln and the logarithmic mean L."""
    functions = {"ln": math.log, "L": lambda a, b: (a - b) / math.log(a / b)}

    def value(node):
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Call):
            return functions[node.func.id](*map(value, node.args))
        assert isinstance(node, ast.Constant), ast.dump(node)
        return float(node.value)

    return value(ast.parse(expression, mode="eval").body)


def is_as_written(value, written):
    """Return whether a value equals the written one, to its last digit and within 0.2 %."""
    expected = Decimal(written)
    half = 10.0 ** int(expected.as_tuple().exponent) / 2
    tolerance = min(half, abs(float(expected)) * 2e-3)
    return abs(float(value) - float(expected)) <= tolerance + 1e-15
