"""Correlated signals of a drift (clocks, throttling, heat, neighbours, software) and their shares.

Each rule compares the conditions before and after a change. A signal has changed if it moved by
the least difference that matters and by more than its own noise, in the direction that explains
the change. Rules that detect a cause precede rules that detect its effect: a hot device throttles
and its clock falls, and the heat is the cause.

Expected effects on time and power are from the series' own runs, by physics where these vary too
little. Effects are logarithms of the ratio after over before; energy is time x power. Each is a
mixture, because the physics has a range: what part of the time follows the clock depends on the
model.

Events around the beginning of a change are causes as well: software, boards and annotations. The
shares determine which cause names the change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Literal, NamedTuple

from costprobe.core.records import BATCH, BOARD, Point
from costprobe.drift.actions import LOWERED, action_of
from costprobe.drift.before_after import (
    LEAST_NOISE,
    NONE,
    Estimate,
    Levels,
    change_point,
    parts_of,
    slope_of,
    values_of,
)
from costprobe.drift.findings import Metric
from costprobe.drift.runs import (
    ANNOTATION,
    DetectionRun,
    SoftwareChange,
    factors,
    software_change_of,
)

# A counter of throttled time that rises by less, in percent of the time, shows nothing.
THROTTLED_PCT = 1.0
HOTTER_C = 8.0
CONTENDED_SHARE = 0.2
NEARLY_FULL_PCT = 90.0
SHARE_ERRORS = 2.5
# A difference of waiting that lengthens a pass by as much as is worth naming.
WAITED_PCT = 2.0
MOST_SHARE_PCT = 99.9
# Software in the order in which it names a change: what is deployed precedes what it brings along.
SOFTWARE = (
    "model",
    "weights",
    "dtype",
    "inputs",
    "torch",
    "driver",
    "device_name",
    "cuda",
    "cudnn",
)

UNKNOWN = "unknown"

# Smallest distance of two runs of a regression: above the noise of a reading.
CLOCK_DISTANCE = 0.03
TEMPERATURE_DISTANCE_C = 2.0

# Expected effects are a mean and its standard error; each lies within two of them.
# Time over 1/clock: 1 for a compute-bound pass, less where it waits for the memory (roofline model,
# Williams et al. 2009).
TIME_OF_CLOCK = Estimate(0.85, 0.2)
TIME_OF_MEMORY_CLOCK = Estimate(0.5, 0.25)
# Power over clock: static power does not follow it, dynamic power follows clock x voltage squared.
POWER_OF_CLOCK = Estimate(1.2, 0.5)
# Of heat, where the clock is unknown.
TIME_OF_HEAT = Estimate(0.0, 0.05)
# Leakage per degree Celsius.
POWER_OF_TEMPERATURE = Estimate(0.002, 0.0015)
# Time of a run beside another process: alone half as often (two processes share in turns), rarely
# more, little where the other one is mostly idle.
TIME_OF_CONTENTION = Estimate(0.35, 0.2)
POWER_OF_CONTENTION = Estimate(0.0, 0.15)
# Time over the throttled time, where the clock is unknown: at most all of the time that was throttled
# is lost.
TIME_OF_THROTTLING = Estimate(0.5, 0.25)
# Time per inference over 1/batch: the fixed part of a pass.
TIME_OF_BATCH = Estimate(0.5, 0.25)
POWER_OF_BATCH = Estimate(0.0, 0.2)
# Time of a request over its tokens.
TIME_OF_OUTPUT = Estimate(0.85, 0.2)
TIME_OF_INPUT = Estimate(0.15, 0.15)

# What changed before the series did has had its effect already.
EARLY = 0.15
# What changes without any signal, as a share of the change, at least and at most; beyond it only what no
# cause can explain is unknown.
UNKNOWN_PART, UNKNOWN_LEAST, UNKNOWN_MOST = 0.1, 1e-4, 0.02

Method = Literal["history", "physics", "remainder"]

# Causes that act through the SM clock, and the counter of each.
THROTTLING = {
    "cooling": "throttled_thermal_pct",
    "thermal throttling": "throttled_thermal_pct",
    "power limit": "throttled_power_pct",
}
CLOCK = "clock"
# Smallest change of the power limit, in log units.
LEAST_LIMIT = 0.01
# Below this share together the causes do not explain the change.
EXPLAINED = 0.5
# Quantile of the normal distribution of an interval of 90 %.
QUANTILE = 1.645
# A smaller counteracting share is noise.
LEAST_COUNTERACTION = 0.1
# A smaller share is none.
LEAST_SHARE = 0.005
# A difference within so many of its standard errors may be noise, also where a detector found it in more
# runs; a smaller one than LEAST_NOISE is not explained in any case.
NOISE_ERRORS, DETECTED_ERRORS = 4.0, 3.0

# Runs around the start of a drift that locate it and its signals.
AROUND_RUNS = 24
# The latest runs represent the level after: that of a ramp is not its mean.
LATEST_RUNS = 24
# An event may precede its effect by so many runs, and coincides within the last ones; a signal may
# follow by LATER_RUNS.
EVENT_RUNS = 6
COINCIDENT_RUNS = 2
LATER_RUNS = 1

# Returns the newest rows of `event` between two UTC ns.
Events = Callable[[int, int], Sequence[Point]]


@dataclass(frozen=True, slots=True)
class Share:
    """Part of an observed change that a cause explains; 1 is all of it, negative if it counteracts.

    Attributes:
        mean: Best estimate.
        low: 5 % quantile.
        high: 95 % quantile.
    """

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Cause:
    """A signal correlated with a change.

    Attributes:
        name: Short stable name, for a tag or a rule: "cooling", "software: driver".
        text: Observation, for people.
        signals: Names of the Conditions it was observed in.
        share: Its share of the observed change; None if not computed.
        coincides: Whether its own change point is that of the change; None if unknown.
        method: Source of the effect: "history" for a regression over the series' own runs, "physics"
            for a formula, "remainder" for what other causes do not explain (the cause coincides, and
            its effect is not measurable separately); empty if not computed.
    """

    name: str
    text: str
    signals: tuple[str, ...] = ()
    share: Share | None = None
    coincides: bool | None = None
    method: Literal["", "history", "physics", "remainder"] = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a series changed.

    Attributes:
        name: Name of the cause with the largest share; "unknown" if all together explain less than
            half of the change.
        causes: The candidates, the largest share first.
        explained: Share of the change that they explain together; None if not computed.
        noise: Noise of the difference, as a share, if the change is not beyond it: then there are no
            causes. Else None.
    """

    name: str
    causes: tuple[Cause, ...] = ()
    explained: Share | None = None
    noise: float | None = None

    def action_on(self, device: str) -> str:
        """Return what to do about a deterioration on a device; empty for one within the noise."""
        if self.noise is not None:
            return ""
        first = [cause for cause in self.causes if cause.name == self.name]
        is_lowered = any("power_limit_w" in cause.signals for cause in first)
        return action_of(LOWERED if is_lowered else self.name, device)


