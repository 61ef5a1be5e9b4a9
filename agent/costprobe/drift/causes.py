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
    REACH,
    Estimate,
    Levels,
    change_point,
    parts_of,
    slope_of,
)
from costprobe.drift.findings import Metric
from costprobe.drift.runs import (
    ANNOTATION,
    Comparison,
    DetectionRun,
    SoftwareChange,
    conditions,
    factors,
    signal_of,
    software_change_of,
)

# Smallest differences that count, whatever the noise.
THROTTLED_PCT = 1.0
TEMPERATURE_C = 3.0
HOTTER_C = 8.0
CLOCK_SHARE = 0.01
LIMIT_SHARE = 0.01
CONTENDED_SHARE = 0.2
MEMORY_PCT = 10.0
NEARLY_FULL_PCT = 90.0
SHARE_ERRORS = 2.5
TOKENS_SHARE = 0.05
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
MOST_OF_CLOCK = TIME_OF_CLOCK.mean + REACH * TIME_OF_CLOCK.error
TIME_OF_MEMORY_CLOCK = Estimate(0.5, 0.25)
# Power over clock: static power does not follow it, dynamic power follows clock x voltage squared.
POWER_OF_CLOCK = Estimate(1.2, 0.5)
# Leakage per degree Celsius.
POWER_OF_TEMPERATURE = Estimate(0.002, 0.0015)
# Time of a run beside another process: alone half as often (two processes share in turns), rarely
# more, little where the other one is mostly idle.
TIME_OF_CONTENTION = Estimate(0.35, 0.2)
POWER_OF_CONTENTION = Estimate(0.0, 0.15)
# Time over the throttled time, where the clock is unknown: at most all of the time that was throttled
# is lost.
TIME_OF_THROTTLING = Estimate(0.5, 0.25)
# Time over 1/power limit, where neither the clock nor the throttled time is known: the limit may be above
# the power; the clock goes with the power to the 1/3 (voltage follows it) to 1.
TIME_OF_LIMIT = Estimate(0.4, 0.3)
# Time per inference over 1/batch: the fixed part of a pass.
TIME_OF_BATCH = Estimate(0.5, 0.25)
POWER_OF_BATCH = Estimate(0.0, 0.2)
# Time of a request over its tokens, where the times to and between tokens are unknown.
TIME_OF_OUTPUT = Estimate(0.85, 0.2)
TIME_OF_INPUT = Estimate(0.15, 0.15)
TOKENS_ERROR = 0.1

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
# Values further than this share of the change outside of both levels are clipped.
OUTLIER_MARGIN = 0.5
# An outlier so many runs before the change may look like its beginning.
OUTLIER_RUNS = 3
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

    @property
    def action(self) -> str:
        """What to do about a deterioration; empty for one within the noise."""
        if self.noise is not None:
            return ""
        first = [cause for cause in self.causes if cause.name == self.name]
        is_lowered = any("power_limit_w" in cause.signals for cause in first)
        return action_of(LOWERED if is_lowered else self.name)


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
    times = _Onset(
        earliest=around[max(0, first - EVENT_RUNS - 1)],
        first=around[max(0, first - COINCIDENT_RUNS - 1)],
        last=around[last],
        latest=around[-1],
    )
    rows = events(times.earliest.time_ns + 1, times.latest.time_ns + 1)
    old, new = _software_of(rows, times)
    latest = after if whole else around[last:][-LATEST_RUNS:]
    # Runs with which the drift may have begun are of neither level.
    settled = before if whole else before[: len(before) - (split - first)] or before
    compared = Comparison(conditions(settled, old), conditions(latest, new), sign)
    is_software_timely = _coincides_with_software(rows, times)
    found = [*_annotations_of(rows, times)]
    for cause in causes(compared):
        timing = _timing(cause, around, (first, last))
        if cause.name.startswith(("software", BOARD)):
            found.append(replace(cause, coincides=is_software_timely))
        elif timing != "late":
            found.append(replace(cause, coincides=timing and timing == "coincident"))
    earlier = settled if whole else settled[-LATEST_RUNS:]
    levels = Levels(metric, earlier, latest, settled)
    change = _total(_weighted_changes(levels))
    errors = DETECTED_ERRORS if observed is None else NOISE_ERRORS
    noise = max(LEAST_NOISE, errors * change.error)
    if min(abs(change.mean), abs(change.mean if observed is None else observed)) < noise:
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
    # A single outlier must not outweigh the change.
    low, high = sorted(median(side) for side in (logs[:split], logs[split:]))
    margin = OUTLIER_MARGIN * (high - low)
    found = change_point([min(max(value, low - margin), high + margin) for value in logs])
    if found is None:
        return split, split
    first, last = min(split, found[1]), max(found[0], min(split, found[2]))
    middle, is_rise = (low + high) / 2, median(logs[split:]) > median(logs[:split])
    for index in range(first, min(first + OUTLIER_RUNS, len(runs) - 1)):
        # A run at the level before follows what looked like the beginning: that was an outlier, unless
        # the run is free of a neighbour that comes and goes.
        is_before = (logs[index] < middle) is is_rise
        flags = {run.device.get("contended") for run in runs[index : index + 2]}
        if is_before and len(flags) == 1:
            last = max(last, index + 1)
    return first, last


