"""Questions about one period: each is asked once, and none after one without an answer."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from costprobe.adapters.databases.question import FleetAnswer, GroupValue, Question
from costprobe.adapters.http.errors import RetryLater
from costprobe.core.records import NS_PER_S
from costprobe.fleet.answers import FleetAnswers, fleet_period
from costprobe.fleet.unit_costs import fleet_unit_costs

DAY_S = 86_400
COST = Question("device", "cost", "sum", by=("host",))
ENERGY = Question("device", "energy_j", "sum", by=("host",))


class CountingReader:
    """A reader that answers each question with the number of those before it, in part, or fails."""

    def __init__(self, error=None):
        self.asked, self.error = [], error

    def ask(self, question, start_ns, end_ns, now_ns):  # noqa: ARG002 - a reader's arguments
        self.asked.append((question.field, start_ns))
        if self.error:
            raise self.error
        problem = f"no {question.field}"
        return FleetAnswer((GroupValue(("a",), float(len(self.asked)), end_ns),), (problem,))


def answers_of(reader):
    return FleetAnswers(reader, fleet_period(0, DAY_S * NS_PER_S, 2 * DAY_S * NS_PER_S), {})


def test_a_question_is_asked_once_for_a_period():
    reader = CountingReader()
    answers = answers_of(reader)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(answers.groups, [COST] * 8))
    assert found == [{("a",): 1.0}] * 8
    assert answers.each(ENERGY, COST) == [{("a",): 2.0}, {("a",): 1.0}]
    later = answers.over(answers.period._replace(start_ns=3600 * NS_PER_S))
    assert later.groups(COST) == {("a",): 3.0}
    assert reader.asked == [("cost", 0), ("energy_j", 0), ("cost", 3600 * NS_PER_S)]
    assert answers.problems == ("no cost", "no energy_j")
    # The reasons have one order, whichever question is asked first.
    again = answers_of(CountingReader())
    again.groups(ENERGY)
    again.groups(COST)
    assert again.problems == answers.problems


def test_no_question_is_asked_after_one_without_an_answer():
    reader = CountingReader(RetryLater("unreachable"))
    answers = answers_of(reader)
    for question in (COST, ENERGY):
        with pytest.raises(RetryLater, match="unreachable"):
            answers.groups(question)
    assert reader.asked == [("cost", 0)]


class SummedReader:
    """A reader of the rows of one service without models: sums and counts by field."""

    def __init__(self, **found):
        self._found = found

    def ask(self, question, start_ns, end_ns, now_ns):  # noqa: ARG002 - a reader's arguments
        value = self._found.get(f"{question.over_time}_of_{question.field}")
        if value is None or question.where.get("served_model") != "":
            return FleetAnswer((), ())
        tags = {"service": "chat", "currency": "USD", "host": "a"}
        group = tuple(tags.get(tag, "") for tag in question.by)
        return FleetAnswer((GroupValue(group, value, end_ns),), ())


def test_idle_share_is_of_the_whole_cost_where_older_versions_wrote_some_of_the_rows():
    rows = {"sum_of_cost_total": 8.0, "sum_of_cost_idle": 3.0, "covered_of_cost_idle": 4.0}
    cases = [(4.0, 6.0, 0.5), (2.0, 4.0, 0.375), (None, None, 0.375)]
    for known_rows, known, share in cases:
        more = {"covered_of_cost_idle_known": known_rows, "sum_of_cost_idle_known": known}
        (found,) = fleet_unit_costs(answers_of(SummedReader(**rows, **more)), "team")
        assert found.idle_share == share, (known_rows, found)