@dataclass(frozen=True, slots=True)
class ExpectedEffect:
    """The effect that a cause should have.

    Attributes:
        time: On the time per inference, or on the latency.
        power: On the power.
        method: Where it comes from.
        is_bounded: Whether it was measured or computed, so that the change cannot be of any size.
    """

    time: Estimate
    power: Estimate
    method: Method
    is_bounded: bool = True


def explain_change(
    before: Sequence[DetectionRun],
    after: Sequence[DetectionRun],
    events: Events,
    metric: Metric,
    sign: int,
    *,
    whole: bool = False,
    observed: float | None = None,
) -> Explanation:
    """Return the causes of a change that did not begin after it, the most likely first.

    Of a change within the noise of its runs there are none.

    Args:
        before: Runs of the level before, oldest first; at least one.
        after: Runs since the estimated start; at least one.
        events: Returns the rows of `event`.
        metric: The series that changed.
        sign: 1 for a deterioration, -1 for an improvement, 0 if signals may move either way.
        whole: Whether all runs represent their level, as those of two periods; else the latest do.
        observed: The reported change of level, in log units; None for one that a detector found.
    """
    around = [*before[-AROUND_RUNS:], *after]
    split = len(around) - len(after)
    first, last = _onset(around, metric, split)
    # The last run without any event that may be the cause, and that before the events that coincide.
    earliest, coincident = (
        around[max(0, first - runs - 1)] for runs in (EVENT_RUNS, COINCIDENT_RUNS)
    )
    latest = around[-1]
    rows = events(earliest.time_ns + 1, latest.time_ns + 1)
    changes = [change for row in rows if (change := software_change_of(row)) is not None]
    settled = before if whole else before[: len(before) - (split - first)] or before
    levels = Levels(
        metric,
        # Runs with which the drift may have begun are of neither level.
        settled if whole else settled[-LATEST_RUNS:],
        after if whole else around[last:][-LATEST_RUNS:],
        settled,
        sign,
        _software_of(changes, (earliest, around[last], latest)),
    )
    updates_ns = [change.time_ns for change in changes if change.time_ns <= around[last].time_ns]
    is_update_timely = max(updates_ns) > coincident.time_ns if updates_ns else None
    timely = [row for row in rows if row.time_ns <= around[last].time_ns]
    found = annotations_of(timely, coincident.time_ns)
    for cause in causes(levels):
        timing = _timing(cause, around, (first, last))
        if cause.name.startswith(("software", BOARD)):
            found.append(replace(cause, coincides=is_update_timely))
        elif timing != "late":
            found.append(replace(cause, coincides=timing and timing == "coincident"))
    total = _total(_weighted_changes(levels))
    errors = DETECTED_ERRORS if observed is None else NOISE_ERRORS
    noise = max(LEAST_NOISE, errors * total.error)
    if min(abs(total.mean), abs(total.mean if observed is None else observed)) < noise:
        return Explanation(UNKNOWN, noise=math.expm1(noise))
    return explanation_of(found, levels)