def _timing(
    cause: Cause, runs: Sequence[DetectionRun], onset: tuple[int, int]
) -> Literal["early", "coincident", "late"] | None:
    """Return when the signals of a cause changed relative to the drift; None if unknown."""
    is_early = False
    for signal in cause.signals:
        values = [signal_of(run, signal) for run in runs]
        known = [value for value in values if value is not None]
        found = change_point(known) if len(known) == len(values) else None
        if found is None:
            return None
        if set(known) <= {0.0, 1.0}:
            # Of a neighbour that comes and goes the first run counts, not where most runs have it.
            later = float(fmean(known[found[0] :]) > fmean(known[: found[0]]))
            if later in known[onset[0] : onset[1] + LATER_RUNS + 1]:
                continue
        if found[1] > onset[1] + LATER_RUNS:
            return "late"
        is_early |= found[2] < onset[0] - LATER_RUNS
    if not cause.signals:
        return None
    return "early" if is_early else "coincident"


@dataclass(frozen=True, slots=True)
class _Onset:
    """Runs around the beginning of a change.

    Attributes:
        earliest: The last run without any event that may be the cause.
        first: The last run before the events that coincide.
        last: The last run with which the change may have begun.
        latest: The latest run.
    """

    earliest: DetectionRun
    first: DetectionRun
    last: DetectionRun
    latest: DetectionRun


def causes(compared: Comparison) -> tuple[Cause, ...]:
    """Return the signals that changed between two periods.

    Without their shares, what is deployed precedes what the device does, and a cause its effect.
    """
    return tuple(cause for rule in RULES if (cause := rule(compared)) is not None)


def sufficient_causes(compared: Comparison, change: float) -> tuple[Cause, ...]:
    """Return the signals that changed, without throttling and clocks that cannot explain half of a change.

    Args:
        compared: The conditions before and after.
        change: The change, in log units.
    """

    def is_sufficient(cause: Cause) -> bool:
        if cause.name not in {*THROTTLING, CLOCK}:
            return True
        names = ("sm_clock_mhz", THROTTLING.get(cause.name, ""))
        (clock, counter) = (
            [side.signals[name].mean for side in sides if name in side.signals] for name in names
        )
        if len(clock) == len(sides):
            most = abs(math.log(clock[0] / clock[1])) * MOST_OF_CLOCK
        elif len(counter) == len(sides):
            most = abs(_lost_between(*counter))
        else:
            return True
        return most >= EXPLAINED * abs(change)

    sides = (compared.before, compared.after)
    return tuple(cause for cause in causes(compared) if is_sufficient(cause))


