"""Alert rules on detected changes: drift, anomaly and a changed load curve, from rows of events.

A drift is a persistent shift of a monitored series and lasts from its event until it reverts; a
changed load curve lasts until a curve is back at the level before. Single outliers last until
none has occurred for a while.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from costprobe.alerts.rules.rule import (
    UNMEASURED,
    Config,
    Labels,
    Rule,
    RuleConfig,
    labels_of,
    over,
    over_until,
    span_text,
    where,
)
from costprobe.core.columns import number
from costprobe.core.config.fields import Duration, Share, key
from costprobe.core.incident import Fault, Symptom
from costprobe.core.records import NS_PER_S, Point, Severity
from costprobe.core.schema import LOAD_CURVE
from costprobe.core.units import duration_words
from costprobe.drift.findings import (
    ACCEPTED_AFTER_S,
    CHANGE_MIN,
    CONTENTION,
    Metric,
    ServingMetric,
)

MAX_TIMES = 1000


class AnomalyRuleConfig(RuleConfig):
    """Single outliers; resolved when none has occurred for `within`."""

    kind: Literal["anomaly"] = Field(description="Kind of rule.", examples=["anomaly"])
    metrics: tuple[Metric, ...] = Field(
        ("cost", "latency", "energy", "throughput"), description="Monitored series of a probe."
    )
    at_least: int = Field(1, ge=1, le=1000, description="Number of outliers that fires.")
    within_s: Duration = key(
        "within",
        3600.0,
        description=(
            "Window in which outliers are counted; the incident is resolved after as "
            "long without one."
        ),
    )


class _ChangeRule(Rule[Config, dict[str, Any]]):
    """A rule on events of changes, by their metric and the labels of its series."""

    measurement = "event"

    def symptom_of(self, series: Labels, text: str, since_ns: int, **more: Any) -> Symptom:  # noqa: ANN401 - see Symptom
        """Return the symptom of a series of this rule."""
        (_, metric), *labels = series
        return self.symptom(tuple(labels), metric, text, since_ns, **more)

    def lasting(
        self, series: Labels, shift: Mapping[str, Any], at_least: float, *details: str
    ) -> Symptom:
        """Return the symptom of a shift that lasts."""
        return self.symptom_of(
            series,
            shift["text"],
            shift["since_at_ns"],
            value=shift["level_pct"],
            threshold=at_least * 100,
            detail=". ".join(filter(None, (shift["detail"], *details))),
            cause=shift["cause"],
            severity=shift["severity"],
        )

    def severity_of(self, row: Point) -> Severity:
        """Return the severity of a change: that of the rule, and info for an improvement."""
        return "info" if _text(row, "severity") == "info" else self.config.severity


def _key(row: Point) -> Labels:
    return (("metric", row.tags.get("metric", "")), *labels_of(row.tags))


class AnomalyRule(_ChangeRule[AnomalyRuleConfig]):
    """The state of a rule of kind `anomaly`."""

    def observe(self, row: Point) -> None:
        """Add an anomaly."""
        if (
            row.tags.get("kind") != "anomaly"
            or row.tags.get("metric", "") not in self.config.metrics
        ):
            return
        before = self.series.get(_key(row), {"times_at_ns": []})
        # After a restart an event may be delivered again.
        times_ns = [at_ns for at_ns in before["times_at_ns"] if at_ns != row.time_ns]
        outliers = {
            "times_at_ns": [*times_ns, row.time_ns][-MAX_TIMES:],
            "text": f"{_text(row, 'title')} ({_text(row, 'detail')})",
            "cause": _text(row, "cause"),
            "change_pct": number(row, "change_pct"),
        }
        self.series.put(_key(row), outliers)

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return each series with enough outliers in the window."""
        since_ns = time_ns - int(self.config.within_s * NS_PER_S)
        symptoms = []
        for labels, outliers in list(self.series.items()):
            times_ns = [at_ns for at_ns in outliers["times_at_ns"] if at_ns >= since_ns]
            outliers["times_at_ns"] = times_ns
            if not times_ns:
                del self.series[labels]
            elif len(times_ns) >= self.config.at_least:
                text, value, cause = (outliers[name] for name in ("text", "change_pct", "cause"))
                symptoms.append(
                    self.symptom_of(labels, text, times_ns[0], value=value, cause=cause)
                )
        return symptoms


# Below this share of the smallest shift, the series has reverted.
REVERTED_SHARE = 0.5
# So has one that is back by all but this share of its largest shift: the level of the first runs after
# a return is not known better.
LEFT_SHARE = 0.1
# An improvement of less, in percent or as a share of that shift, is none yet.
OVERSHOOT_PCT, OVERSHOOT_SHARE = 5.0, 0.25
# A shift that returns after this many ends within RECUR_NS is intermittent: it lasts until it has stayed
# away for `accept_after`.
RECURRENT_ENDS = 2
RECUR_NS = 2 * 86_400 * NS_PER_S
MAX_ENDS = 50


Direction = Literal["up", "down", "both"]


_OF_SERVICES: tuple[ServingMetric, ...] = ("serving_time", "serving_energy", "serving_tpot")