def events_among(rows: Sequence[Point]) -> Events:
    """Return what returns those of some rows of `event` that lie between two UTC ns."""
    return lambda from_ns, until_ns: [row for row in rows if from_ns <= row.time_ns < until_ns]


def _onset(runs: Sequence[DetectionRun], metric: Metric, split: int) -> tuple[int, int]:
    """Return the first and the last run with which a drift may begin."""
    prices = factors(runs)
    values = [run.value(metric, prices) for run in runs]
    logs = [math.log(value) for value in values if value is not None and value > 0]
    if len(logs) < len(runs) or not 0 < split < len(runs):
        return split, split
    # Without single outliers, which outweigh the change or look like its beginning.
    found = change_point(
        [median(logs[max(0, index - 1) : index + 2]) for index in range(len(logs))]
    )
    if found is None:
        return split, split
    return min(split, found[1]), max(found[0], min(split, found[2]))


def _timing(
    cause: Cause, runs: Sequence[DetectionRun], onset: tuple[int, int]
) -> Literal["early", "coincident", "late"] | None:
    """Return when the signals of a cause changed relative to the drift; None if unknown."""
    is_early = False
    for signal in cause.signals:
        known = values_of(runs, signal)
        found = change_point(known) if len(known) == len(runs) else None
        if found is None:
            return None
        if found[1] > onset[1] + LATER_RUNS:
            return "late"
        is_early |= found[2] < onset[0] - LATER_RUNS
    if not cause.signals:
        return None
    return "early" if is_early else "coincident"


def causes(levels: Levels) -> tuple[Cause, ...]:
    """Return the signals that changed between two levels.

    Without their shares, what is deployed precedes what the device does, and a cause its effect.
    """
    return tuple(cause for rule in RULES if (cause := rule(levels)) is not None)


class _Move(NamedTuple):
    """A signal that is a cause by itself: its text, and when it has moved, as of `Levels.move`."""

    text: str
    least: float
    direction: int = 1
    is_share: bool = False


