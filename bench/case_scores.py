"""Scores of answers to scripted cases: first cause, shares, and silence where nothing happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from scripted_case import ScriptedCase

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