def _board(compared: Comparison) -> Cause | None:
    old, new = compared.before.software.get(BOARD), compared.after.software.get(BOARD)
    return None if old == new else Cause(BOARD, f"another board: {old or 'none'} → {new or 'none'}")


def _software(compared: Comparison) -> Cause | None:
    before, after = compared.before.software, compared.after.software
    keys = sorted(
        (key for key in {*before, *after} - {BOARD, BATCH} if before.get(key) != after.get(key)),
        key=lambda key: (SOFTWARE.index(key) if key in SOFTWARE else len(SOFTWARE), key),
    )
    if not keys or not before or not after:
        return None
    moves = (f"{key} {before.get(key, 'none')} → {after.get(key, 'none')}" for key in keys)
    return Cause(f"software: {keys[0]}", ", ".join(moves))


def _batch(compared: Comparison) -> Cause | None:
    before, after = compared.before.batch, compared.after.batch
    if before is None or after is None or before == after:
        return None
    return Cause("batch", f"batch {before} → {after}", ("batch",))


def _contention(compared: Comparison) -> Cause | None:
    waited = compared.move("cpu_wait_pct", WAITED_PCT)
    if waited is not None:
        return Cause("neighbour", _share_text("waiting for a processor", waited), ("cpu_wait_pct",))
    before, after = (
        side.signals.get("contended_share") for side in (compared.before, compared.after)
    )
    if before is None or after is None:
        return None
    difference = after.mean - before.mean
    # The standard error of a share, with the prior of one run of each kind.
    share = (before.mean * before.count + 1) / (before.count + 2)
    variance = share * (1 - share) * (1 / before.count + 1 / after.count)
    if abs(difference) < max(CONTENDED_SHARE, SHARE_ERRORS * math.sqrt(variance)):
        return None
    if compared.sign and difference * compared.sign < 0:
        return None
    was = f" ({before.mean * 100:.0f} % before)" if difference < 0 or before.mean else ""
    text = f"another process used the device in {after.mean * 100:.0f} % of the runs{was}"
    return Cause("neighbour", text, ("contended_share",))


def _ecc(compared: Comparison) -> Cause | None:
    before, after = compared.before.ecc_uncorrected, compared.after.ecc_uncorrected
    if before is None or after is None or after <= before or compared.sign < 0:
        return None
    return Cause(
        "memory errors", f"{after - before} new uncorrected memory errors", ("ecc_uncorrected",)
    )


def _heat(compared: Comparison) -> Cause | None:
    temp_c = compared.move("temp_c", TEMPERATURE_C)
    hotter = "" if temp_c is None else f"temperature {temp_c[0]:.0f} → {temp_c[1]:.0f} °C"
    thermal = compared.move("throttled_thermal_pct", THROTTLED_PCT)
    if thermal is not None:
        text = _share_text("thermal throttling", thermal)
        if temp_c is None:
            return Cause("thermal throttling", text, ("throttled_thermal_pct",))
        return Cause("cooling", f"{text}, {hotter}", ("throttled_thermal_pct",))
    # Without a counter of throttling: a clock that falls while the device gets hotter. A cap of the
    # clock makes it colder.
    is_uncounted = "throttled_thermal_pct" not in compared.after.signals
    if is_uncounted and temp_c is not None and _clock(compared) is not None:
        return Cause("cooling", f"{hotter}, without a counter of throttling", ("temp_c",))
    return None


def _power_limit(compared: Comparison) -> Cause | None:
    texts, signals = [], []
    limit_w = compared.move("power_limit_w", LIMIT_SHARE, -1, is_share=True)
    if limit_w is not None:
        texts.append(f"power limit {limit_w[0]:.0f} → {limit_w[1]:.0f} W")
        signals.append("power_limit_w")
    throttled = compared.move("throttled_power_pct", THROTTLED_PCT)
    if throttled is not None:
        texts.append(_share_text("power throttling", throttled))
        signals.append("throttled_power_pct")
    return Cause("power limit", ", ".join(texts), tuple(signals)) if texts else None