class DriftRuleConfig(RuleConfig):
    """A persistent shift of a monitored series; resolved when it reverts or is accepted as normal."""

    kind: Literal["drift"] = Field(description="Kind of rule.", examples=["drift"])
    metrics: tuple[Metric | ServingMetric, ...] = Field(
        ("cost", "latency", "energy", "throughput", *_OF_SERVICES),
        description="Monitored series of a probe or a service.",
    )
    at_least: Share = Field(0.01, description="Smallest shift that is reported.")
    direction: Direction = Field("both", description="Direction of the shift.")
    accept_after_s: Duration = key(
        "accept_after",
        86400.0,
        description="When a new level counts as normal and the incident is resolved.",
    )


class DriftRule(_ChangeRule[DriftRuleConfig]):
    """The state of a rule of kind `drift`: shifts by series; one that ended is kept for RECUR_NS."""

    def observe(self, row: Point) -> None:
        """Add a drift: a new shift, a further shift, or a reversal."""
        config, metric = self.config, row.tags.get("metric", "")
        # What runs beside a neighbour cost more is a change of the cost.
        monitored = "cost" if metric == CONTENTION else metric
        if row.tags.get("kind") != "drift" or monitored not in config.metrics:
            return
        level_pct = number(row, "level_pct")
        level_pct = number(row, "change_pct") or 0.0 if level_pct is None else level_pct
        min_pct = config.at_least * 100
        known = self.series.get(_key(row), {})
        known = known.get("next") or known
        before = {} if known.get("is_over") else known
        is_begun = abs(level_pct) >= min_pct and (
            config.direction == "both" or (config.direction == "up") == (level_pct > 0)
        )
        if before and _is_back(before, level_pct, min_pct):
            _end(before, row, level_pct if abs(level_pct) >= min_pct else 0.0)
            is_begun &= level_pct * before["level_pct"] < 0
            before = {}
        elif before:
            is_begun = True
        if not is_begun or _is_overshoot(known, row, level_pct):
            return
        shift = self._shift(row, level_pct, known.get("ended_at_ns", []), before)
        if known.get("is_over") and not known["is_reported"]:
            known["next"] = shift
        else:
            self.series.put(_key(row), shift)

    def _shift(
        self, row: Point, level_pct: float, ends_ns: Sequence[int], known: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the shift of an event; `known` is the same shift until then, empty for a new one."""
        ends_ns = [end_ns for end_ns in ends_ns if row.time_ns - end_ns < RECUR_NS]
        title, detail = _text(row, "title"), _text(row, "detail")
        what, is_named, _ = title.partition(" is ")
        first = {
            "what": what if is_named else f"{row.tags['metric']}{where(labels_of(row.tags))}",
            "first_pct": level_pct,
            "peak_pct": level_pct,
            "since_at_ns": _since_ns(row),
            "began": f"{title}; {detail}" if detail else title,
            "cause": "",
        }
        return {
            **first,
            **{name: known[name] for name in first if known},
            "level_pct": level_pct,
            "peak_pct": max(level_pct, known.get("peak_pct", 0.0), key=abs),
            "reported_at_ns": row.time_ns,
            "text": title,
            # A further shift is reported with the cause of the first.
            "detail": detail or (f"At first: {known['began']}" if known else ""),
            "severity": self.severity_of(row),
            "cause": _text(row, "cause") or known.get("cause", ""),
            "ended_at_ns": ends_ns,
            "is_intermittent": len(ends_ns) >= RECURRENT_ENDS,
            "quiet_at_ns": None,
            "is_over": False,
            "is_reported": False,
            "next": None,
        }

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return the shifts that have neither reverted nor been accepted as normal."""
        accept_s = self.config.accept_after_s
        for labels, shift in list(self.series.items()):
            # Between two shifts is an evaluation without one, so that each is an incident.
            if shift["is_reported"] and shift["next"]:
                self.series[labels] = shift["next"]
                continue
            age_ns = time_ns - shift["reported_at_ns"]
            if shift["is_over"]:
                shift["is_reported"] = True
                if age_ns > RECUR_NS:
                    del self.series[labels]
            elif age_ns > accept_s * NS_PER_S:
                shift["is_over"] = shift["is_reported"] = True
                lasted = duration_words(accept_s)
                shift["ending"] = (
                    f"No further change was reported for {lasted}: the new level counts as normal."
                    if shift["quiet_at_ns"] is None
                    else f"It has not come back for {lasted}."
                )
        return [
            self.lasting(labels, shift, self.config.at_least, _recurrence(shift))
            for labels, shift in self.series.items()
            if not shift["is_over"]
        ]

    def ended(self, symptom: Symptom, ended_ns: int) -> Symptom:
        """Return the largest shift, until it reverted; or the shift that was accepted as normal."""
        metric = symptom.series.partition(" ")[0]
        shift = self.series.get((("metric", metric), *symptom.labels.items()), {})
        if not shift.get("is_over"):
            return over_until(symptom, ended_ns, UNMEASURED)
        since_ns = symptom.since_ns
        if shift["quiet_at_ns"] is None:
            since = span_text(since_ns, ended_ns).partition(" to ")[0]
            text = f"accepted as normal: {shift['what']} is {shift['level_pct']:+z.1f} % since {since} UTC"
        else:
            peak_pct = max(shift["peak_pct"], symptom.value or 0.0, key=abs)
            peak, *others = (
                f"{pct:+z.1f} %" for pct in (peak_pct, shift["first_pct"], shift["level_pct"])
            )
            most = "" if {peak} == set(others) else "up to "
            span = span_text(since_ns, max(since_ns, shift["quiet_at_ns"]))
            if shift["is_intermittent"] or since_ns < shift["since_at_ns"]:
                span += ", with interruptions"
            left = f"; {shift['left_pct']:+.1f} % is left" if shift["left_pct"] else ""
            text = f"back to normal: {shift['what']} was {most}{peak} from {span}{left}"
        return over(symptom, text, shift["ending"], f"It was reported as: {symptom.text};")


def _is_back(shift: Mapping[str, Any], level_pct: float, min_pct: float) -> bool:
    """Return whether a level is that before a shift, or on its other side."""
    least_pct = max(REVERTED_SHARE * min_pct, LEFT_SHARE * abs(shift["peak_pct"]))
    return abs(level_pct) < least_pct or bool(level_pct * shift["peak_pct"] < 0)


def _is_overshoot(over: Mapping[str, Any], row: Point, level_pct: float) -> bool:
    """Return whether an improvement is only the inexact level after the return of a shift that is over."""
    return bool(
        over.get("is_over")
        and _text(row, "severity") == "info"
        and _since_ns(row) <= over["reported_at_ns"]
        and abs(level_pct) < max(OVERSHOOT_PCT, OVERSHOOT_SHARE * abs(over["peak_pct"]))
    )


def _end(shift: dict[str, Any], row: Point, left_pct: float) -> None:
    """Record the end of a shift; an intermittent one is quiet for now."""
    shift["ended_at_ns"] = [*shift["ended_at_ns"], row.time_ns][-MAX_ENDS:]
    shift["is_over"] = not shift["is_intermittent"]
    shift["quiet_at_ns"], shift["reported_at_ns"] = _since_ns(row), row.time_ns
    shift["left_pct"] = left_pct
    shift["ending"] = "It has reverted."


def _recurrence(shift: dict[str, Any]) -> str:
    """Describe how often an intermittent shift occurred; empty for another."""
    if not shift["is_intermittent"]:
        return ""
    count = len(shift["ended_at_ns"]) + (shift["quiet_at_ns"] is None)
    return f"Intermittent: {count} times in two days"


class LoadCurveRuleConfig(RuleConfig):
    """A changed load curve; resolved when a later curve is back, or accepted as normal."""

    kind: Literal["load_curve"] = Field(description="Kind of rule.", examples=["load_curve"])
    at_least: Share = Field(
        CHANGE_MIN, description="Smallest change of the throughput at the same loads."
    )
    accept_after_s: Duration = key(
        "accept_after",
        ACCEPTED_AFTER_S,
        description="When a new level counts as normal and the incident is resolved.",
    )


class LoadCurveRule(_ChangeRule[LoadCurveRuleConfig]):
    """The state of a rule of kind `load_curve`: the shift of each probe's curve."""

    _accepted: Collection[Labels] = ()

    def observe(self, row: Point) -> None:
        """Add an event of a changed load curve; one of a level near 0 ends the shift."""
        if row.tags.get("metric") != LOAD_CURVE:
            return
        level_pct = number(row, "level_pct") or 0.0
        before = self.series.pop(_key(row), None)
        if abs(level_pct) >= self.config.at_least * 100:
            shift = {
                "level_pct": level_pct,
                "since_at_ns": _since_ns(row) if before is None else before["since_at_ns"],
                "reported_at_ns": row.time_ns,
                "text": _text(row, "title"),
                "detail": _text(row, "detail"),
                "cause": _text(row, "cause"),
                "severity": self.severity_of(row),
            }
            self.series.put(_key(row), shift)

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return the curves that are neither back nor accepted as normal."""
        accept_ns = int(self.config.accept_after_s * NS_PER_S)
        self._accepted = [
            labels
            for labels, shift in self.series.items()
            if time_ns - shift["reported_at_ns"] > accept_ns
        ]
        for labels in self._accepted:
            del self.series[labels]
        return [
            self.lasting(labels, shift, self.config.at_least)
            for labels, shift in self.series.items()
        ]

    def ended(self, symptom: Symptom, ended_ns: int) -> Symptom:
        """Return the change until a curve was back, or as it was accepted as normal."""
        if (("metric", LOAD_CURVE), *symptom.labels.items()) in self._accepted:
            return over(symptom, f"accepted as normal: {symptom.text}")
        return over_until(symptom, ended_ns, "back to normal")


def _text(row: Point, field: str) -> str:
    """Return a text of an event; empty without one."""
    return str(row.fields.get(field, ""))


def _since_ns(row: Point) -> int:
    """Return the start of a change, UTC in ns."""
    since_ns = row.fields.get("since_ns")
    return since_ns if isinstance(since_ns, int) else row.time_ns