MOVES: Mapping[str, _Move] = {
    "temp_max_c": _Move("temperature {:.0f} → {:.0f} °C", 3.0),
    "throttled_thermal_pct": _Move("thermal throttling", THROTTLED_PCT),
    "throttled_power_pct": _Move("power throttling", THROTTLED_PCT),
    "power_limit_w": _Move("power limit {:.0f} → {:.0f} W", 0.01, -1, is_share=True),
    "sm_clock_mhz": _Move("SM clock {:.0f} → {:.0f} MHz", 0.01, -1, is_share=True),
    "mem_clock_mhz": _Move("memory clock {:.0f} → {:.0f} MHz", 0.01, -1, is_share=True),
    "tokens_in": _Move("input tokens {:.0f} → {:.0f}", 0.05, is_share=True),
    "tokens_out": _Move("output tokens {:.0f} → {:.0f}", 0.05, is_share=True),
    "cpu_wait_pct": _Move("waiting for a processor", WAITED_PCT),
    "mem_used_pct": _Move("device memory {1:.0f} % full", 10.0),
}


def _moved(levels: Levels, signal: str) -> str:
    """Return how a signal moved; empty if it did not."""
    text, least, direction, is_share = MOVES[signal]
    moved = levels.move(signal, least, direction, is_share=is_share)
    if moved is None:
        return ""
    if "{" in text:
        return text.format(*moved)
    # A share of the time; with the one before if that is not about 0.
    was = f"{moved[0]:.0f} → " if moved[0] >= THROTTLED_PCT else ""
    return f"{text} {was}{moved[1]:.0f} % of the time"


def _rule(name: str, *signals: str) -> Callable[[Levels], Cause | None]:
    """Return the rule of a cause that is named if one of its signals moved."""

    def rule(levels: Levels) -> Cause | None:
        texts = {signal: text for signal in signals if (text := _moved(levels, signal))}
        return Cause(name, ", ".join(texts.values()), tuple(texts)) if texts else None

    return rule


def _board(levels: Levels) -> Cause | None:
    old, new = (versions.get(BOARD) for versions in levels.software)
    return None if old == new else Cause(BOARD, f"another board: {old or 'none'} → {new or 'none'}")


def _software(levels: Levels) -> Cause | None:
    before, after = levels.software
    keys = sorted(
        (key for key in {*before, *after} - {BOARD, BATCH} if before.get(key) != after.get(key)),
        key=lambda key: (SOFTWARE.index(key) if key in SOFTWARE else len(SOFTWARE), key),
    )
    if not keys or not before or not after:
        return None
    moves = (f"{key} {before.get(key, 'none')} → {after.get(key, 'none')}" for key in keys)
    return Cause(f"software: {keys[0]}", ", ".join(moves))


def _batch(levels: Levels) -> Cause | None:
    before, after = levels.history[-1].batch, levels.after[-1].batch
    if before is None or after is None or before == after:
        return None
    return Cause("batch", f"batch {before} → {after}", ("batch",))


def _contention(levels: Levels) -> Cause | None:
    waited = _moved(levels, "cpu_wait_pct")
    if waited:
        return Cause("neighbour", waited, ("cpu_wait_pct",))
    sides = values_of(levels.history, "contended"), values_of(levels.after, "contended")
    if not all(sides):
        return None
    before, after = map(fmean, sides)
    count, count_after = map(len, sides)
    # The standard error of a share, with the prior of one run of each kind.
    share = (before * count + 1) / (count + 2)
    error = math.sqrt(share * (1 - share) * (1 / count + 1 / count_after))
    difference = after - before
    if abs(difference) < max(CONTENDED_SHARE, SHARE_ERRORS * error) or difference * levels.sign < 0:
        return None
    was = f" ({before * 100:.0f} % before)" if difference < 0 or before else ""
    text = f"another process used the device in {after * 100:.0f} % of the runs{was}"
    return Cause("neighbour", text, ("contended",))


def _ecc(levels: Levels) -> Cause | None:
    counts = [values_of(runs, "ecc_uncorrected") for runs in (levels.history, levels.after)]
    before, after = (int(max(values, default=0)) for values in counts)
    if not all(counts) or after <= before or levels.sign < 0:
        return None
    text = f"{after - before} new uncorrected memory errors"
    return Cause("memory errors", text, ("ecc_uncorrected",))