def _clock(compared: Comparison) -> Cause | None:
    return _lower_clock(compared, "sm_clock_mhz", "clock", "SM clock")


def _memory_clock(compared: Comparison) -> Cause | None:
    return _lower_clock(compared, "mem_clock_mhz", "memory clock", "memory clock")


def _lower_clock(compared: Comparison, signal: str, name: str, words: str) -> Cause | None:
    moved = compared.move(signal, CLOCK_SHARE, -1, is_share=True)
    if moved is None:
        return None
    return Cause(name, f"{words} {moved[0]:.0f} → {moved[1]:.0f} MHz", (signal,))


def _prompt_lengths(compared: Comparison) -> Cause | None:
    texts, signals = [], []
    for signal, word in (("tokens_in", "input"), ("tokens_out", "output")):
        moved = compared.move(signal, TOKENS_SHARE, is_share=True)
        if moved is not None:
            texts.append(f"{word} tokens {moved[0]:.0f} → {moved[1]:.0f}")
            signals.append(signal)
    return Cause("prompt lengths", ", ".join(texts), tuple(signals)) if texts else None


def _memory(compared: Comparison) -> Cause | None:
    moved = compared.move("mem_used_pct", MEMORY_PCT)
    if moved is None or max(moved) < NEARLY_FULL_PCT:
        return None
    return Cause("memory pressure", f"device memory {moved[1]:.0f} % full", ("mem_used_pct",))


def _temperature(compared: Comparison) -> Cause | None:
    moved = compared.move("temp_c", HOTTER_C)
    if moved is None or _heat(compared) is not None:
        return None
    return Cause("temperature", f"temperature {moved[0]:.0f} → {moved[1]:.0f} °C", ("temp_c",))


RULES: Sequence[Callable[[Comparison], Cause | None]] = (
    _board,
    _software,
    _batch,
    _contention,
    _ecc,
    _heat,
    _power_limit,
    _clock,
    _memory_clock,
    _prompt_lengths,
    _memory,
    _temperature,
)


def _share_text(name: str, moved: tuple[float, float]) -> str:
    """Describe a share of the time; with the one before if that is not about 0."""
    before, after = moved
    was = f"{before:.0f} → " if before >= THROTTLED_PCT else ""
    return f"{name} {was}{after:.0f} % of the time"


# Causes whose size no signal measures: standard deviation of their effect on time.
UNMEASURED: Mapping[str, float] = {
    "software": 0.15,
    "software: model": 0.4,
    "software: weights": 0.3,
    "software: dtype": 0.5,
    "software: inputs": 0.4,
    ANNOTATION: 0.25,
    BOARD: 0.12,
    "memory errors": 0.05,
    "memory pressure": 0.15,
    "temperature": 0.05,
}
# Those of them that may have any size: something was exchanged.
EXCHANGED = ("software", ANNOTATION, BOARD)
UNMEASURED_POWER = Estimate(0.0, 0.05)


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
        error = UNMEASURED.get(cause.name, UNMEASURED.get(kind, UNMEASURED["software"]))
        found = ExpectedEffect(Estimate(0.0, error), UNMEASURED_POWER, "remainder")
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
        lost = _lost_time(levels)
        if lost is not None:
            return ExpectedEffect(TIME_OF_THROTTLING.times(lost), UNMEASURED_POWER, "physics")
        lower = levels.log_fall("power_limit_w")
        return (
            ExpectedEffect(TIME_OF_LIMIT.times(lower), UNMEASURED_POWER, "physics")
            if lower
            else None
        )
    # Power that follows the clock shows that its variation is real, also where time hardly does.
    is_real = slope_of(levels.pairs("sm_clock_mhz", "power", 1), CLOCK_DISTANCE) is not None
    slope = slope_of(levels.pairs("sm_clock_mhz", "time", -1), CLOCK_DISTANCE, is_exact=is_real)
    hotter = POWER_OF_TEMPERATURE.times(levels.rise("temp_c") or 0.0)
    return ExpectedEffect(
        TIME_OF_CLOCK.with_measured(slope).times(slower),
        POWER_OF_CLOCK.times(-slower).plus(hotter),
        "physics" if slope is None else "history",
    )


