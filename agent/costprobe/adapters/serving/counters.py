"""What is read of a serving engine: its counters, by measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from costprobe.core.serving_words import Measure

ResetGroup = Literal["process", "model", "none"]
_NONE: Mapping[str, tuple[str, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Counter:
    """A cumulative counter, or a part of one.

    Attributes:
        name: As the engine exposes it; also matched with or without `_total`, and with "_" for ":".
        only: For each label, the values of which a series must have one.
        without: For each label, the values of which a series must have none.
        scale: Unit of a count in the measure's unit: 1e-6 for microseconds.
        one_of: Labels of ranks that each report the same count: the lowest rank is read.
        plus: Counters that are added, because this one leaves something out.
    """

    name: str
    only: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NONE)
    without: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NONE)
    scale: float = 1.0
    one_of: tuple[str, ...] = ()
    plus: tuple[Counter, ...] = ()


@dataclass(frozen=True, slots=True)
class Engine:
    """A serving engine.

    Attributes:
        name: Its name in the configuration.
        counters: The counters of each measure in order of preference: the first one that is
            exposed is read.
        required: Measures without which a scrape reports missing counters.
        model_label: Label that names the served model; "" if there is none.
        prefix: Prefix of its metric names; "" if there is none.
        counts_begin_at_zero: Whether a series is created by its first count, so that the whole
            value of a new series was counted since the last reading.
        reset_together: Which series are only reset together: all of the process, or those of a
            served model. One that fell then shows that the others were reset, whatever their
            values. "none" if several processes are on one page, or if start times are.
        option: What to set at the server for its metrics; "" if they are there by default.
    """

    name: str
    counters: Mapping[Measure, tuple[Counter, ...]]
    required: tuple[Measure, ...] = ("requests",)
    model_label: str = ""
    prefix: str = ""
    counts_begin_at_zero: bool = False
    reset_together: ResetGroup = "none"
    option: str = ""