def _heat(levels: Levels) -> Cause | None:
    hotter, throttled = _moved(levels, "temp_max_c"), _moved(levels, "throttled_thermal_pct")
    if throttled:
        name = "cooling" if hotter else "thermal throttling"
        return Cause(name, f"{throttled}, {hotter}".rstrip(", "), ("throttled_thermal_pct",))
    # Without a counter of throttling: a clock that falls while the device gets hotter. A cap of the
    # clock makes it colder.
    is_uncounted = not values_of(levels.after, "throttled_thermal_pct")
    if is_uncounted and hotter and _moved(levels, "sm_clock_mhz"):
        return Cause("cooling", f"{hotter}, without a counter of throttling", ("temp_max_c",))
    return None


def _memory(levels: Levels) -> Cause | None:
    is_full = max(levels.means("mem_used_pct") or [0.0]) >= NEARLY_FULL_PCT
    return _rule("memory pressure", "mem_used_pct")(levels) if is_full else None


def _temperature(levels: Levels) -> Cause | None:
    is_alone = levels.move("temp_max_c", HOTTER_C) is not None and _heat(levels) is None
    return _rule("temperature", "temp_max_c")(levels) if is_alone else None


RULES: Sequence[Callable[[Levels], Cause | None]] = (
    _board,
    _software,
    _batch,
    _contention,
    _ecc,
    _heat,
    _rule("power limit", "power_limit_w", "throttled_power_pct"),
    _rule(CLOCK, "sm_clock_mhz"),
    _rule("memory clock", "mem_clock_mhz"),
    _rule("prompt lengths", "tokens_in", "tokens_out"),
    _memory,
    _temperature,
)


# Effects on time and power of a cause whose size no signal measures; of some on time.
UNMEASURED, UNMEASURED_POWER = Estimate(0.0, 0.2), Estimate(0.0, 0.05)
_UNMEASURED: Mapping[str, Estimate] = {
    "memory errors": Estimate(0.0, 0.05),
    "memory pressure": Estimate(0.0, 0.15),
}
# Causes that may have any size: something was exchanged.
EXCHANGED = ("software", ANNOTATION, BOARD)


def _expected_effect(cause: Cause, levels: Levels, chain_share: float) -> ExpectedEffect:
    """Return the effect that a cause should have between two levels.

    Args:
        cause: The cause.
        levels: Runs of both levels.
        chain_share: Part of the effect of the SM clock that belongs to it: thermal and power
            throttling act through the same clock, and no effect counts twice.
    """
    kind = cause.name.partition(":")[0]
    measure = _MEASURES.get(kind)
    found = None if measure is None else measure(levels)
    if found is None:
        time = _UNMEASURED.get(kind, UNMEASURED)
        found = ExpectedEffect(time, UNMEASURED_POWER, "remainder")
    part = chain_share * (EARLY if cause.coincides is False else 1.0)
    return ExpectedEffect(
        found.time.times(part),
        found.power.times(part),
        found.method,
        is_bounded=kind not in EXCHANGED,
    )


def _of_clock(levels: Levels) -> ExpectedEffect | None:
    slower = levels.log_fall("sm_clock_mhz")
    if slower is None:
        counters = dict.fromkeys(THROTTLING.values())
        means = [found for counter in counters if (found := levels.means(counter)) is not None]
        # The time of a pass, later over earlier, if nothing ran while it was throttled.
        lost = math.fsum(_longer(*shares_pct) for shares_pct in means)
        time = TIME_OF_THROTTLING.times(lost)
        return ExpectedEffect(time, UNMEASURED_POWER, "physics") if lost else None
    # Power that follows the clock shows that its variation is real, also where time hardly does.
    is_real = slope_of(levels.pairs("sm_clock_mhz", "power", 1), CLOCK_DISTANCE) is not None
    slope = slope_of(levels.pairs("sm_clock_mhz", "time", -1), CLOCK_DISTANCE, is_exact=is_real)
    hotter = POWER_OF_TEMPERATURE.times(levels.rise("temp_max_c") or 0.0)
    return ExpectedEffect(
        TIME_OF_CLOCK.with_measured(slope).times(slower),
        POWER_OF_CLOCK.times(-slower).plus(hotter),
        "physics" if slope is None else "history",
    )