def _lost_time(levels: Levels) -> float | None:
    """Return the logarithm of the time that throttling took if nothing ran meanwhile; None if unknown."""
    counters = dict.fromkeys(THROTTLING.values())
    means = [found for counter in counters if (found := levels.means(counter)) is not None]
    return math.fsum(_lost_between(*shares) for shares in means) or None


def _lost_between(before_pct: float, after_pct: float) -> float:
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
        waited = min(waited[0], MOST_SHARE_PCT), min(waited[1], MOST_SHARE_PCT)
        longer = math.log((100 - waited[0]) / (100 - waited[1]))
        time = Estimate(longer, 0.02 + 0.2 * abs(longer))
        return ExpectedEffect(time, POWER_OF_CONTENTION, "physics")
    shares = levels.means("contended_share")
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
    inputs, outputs = levels.means("tokens_in"), levels.means("tokens_out")
    first, between = levels.means("ttft_mean_ms"), levels.means("tpot_mean_ms")
    more_in = math.log(inputs[1] / inputs[0]) if inputs and min(inputs) > 0 else 0.0
    more_out = math.log(outputs[1] / outputs[0]) if outputs and min(outputs) > 0 else 0.0
    if first is None or between is None or outputs is None:
        time = TIME_OF_OUTPUT.times(more_out).plus(TIME_OF_INPUT.times(more_in))
        return ExpectedEffect(time, NONE, "physics")
    # At the speed of the level before: the first token goes with the input, the others with the output.
    was_ms = first[0] + between[0] * outputs[0]
    is_ms = first[0] * math.exp(more_in) + between[0] * outputs[1]
    longer = math.log(is_ms / was_ms) if was_ms > 0 else 0.0
    return ExpectedEffect(Estimate(longer, TOKENS_ERROR * abs(longer)), NONE, "physics")


