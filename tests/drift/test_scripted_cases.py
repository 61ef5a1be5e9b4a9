"""Scripted causes are reported with their shares; `bench/cause_cases.py` runs more."""

from statistics import fmean

from fakes.benches import answer_of, cases, large_cases, score_of
from fakes.sizes import sized

# Families whose histories are long are left to the long version.
SHORT = ("single", "two at once", "two physical", "known clock", "update before", "missing signals")
COUNT = 6


def test_scripted_cases_are_reported_with_their_first_cause_and_shares():
    chosen = [case for case in cases(sized(50, 520), seed=9) if case.family in SHORT or sized(0, 1)]
    scores = [score_of(case, answer_of(case)) for case in chosen[: sized(COUNT, 520)]]
    wrong = [(s.case.family, s.case.seed, s.answer.text) for s in scores if not s.is_right]
    alarms = [(s.case.family, s.case.seed) for s in scores if s.answer.alarms]
    errors = [s.error_points for s in scores if s.error_points is not None]
    assert len(wrong) <= 0.05 * len(scores), wrong
    assert len(alarms) <= 0.01 * len(scores), alarms
    assert fmean(errors) <= 15, errors


def test_large_change_without_a_signal_is_unknown_beside_anything_small():
    """Alone, of the energy, after an unrelated annotation, beside a lower clock, and with an update."""
    scores = [score_of(case, answer_of(case)) for case in large_cases(sized(5, 150), seed=4)]
    wrong = [(s.case.family, s.case.seed, s.answer.text) for s in scores if not s.is_right]
    assert len(wrong) <= 0.05 * len(scores), wrong
    assert not [s.case.seed for s in scores if s.answer.alarms]
