"""The rules over budgets: from rows to one incident a period, which grows worse and then ends."""

import json

import pytest

from agent.alerting.defaults import effective_rules
from agent.alerting.engine import AlertEngine
from agent.config_alerting import AlertingConfig
from agent.config_notifier import WebhookConfig
from agent.series import make_point

S = 1_000_000_000
BEGAN = 1_772_452_800 * S
DAY = 86_400 * S
ENDS = BEGAN + DAY


def engine(*rules, current=("team", "gpu")):
    notifier = WebhookConfig(name="ops", kind="webhook", url="http://127.0.0.1/")
    return AlertEngine(
        effective_rules(rules, use_defaults=True),
        AlertingConfig(),
        (),
        (notifier,),
        {"host": "h"},
        is_current=lambda labels: labels.get("budget") in (None, *current),
    )


def row(minute, *, exceeded=False, forecast=False, budget="team", ends_ns=ENDS, **tags):
    fields = {
        "amount": 100.0,
        "spent": 101.0 if exceeded else 60.0,
        "forecast": 130.0,
        "exceeded": exceeded,
        "forecast_exceeded": forecast,
        "period_end_ns": ends_ns,
        "text": f"budget {budget}",
    }
    own = {"host": "h", "budget": budget, "period": "day", "currency": "USD", **tags}
    return make_point("budget", own, fields, BEGAN + minute * 60 * S)


def told(outcome):
    return [(notice.alert.state, notice.alert.severity) for notice in outcome.notices]


def step(one, minute, *rows):
    for point in rows:
        one.observe(point)
    return one.tick(BEGAN + minute * 60 * S, ())


def test_a_budget_that_is_within_is_silent():
    one = engine()
    assert told(step(one, 10, row(10))) == []
    assert one.alerts() == ()


def test_forecast_then_exceeded_is_one_incident_that_grows_worse():
    one = engine()
    assert told(step(one, 10, row(10, forecast=True))) == [("firing", "warning")]
    assert told(step(one, 20, row(20, forecast=True))) == []
    assert told(step(one, 30, row(30, forecast=True, exceeded=True))) == [("firing", "critical")]
    (alert,) = one.alerts()
    assert {symptom.rule for symptom in alert.symptoms} == {"budget-forecast", "budget-exceeded"}
    assert alert.labels["budget"] == "team"
    values = {symptom.rule: symptom.value for symptom in alert.symptoms}
    assert values == {"budget-forecast": 130.0, "budget-exceeded": 101.0}
    # The next period's first row ends it.
    assert told(step(one, 1441, row(1441, ends_ns=ENDS + DAY))) == [("resolved", "critical")]


def test_two_budgets_are_two_incidents():
    one = engine()
    outcome = step(
        one, 10, row(10, exceeded=True), row(10, exceeded=True, budget="gpu", device="g")
    )
    assert told(outcome) == [("firing", "critical")] * 2
    rows = [point for point in outcome.points if point.tags["state"] == "firing"]
    assert {point.tags["budget"] for point in rows} == {"team", "gpu"}


def test_a_budget_of_which_no_more_is_heard_ends_after_its_period():
    one = engine()
    step(one, 10, row(10, exceeded=True))
    assert len(step(one, 1440 + 29, *()).notices) == 0
    assert told(step(one, 1440 + 31)) == [("resolved", "critical")]


def test_a_budget_that_is_exceeded_in_the_next_period_too_is_told_anew():
    one = engine()
    assert told(step(one, 1430, row(1430, exceeded=True))) == [("firing", "critical")]
    next_row = row(1441, exceeded=True, ends_ns=ENDS + DAY)
    assert told(step(one, 1441, next_row)) == [("resolved", "critical")]
    assert told(step(one, 1442)) == [("firing", "critical")]
    assert told(step(one, 1451, row(1451, exceeded=True, ends_ns=ENDS + DAY))) == []


def test_a_budget_that_is_configured_no_more_has_no_incident():
    one = engine(current=("gpu",))
    assert told(step(one, 10, row(10, exceeded=True))) == []


@pytest.mark.parametrize("kind", ["budget_exceeded", "budget_forecast"])
def test_a_rule_of_the_operators_own_looks_at_matched_budgets(kind):
    from agent.config_alerting import BudgetExceededRuleConfig, BudgetForecastRuleConfig

    model = BudgetExceededRuleConfig if kind == "budget_exceeded" else BudgetForecastRuleConfig
    own = model.model_validate(
        {
            "name": kind.replace("_", "-"),
            "kind": kind,
            "match": {"budget": "g*"},
            "severity": "info",
        }
    )
    one = engine(own)
    flags = {"exceeded": kind == "budget_exceeded", "forecast": kind == "budget_forecast"}
    outcome = step(one, 10, row(10, **flags), row(10, budget="gpu", **flags))
    assert told(outcome) == [("firing", "info")]
    assert one.alerts()[0].labels["budget"] == "gpu"


def test_what_fires_outlives_a_restart():
    one = engine()
    step(one, 10, row(10, exceeded=True))
    again = engine()
    again.restore(json.loads(json.dumps(one.document())))
    assert told(step(again, 20)) == []
    assert len(again.alerts()) == 1
