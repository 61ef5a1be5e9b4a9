"""Distributions of the lengths of prompts and answers, in tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import Any

from costprobe_probes.errors import ProbeConfigError

MAX_TOKENS = 1_000_000


def draw_length(spec: Mapping[str, Any], rng: Random) -> int:
    """Return a length of at least one token.

    Args:
        spec: `kind` and its parameters in tokens: "fixed" with `value`; "uniform" with `low` and
            `high`, both included; "normal" with `mean` and `sd`; "lognormal" with `median`, and
            `sigma`, the standard deviation of the logarithm.
        rng: Source of randomness.

    Raises:
        ProbeConfigError: No such kind.
    """
    kind = spec["kind"]
    if kind == "fixed":
        value = float(spec["value"])
    elif kind == "uniform":
        value = float(rng.randint(int(spec["low"]), int(spec["high"])))
    elif kind == "normal":
        value = rng.gauss(spec["mean"], spec["sd"])
    elif kind == "lognormal":
        value = rng.lognormvariate(math.log(spec["median"]), spec["sigma"])
    else:
        raise ProbeConfigError(f"no distribution {kind!r} of lengths")
    return int(min(max(round(value), 1), MAX_TOKENS))