def _longer(before_pct: float, after_pct: float) -> float:
    """Return the logarithm of the time of a pass, later over earlier, if nothing ran in these shares of it."""
    before, after = (100 - min(pct, MOST_SHARE_PCT) for pct in (before_pct, after_pct))
    return math.log(before / after)


def _of_memory_clock(levels: Levels) -> ExpectedEffect | None:
    slower = levels.log_fall("mem_clock_mhz")
    if slower is None:
        return None
    return ExpectedEffect(TIME_OF_MEMORY_CLOCK.times(slower), UNMEASURED_POWER, "physics")


def _of_contention(levels: Levels) -> ExpectedEffect | None:
    waited = levels.means("cpu_wait_pct")
    # Of a GPU's probe it is one of two ways to be beside others.
    is_all = levels.means("cpu_others_pct") is not None
    if waited is not None and (is_all or abs(waited[1] - waited[0]) >= WAITED_PCT):
        longer = _longer(*waited)
        time = Estimate(longer, 0.02 + 0.2 * abs(longer))
        return ExpectedEffect(time, POWER_OF_CONTENTION, "physics")
    shares = levels.means("contended")
    if shares is None:
        return None
    # Another neighbour has another effect: each level has its own.
    was, now = (levels.contended_slowdown(side) for side in (levels.before, levels.after))
    slower = TIME_OF_CONTENTION.with_measured(now)
    more = shares[1] - shares[0]
    time = slower.times(more)
    if was is not None:
        time = slower.times(shares[1]).plus(was.times(-shares[0]))
    method: Method = "physics" if now is None and was is None else "history"
    return ExpectedEffect(time, POWER_OF_CONTENTION.times(more), method)


def _of_batch(levels: Levels) -> ExpectedEffect | None:
    before, after = levels.before[-1].batch, levels.after[-1].batch
    if not before or not after:
        return None
    smaller = math.log(before / after)
    # A pass of a smaller batch is shorter, though an inference takes longer.
    shift = -smaller if levels.metric == "latency" else 0.0
    return ExpectedEffect(TIME_OF_BATCH.times(smaller, shift), POWER_OF_BATCH, "physics")


def _of_tokens(levels: Levels) -> ExpectedEffect | None:
    more_in, more_out = (-(levels.log_fall(name) or 0.0) for name in ("tokens_in", "tokens_out"))
    time = TIME_OF_OUTPUT.times(more_out).plus(TIME_OF_INPUT.times(more_in))
    return ExpectedEffect(time, NONE, "physics")


def _of_heat(levels: Levels) -> ExpectedEffect | None:
    hotter_c = levels.rise("temp_max_c")
    if hotter_c is None:
        return None
    slope = slope_of(levels.pairs("temp_max_c", "power"), TEMPERATURE_DISTANCE_C)
    # Heat alone does not slow a device whose clock and counters are known.
    is_known = levels.means("sm_clock_mhz") is not None
    return ExpectedEffect(
        NONE if is_known else TIME_OF_HEAT,
        POWER_OF_TEMPERATURE.with_measured(slope).times(hotter_c),
        "physics" if slope is None else "history",
    )


_MEASURES: Mapping[str, Callable[[Levels], ExpectedEffect | None]] = {
    "cooling": _of_clock,
    "thermal throttling": _of_clock,
    "power limit": _of_clock,
    "clock": _of_clock,
    "memory clock": _of_memory_clock,
    "neighbour": _of_contention,
    "batch": _of_batch,
    "prompt lengths": _of_tokens,
    "temperature": _of_heat,
}


def is_annotation_of(row: Point, device: str, probe: str) -> bool:
    """Return whether a row of `event` is an annotation that concerns a device's probe.

    One without a device or probe concerns all; one of a service too, because it may share the device.
    """
    tags = row.tags
    return (
        tags.get("kind") == ANNOTATION
        and tags.get("device", device) == device
        and tags.get("probe", probe) == probe
    )