def _of_heat(levels: Levels) -> ExpectedEffect | None:
    hotter_c = levels.rise("temp_c")
    if hotter_c is None:
        return None
    slope = slope_of(levels.pairs("temp_c", "power"), TEMPERATURE_DISTANCE_C)
    # Heat alone does not slow a device whose clock and counters are known.
    is_known = levels.means("sm_clock_mhz") is not None
    return ExpectedEffect(
        NONE if is_known else Estimate(0.0, UNMEASURED["temperature"]),
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


def _annotations_of(rows: Iterable[Point], onset: _Onset) -> list[Cause]:
    """Return the annotations that precede a change as one cause; their effects cannot be separated."""
    found = [
        row
        for row in rows
        if row.tags.get("kind") == ANNOTATION
        if onset.earliest.time_ns < row.time_ns <= onset.last.time_ns
    ]
    return _as_cause(found, onset.first.time_ns)


def service_annotations_of(rows: Iterable[Point], service: str, coincident_ns: int) -> list[Cause]:
    """Return the annotations of a service, or of its host, as one cause.

    Args:
        rows: Rows of `event` that precede the change.
        service: Name of the service.
        coincident_ns: UTC in ns from which an annotation coincides with the change.
    """
    found = [
        row
        for row in rows
        if row.tags.get("kind") == ANNOTATION
        if row.tags.get("service", service) == service and "probe" not in row.tags
    ]
    return _as_cause(found, coincident_ns)


def _as_cause(annotations: Sequence[Point], coincident_ns: int) -> list[Cause]:
    if not annotations:
        return []
    texts = dict.fromkeys(str(row.fields.get("title", "")) for row in annotations)
    coincides = any(row.time_ns > coincident_ns for row in annotations)
    return [Cause(ANNOTATION, ", ".join(texts), coincides=coincides)]


def _coincides_with_software(rows: Iterable[Point], onset: _Onset) -> bool | None:
    """Return whether an event of software or a board coincides with a change; None without any."""
    times_ns = [
        change.time_ns for change in _changes(rows, onset) if change.time_ns <= onset.last.time_ns
    ]
    return max(times_ns) > onset.first.time_ns if times_ns else None


def _changes(rows: Iterable[Point], onset: _Onset) -> Sequence[SoftwareChange]:
    """Return the changes of software around a change, the oldest first."""
    found = [
        change
        for row in rows
        if (change := software_change_of(row)) is not None
        if onset.earliest.time_ns < change.time_ns <= onset.latest.time_ns
    ]
    return sorted(found, key=lambda change: change.time_ns)


def _software_of(
    rows: Iterable[Point], onset: _Onset
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the versions, hashes and boards that changed for good, before and after.

    Versions are omitted if the fingerprint is the same.

    Args:
        rows: Rows of `event`.
        onset: The runs with which a cause may have begun.
    """
    before, after = onset.earliest, onset.latest
    changes = _changes(rows, onset)
    old: dict[str, str] = {}
    new: dict[str, str] = {}
    for change in changes:
        old = {**change.before, **old}
        new = {**new, **change.after}
    in_time = {
        key
        for change in changes
        if change.time_ns <= onset.last.time_ns
        for key in (*change.before, *change.after)
    }
    old, new = ({key: tags[key] for key in in_time if key in tags} for tags in (old, new))
    if not changes or before.fingerprint == after.fingerprint:
        boards = [{BOARD: tags[BOARD]} if BOARD in tags else {} for tags in (old, new)]
        is_later = before.fingerprint == onset.last.fingerprint
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
    """Return the causes without a clock that another one limits, and each one's part of the clock's effect."""
    names = [cause.name for cause in causes if cause.name in THROTTLING]
    if not names:
        return causes, {}
    parts = _parts_of_clock(names, levels)
    covered = round(math.fsum(parts.values()), 9)
    clock = next((cause for cause in causes if cause.name == CLOCK), None)
    if clock is None:
        return causes, parts
    if covered < 1:
        return causes, {**parts, CLOCK: 1 - covered}
    first = max(parts, key=parts.__getitem__)
    return [
        replace(cause, text=f"{cause.text}, {clock.text}") if cause.name == first else cause
        for cause in causes
        if cause is not clock
    ], parts


def _parts_of_clock(names: Sequence[str], levels: Levels) -> Mapping[str, float]:
    """Return the part of the clock's effect that each cause has which lowers it; 1 together at most."""
    rises = {name: levels.rise(THROTTLING[name]) for name in names}
    times = {name: abs(rise) / 100 for name, rise in rises.items() if rise is not None}
    uncounted = [name for name in names if name not in times]
    total = math.fsum(times.values())
    means = levels.means("sm_clock_mhz")
    fall = abs(1 - means[1] / means[0]) if means and means[0] > 0 else 0.0
    # Throttling for a share of the time lowers the mean clock by at most that share: more is a limit of
    # the clock itself.
    covered = min(1.0, total / fall if fall else 1.0) if total else 0.0
    is_limited = abs(levels.log_fall("power_limit_w") or 0.0) > LEAST_LIMIT
    if is_limited and times.get("power limit"):
        # The limit itself moved, and held the clock.
        covered = 1.0
    parts = {name: covered * time / total if total else 0.0 for name, time in times.items()}
    # Without a counter there is one reason for what the others leave.
    return {**parts, **{name: (1 - covered) / len(uncounted) for name in uncounted}}


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
