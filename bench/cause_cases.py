"""Is the first reported cause that of the script, and how far are the shares from the true ones?

    python bench/cause_cases.py [--cases 260] [--seed 1000] [--large]

The rows of scripted cases (`cases.py`) are replayed through detectors, rules and causes. With `--large`
time or energy changes by a factor of 3 and more, which no signal measures.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from cases import START_S, ScriptedCase, cases, large_cases, rows_of
from costprobe.alerts.engine import AlertEngine
from costprobe.alerts.replay import COLLECTOR, replay
from costprobe.alerts.rules.kinds import effective_rules
from costprobe.alerts.settings import AlertingConfig
from costprobe.core.records import NS_PER_S, Event, Point
from costprobe.delivery.contract import NotifierConfig
from costprobe.drift.causes import UNKNOWN, Explanation
from costprobe.drift.findings import CONTENTION, Finding
from costprobe.drift.message import Key, change_of
from costprobe.drift.monitor import DriftMonitor
from costprobe.drift.settings import DetectionConfig

GOAL_PCT = 95.0
SHARES_GOAL_POINTS = 15.0
# A change whose start is reported earlier than this before the scripted one is a false alarm.
EARLY_H = 1.0
MAX_INTERMITTENT = 4
# Families with a goal of their own.
QUIET, NO_SIGNAL, INTERMITTENT = "quiet", "no signal", "intermittent"
# The same heat, with and without a temperature that has risen already; the same limit, lowered or reached.
SAME = {"thermal throttling": "cooling", "lower power limit": "power limit"}


@dataclass(frozen=True)
class CaseAnswer:
    """What a program answered to a case.

    Attributes:
        first: The first cause it named; empty if it reported nothing after the onset.
        metric: The series it reported: "cost", "latency", "energy" or "throughput".
        shares: Share of each cause, "unknown" included.
        delay_h: Time from the onset to the report; None without one.
        alarms: Reports whose start lies before everything scripted.
        incidents: Number of incidents; 0 if not counted.
        text: The report.
    """

    first: str = ""
    metric: str = "cost"
    shares: Mapping[str, float] = field(default_factory=dict)
    delay_h: float | None = None
    alarms: int = 0
    incidents: int = 0
    text: str = ""


@dataclass(frozen=True)
class Score:
    """The outcome of a case.

    Attributes:
        case: The case.
        answer: The answer.
        is_right: Whether the first cause is that of the script, and nothing is reported where nothing is.
        error_points: Half of the sum of the differences of all shares, in percentage points: so much
            of the change is attributed to the wrong cause. None for a quiet case.
    """

    case: ScriptedCase
    answer: CaseAnswer
    is_right: bool
    error_points: float | None


def score_of(case: ScriptedCase, answer: CaseAnswer) -> Score:
    """Compare an answer with the truth."""
    expected = {SAME.get(name, name) for name in case.first_causes()}
    if not expected:
        return Score(
            case, answer, is_right=not answer.first and not answer.alarms, error_points=None
        )
    is_right = SAME.get(answer.first, answer.first) in expected
    if case.family == INTERMITTENT:
        is_right = is_right and answer.incidents <= MAX_INTERMITTENT
    return Score(case, answer, is_right, _error_points(case.shares(answer.metric), answer))


def _error_points(true: Mapping[str, float], answer: CaseAnswer) -> float:
    if not answer.first:
        return 100.0
    difference: Counter[str] = Counter()
    for shares, sign in ((true, 1), (answer.shares, -1)):
        for name, share in shares.items():
            difference[SAME.get(name, name)] += sign * share  # type: ignore[assignment]
    return 100 * sum(map(abs, difference.values())) / 2


def print_scores(scores: Sequence[Score]) -> bool:
    """Print the scores by family; return whether the goals are met."""
    print(
        "| family | first cause right | error of shares, points | false alarms | longest delay, h |"
    )
    print("| --- | --- | --- | --- | --- |")
    for family in dict.fromkeys(score.case.family for score in scores):
        found = [score for score in scores if score.case.family == family]
        errors = [score.error_points for score in found if score.error_points is not None]
        delays = [score.answer.delay_h for score in found if score.answer.delay_h is not None]
        right = sum(score.is_right for score in found)
        error = f"{fmean(errors):.1f}" if errors else "-"
        longest = f"{max(delays):.1f}" if delays else "-"
        alarms = sum(score.answer.alarms for score in found)
        print(f"| {family} | {right} of {len(found)} | {error} | {alarms} | {longest} |")
    print()
    is_met = True
    for name, chosen in (
        ("first cause right", [s for s in scores if s.case.family not in {QUIET, NO_SIGNAL}]),
        ("unknown where no signal changed", [s for s in scores if s.case.family == NO_SIGNAL]),
        ("nothing reported", [s for s in scores if s.case.family == QUIET]),
    ):
        share_pct = 100 * sum(score.is_right for score in chosen) / max(1, len(chosen))
        is_met &= share_pct >= GOAL_PCT or not chosen
        print(f"{name}: {share_pct:.1f} % of {len(chosen)} (goal: {GOAL_PCT:g} %)")
    errors = [score.error_points for score in scores if score.error_points is not None]
    if errors:
        is_met &= fmean(errors) <= SHARES_GOAL_POINTS
        goal = f"at most {SHARES_GOAL_POINTS:g}"
        print(f"mean error of shares: {fmean(errors):.1f} points of {len(errors)} (goal: {goal})")
    print()
    for score in scores:
        if not score.is_right:
            expected = ", ".join(sorted(score.case.first_causes())) or "nothing"
            answer = score.answer
            print(
                f"- {score.case.family}, seed {score.case.seed}: {answer.first or 'nothing'} instead of"
                f" {expected}; {answer.text}"
            )
    return is_met


MAX_RUNS = 10_000
H_NS = 3600 * NS_PER_S


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


def answer_of(case: ScriptedCase) -> CaseAnswer:
    """Replay a case; the answer is what the first message says."""
    rows = rows_of(case)
    history = CaseRows(rows)
    rules = [
        rule.model_copy(update={"notify": None}) for rule in effective_rules((), use_defaults=True)
    ]
    collector = NotifierConfig(name=COLLECTOR, kind="replay")
    engine = AlertEngine(rules, AlertingConfig(), (), (collector,), {"host": "h1"})
    monitor = DriftMonitor(DetectionConfig(), history)
    found = replay((row for row in rows if row.measurement != "event"), engine, monitor, 300)
    drifts = [event for event in found.events if event.kind == "drift" and event.change_pct]
    onset_ns = START_S * NS_PER_S + int(case.onset_h * H_NS)
    earliest_ns = onset_ns - int(EARLY_H * H_NS)
    late = [event for event in drifts if (event.since_ns or event.time_ns) >= earliest_ns]
    alarms = _alarms(case, drifts)
    first = _first(late)
    if first is None:
        return CaseAnswer(alarms=alarms, incidents=len(found.incidents))
    explained = _explanation_of(first, history)
    shares = {cause.name: cause.share.mean for cause in explained.causes if cause.share}
    return CaseAnswer(
        first=first.cause,
        metric=first.metric,
        shares={**shares, UNKNOWN: 1 - sum(shares.values())},
        delay_h=(first.time_ns - onset_ns) / H_NS if case.changes else None,
        alarms=alarms,
        incidents=len(found.incidents),
        text=f"{first.title}: {first.detail}",
    )


def _explanation_of(event: Event, history: CaseRows) -> Explanation:
    """Return the explanation in the event's message, which contains it as text."""
    since_ns = event.since_ns or event.time_ns
    change = math.log1p((event.change_pct or 0.0) / 100)
    metric = event.metric
    if metric == CONTENTION:
        # Its percentage is that of the runs beside a neighbour.
        rows = history("probe", "", "", (since_ns, event.time_ns + 1), MAX_RUNS)
        metric = "cost"
        change *= fmean(row.fields.get("contended") is True for row in rows)
    finding = Finding(
        "drift", event.time_ns / NS_PER_S, since_ns / NS_PER_S, 1.0, math.exp(change), change
    )
    key: Key = (event.device, event.subject["probe"], metric)  # type: ignore[assignment]
    return change_of(finding, key, (0, since_ns), event.time_ns, history).explanation


def _alarms(case: ScriptedCase, drifts: Sequence[Event]) -> int:
    """Return the number of drifts before everything scripted."""
    hours = [change.hour for change in case.changes]
    first_ns = START_S * NS_PER_S + int((min(hours, default=case.hours) - EARLY_H) * H_NS)
    return sum((event.since_ns or event.time_ns) < first_ns for event in drifts)


def _first(drifts: Sequence[Event]) -> Event | None:
    """Return the drift that leads the first message: of the cost, if it comes within an hour."""
    if not drifts:
        return None
    soon = [event for event in drifts if event.time_ns - drifts[0].time_ns < H_NS]
    return min(soon, key=lambda event: (event.cause in {"", UNKNOWN}, event.metric != "cost"))


def own_score(case: ScriptedCase) -> Score:
    """Score costprobe in a case."""
    return score_of(case, answer_of(case))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=260)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    make = large_cases if options.large else cases
    with multiprocessing.Pool(options.jobs) as pool:
        scores = pool.map(own_score, make(options.cases, options.seed), chunksize=4)
    sys.exit(0 if print_scores(scores) else 1)


if __name__ == "__main__":
    main()
