"""Scores of scripted cases: replayed through the detectors and rules, and compared with the truth."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from cases import START_S, ScriptedCase, rows_of
from costprobe.core.records import NS_PER_S, Event, Point
from costprobe.domain.alerting.defaults import effective_rules
from costprobe.domain.alerting.drift_monitor import DriftMonitor
from costprobe.domain.alerting.engine import AlertEngine
from costprobe.domain.alerting.notifier_settings import NotifierConfig
from costprobe.domain.alerting.replay import COLLECTOR, replay
from costprobe.domain.alerting.settings import AlertingConfig
from costprobe.domain.detection.settings import DetectionConfig

H_NS = 3600 * NS_PER_S
# A drift whose start is reported earlier than this before the scripted one is a false alarm.
EARLY_H = 1.0
MAX_INTERMITTENT = 4
QUIET = "quiet"
GOAL_PCT = 95.0


@dataclass(frozen=True)
class Score:
    """The outcome of a case.

    Attributes:
        family: Kind of case.
        seed: Seed of the case.
        cause: The first reported cause; empty if nothing was reported.
        is_right: Whether that is expected, and nothing where nothing is.
        false_alarms: Drifts that nothing scripted explains.
        delay_h: Time from the change to its report; None if it was not reported.
        incidents: Number of incidents.
        text: What was reported first.
    """

    family: str
    seed: int
    cause: str
    is_right: bool
    false_alarms: int
    delay_h: float | None
    incidents: int
    text: str


def print_scores(scores: Sequence[Score]) -> bool:
    """Print the scores by family; return whether the goals are met."""
    print("Scripted cases: first cause right, false alarms, longest delay in hours\n")
    print("| family | right | false alarms | longest delay |")
    print("| --- | --- | --- | --- |")
    for family in dict.fromkeys(score.family for score in scores):
        found = [score for score in scores if score.family == family]
        delays = [score.delay_h for score in found if score.delay_h is not None]
        longest = f"{max(delays):.1f}" if delays else "-"
        alarms = sum(score.false_alarms for score in found)
        right = sum(score.is_right for score in found)
        print(f"| {family} | {right} of {len(found)} | {alarms} | {longest} |")
    print()
    quiet = [score for score in scores if score.family == QUIET]
    scripted = [score for score in scores if score.family != QUIET]
    is_met = True
    for name, chosen in (("first cause right", scripted), ("nothing reported", quiet)):
        share_pct = 100 * sum(score.is_right for score in chosen) / max(1, len(chosen))
        is_met &= share_pct >= GOAL_PCT
        print(f"{name}: {share_pct:.1f} % of {len(chosen)} (goal: {GOAL_PCT:g} %)")
    print()
    for score in scores:
        if not score.is_right:
            print(f"- {score.family}, seed {score.seed}: {score.cause or 'nothing'}: {score.text}")
    return is_met


class CaseRows:
    """The rows of a case by measurement, as a drift monitor asks for them."""

    def __init__(self, rows: Sequence[Point]) -> None:
        self._rows = {
            name: [row for row in rows if row.measurement == name]
            for name in ("probe", "cost", "event")
        }
        self._times_ns = {
            name: [row.time_ns for row in found] for name, found in self._rows.items()
        }

    def __call__(
        self, measurement: str, device: str, probe: str, span_ns: tuple[int, int], limit: int
    ) -> Sequence[Point]:
        """Return the newest rows of a measurement in a span of UTC ns; of the only probe."""
        del device, probe
        first, last = (bisect_left(self._times_ns[measurement], at_ns) for at_ns in span_ns)
        return self._rows[measurement][max(first, last - limit) : last]


def score_of(case: ScriptedCase) -> Score:
    """Replay a case and compare what was reported with what is scripted."""
    rows = rows_of(case)
    rules = [
        rule.model_copy(update={"notify": None}) for rule in effective_rules((), use_defaults=True)
    ]
    collector = NotifierConfig(name=COLLECTOR, kind="replay")
    engine = AlertEngine(rules, AlertingConfig(), (), (collector,), {"host": "h1"})
    monitor = DriftMonitor(DetectionConfig(), CaseRows(rows))
    found = replay((row for row in rows if row.measurement != "event"), engine, monitor, 300)
    drifts = [event for event in found.events if event.kind == "drift" and event.change_pct]
    onset_ns = START_S * NS_PER_S + int(case.onset_h * H_NS)
    earliest_ns = onset_ns - int(EARLY_H * H_NS)
    late = [event for event in drifts if (event.since_ns or event.time_ns) >= earliest_ns]
    first = _first(late)
    if case.expected:
        is_right = first is not None and first.cause in case.expected
        if case.family == "intermittent":
            is_right = is_right and len(found.incidents) <= MAX_INTERMITTENT
    else:
        is_right = not drifts
    is_scripted = first is not None and case.expected
    return Score(
        family=case.family,
        seed=case.seed,
        cause=first.cause if first else "",
        is_right=is_right,
        false_alarms=_false_alarms(case, drifts),
        delay_h=(first.time_ns - onset_ns) / H_NS if first and is_scripted else None,
        incidents=len(found.incidents),
        text=first.detail if first else "",
    )


def _false_alarms(case: ScriptedCase, drifts: Sequence[Event]) -> int:
    """Return the number of drifts before everything scripted."""
    hours = [change.hour for change in case.changes]
    first_ns = START_S * NS_PER_S + int((min(hours, default=case.hours) - EARLY_H) * H_NS)
    return sum((event.since_ns or event.time_ns) < first_ns for event in drifts)


def _first(drifts: Sequence[Event]) -> Event | None:
    """Return the drift that leads the first message: of the cost, if it comes within an hour."""
    if not drifts:
        return None
    soon = [event for event in drifts if event.time_ns - drifts[0].time_ns < H_NS]
    return min(soon, key=lambda event: (event.cause in {"", "unknown"}, event.metric != "cost"))