def annotations_of(rows: Iterable[Point], coincident_ns: int) -> list[Cause]:
    """Return the annotations before a change as one cause; their effects cannot be separated.

    Args:
        rows: Rows of `event` that precede the change.
        coincident_ns: UTC in ns from which an annotation coincides with the change.
    """
    annotations = [row for row in rows if row.tags.get("kind") == ANNOTATION]
    if not annotations:
        return []
    texts = dict.fromkeys(str(row.fields.get("title", "")) for row in annotations)
    coincides = any(row.time_ns > coincident_ns for row in annotations)
    return [Cause(ANNOTATION, ", ".join(texts), coincides=coincides)]


def _software_of(
    changes: Sequence[SoftwareChange], runs: tuple[DetectionRun, DetectionRun, DetectionRun]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the versions, hashes and boards that changed for good, before and after.

    Versions are omitted if the fingerprint is the same.

    Args:
        changes: Changes of software around a change, oldest first.
        runs: The run before all of them, the last with which the change may have begun, and the latest.
    """
    before, last, after = runs
    old: dict[str, str] = {}
    new: dict[str, str] = {}
    for change in changes:
        old, new = {**change.before, **old}, {**new, **change.after}
    in_time = {
        key
        for change in changes
        if change.time_ns <= last.time_ns
        for key in (*change.before, *change.after)
    }
    old, new = ({key: tags[key] for key in in_time if key in tags} for tags in (old, new))
    if not changes or before.fingerprint == after.fingerprint:
        boards = [{BOARD: tags[BOARD]} if BOARD in tags else {} for tags in (old, new)]
        is_later = before.fingerprint == last.fingerprint
        old = {"fingerprint": before.fingerprint, **boards[0]}
        new = {"fingerprint": before.fingerprint if is_later else after.fingerprint, **boards[1]}
    return old, new


class _WeightedChange(NamedTuple):
    """The change of a factor of a series, and its weight in the logarithm of the series."""

    factor: Literal["time", "power"]
    weight: float
    change: Estimate


def explanation_of(causes: Sequence[Cause], levels: Levels) -> Explanation:
    """Return the causes with their expected effects and shares, the largest share first.

    Args:
        causes: Candidates, in the order of their likelihood without shares.
        levels: Runs of both levels.
    """
    parts = _weighted_changes(levels)
    total = _total(parts)
    if not causes or abs(total.mean) < LEAST_NOISE:
        return Explanation(UNKNOWN)
    causes, chain = _chained(causes, levels)
    effects = [_expected_effect(cause, levels, chain.get(cause.name, 1.0)) for cause in causes]
    *found, rest = _shares(parts, total.mean, effects)
    explained = Share(1 - rest.mean, 1 - rest.high, 1 - rest.low)
    ranked = sorted(
        (
            (share, replace(cause, share=_if_known(share), method=effect.method))
            for cause, effect, share in zip(causes, effects, found, strict=True)
            # What was measured, and explains nothing, is no candidate.
            if abs(share.mean) >= LEAST_SHARE or effect.method == "remainder"
        ),
        key=lambda pair: -round(pair[0].mean, 2),
    )
    if not ranked:
        return Explanation(UNKNOWN)
    candidates = tuple(cause for _, cause in ranked)
    name = candidates[0].name if explained.mean >= EXPLAINED else UNKNOWN
    return Explanation(name, candidates, explained)


def _if_known(share: Share) -> Share | None:
    """Return a share; None for one of 0 to 100 %, which says nothing."""
    return None if share.low < LEAST_SHARE and share.high > 1 - LEAST_SHARE else share


def _chained(
    causes: Sequence[Cause], levels: Levels
) -> tuple[Sequence[Cause], Mapping[str, float]]:
    """Return the causes without a clock that others limit, and each one's part of the clock's effect, 1 together."""
    names = [cause.name for cause in causes if cause.name in THROTTLING]
    if not names:
        return causes, {}
    rises = {name: levels.rise(THROTTLING[name]) for name in names}
    times = {name: abs(rise) / 100 for name, rise in rises.items() if rise is not None}
    total, fall = math.fsum(times.values()), -math.expm1(-abs(levels.log_fall("sm_clock_mhz") or 0))
    # Throttling for a share of the time lowers the mean clock by at most that share: more is a limit of
    # the clock itself, or what has no counter.
    covered = min(1.0, total / fall if fall else 1.0) if total else 0.0
    if times.get("power limit") and abs(levels.log_fall("power_limit_w") or 0.0) > LEAST_LIMIT:
        # The limit itself moved, and held the clock.
        covered = 1.0
    parts = {name: covered * time / total if total else 0.0 for name, time in times.items()}
    uncounted = [name for name in names if name not in times]
    parts |= {name: (1 - covered) / len(uncounted) for name in uncounted}
    clock = next((cause for cause in causes if cause.name == CLOCK), None)
    if clock is None or not (covered == 1 or uncounted):
        return causes, {**parts, CLOCK: 1 - covered}
    first = max(parts, key=parts.__getitem__)
    return [
        replace(cause, text=f"{cause.text}, {clock.text}") if cause.name == first else cause
        for cause in causes
        if cause is not clock
    ], parts


def _weighted_changes(levels: Levels) -> list[_WeightedChange]:
    """Return the changes of time, and of power where the series depends on it."""
    time = _WeightedChange("time", 1.0, levels.time_change())
    power = levels.power_change() if levels.metric in {"cost", "energy"} else None
    if power is None:
        return [time]
    weight = 1.0
    if levels.metric == "cost":
        sides = [factors(runs) for runs in (levels.before, levels.after)]
        costs = math.fsum(side.cost for side in sides)
        weight = math.fsum(side.electricity for side in sides) / costs if costs > 0 else 0.0
    return [time, _WeightedChange("power", weight, power)]


def _total(changes: Sequence[_WeightedChange]) -> Estimate:
    """Return the change of the logarithm of the series."""
    total = NONE
    for _, weight, change in changes:
        total = total.plus(change.times(weight))
    return total


def _shares(
    changes: Sequence[_WeightedChange], total: float, effects: Sequence[ExpectedEffect]
) -> list[Share]:
    """Return the share of each effect and of what is unknown."""
    sums = [NONE] * (len(effects) + 1)
    for factor, weight, change in changes:
        usual = min(max(UNKNOWN_LEAST, UNKNOWN_PART * abs(change.mean)), UNKNOWN_MOST)
        expected = [(getattr(effect, factor), effect.is_bounded) for effect in effects]
        unknown = Estimate(0.0, math.hypot(change.error, usual)), False
        parts = parts_of(change.mean, [*expected, unknown])
        sums = [former.plus(part.times(weight)) for former, part in zip(sums, parts, strict=True)]
    return _complete([_share(part.mean / total, part.error / abs(total)) for part in sums])


def _share(mean: float, error: float) -> Share:
    return Share(mean, mean - QUANTILE * error, mean + QUANTILE * error)


def _complete(shares: Sequence[Share]) -> list[Share]:
    """Return shares that add up to 1, the last of which is the remainder.

    A counteracting cause has a negative share, and the others together more than 1; otherwise all are
    between 0 and 1.
    """
    if any(share.mean < -LEAST_COUNTERACTION for share in shares[:-1]):
        rest = 1 - math.fsum(share.mean for share in shares[:-1])
        last = shares[-1]
        shift = rest - last.mean
        return [*shares[:-1], Share(rest, last.low + shift, last.high + shift)]
    positive = [max(0.0, share.mean) for share in shares]
    total = math.fsum(positive)
    if total <= 0:
        positive, total = [*[0.0] * (len(shares) - 1), 1.0], 1.0
    return [
        Share(
            mean / total,
            _bounded(share.low, mean / total, 0),
            _bounded(share.high, mean / total, 1),
        )
        for share, mean in zip(shares, positive, strict=True)
    ]


def _bounded(quantile: float, mean: float, side: int) -> float:
    """Return a quantile between 0 and 1 on its side of the mean."""
    return min(max(0.0, quantile), mean) if side == 0 else max(min(1.0, quantile), mean)
