"""One scripted case of each family is reported with its cause; `bench/detection.py --cases` runs more."""

from fakes.scripted_cases import cases, score_of
from fakes.sizes import sized

# One of each family.
ROUND = 20


def test_scripted_cases_are_reported_with_their_first_cause():
    scores = [score_of(case) for case in cases(sized(ROUND, 12 * ROUND), seed=4)]
    wrong = [(score.family, score.seed, score.text) for score in scores if not score.is_right]
    alarms = [(score.family, score.seed) for score in scores if score.false_alarms]
    assert len(wrong) <= 0.05 * len(scores), wrong
    assert len(alarms) <= 0.01 * len(scores), alarms
