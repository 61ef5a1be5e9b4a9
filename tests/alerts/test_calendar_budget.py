"""Budget rules open one incident per budget period, raise its severity and resolve it."""

from costprobe.alerts.engine import AlertEngine
from costprobe.alerts.rules.budgets import BudgetExceededRuleConfig, BudgetForecastRuleConfig
from costprobe.alerts.rules.kinds import effective_rules
from costprobe.alerts.settings import AlertingConfig
from costprobe.core.schema import make_point
from costprobe.delivery.webhook import WebhookConfig

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


def notified(outcome):
    return [(notice.alert.state, notice.alert.severity) for notice in outcome.notices]


def step(one, minute, *rows):
    for point in rows:
        one.observe(point)
    return one.tick(BEGAN + minute * 60 * S, ())


def test_forecast_then_exceeded_raises_the_severity_of_one_incident():
    one = engine()
    assert notified(step(one, 9, row(9))) == []
    assert notified(step(one, 10, row(10, forecast=True))) == [("firing", "warning")]
    assert notified(step(one, 20, row(20, forecast=True))) == []
    assert notified(step(one, 30, row(30, forecast=True, exceeded=True))) == [
        ("firing", "critical")
    ]
    (alert,) = one.alerts()
    assert {symptom.rule for symptom in alert.symptoms} == {"budget-forecast", "budget-exceeded"}
    assert alert.labels["budget"] == "team"
    values = {symptom.rule: symptom.value for symptom in alert.symptoms}
    assert values == {"budget-forecast": 130.0, "budget-exceeded": 101.0}
    # The first row of the next period resolves it.
    assert notified(step(one, 1441, row(1441, ends_ns=ENDS + DAY))) == [("resolved", "critical")]


def test_budget_without_rows_resolves_after_its_period():
    one = engine()
    step(one, 10, row(10, exceeded=True))
    assert len(step(one, 1440 + 29, *()).notices) == 0
    assert notified(step(one, 1440 + 31)) == [("resolved", "critical")]


def test_budget_exceeded_in_the_next_period_is_a_new_incident():
    one = engine()
    assert notified(step(one, 1430, row(1430, exceeded=True))) == [("firing", "critical")]
    next_row = row(1441, exceeded=True, ends_ns=ENDS + DAY)
    assert notified(step(one, 1441, next_row)) == [("resolved", "critical")]
    assert notified(step(one, 1442)) == [("firing", "critical")]
    assert notified(step(one, 1451, row(1451, exceeded=True, ends_ns=ENDS + DAY))) == []


def test_only_present_and_matching_budgets_have_incidents():
    assert notified(step(engine(current=("gpu",)), 10, row(10, exceeded=True))) == []
    for flag, model in (
        ("exceeded", BudgetExceededRuleConfig),
        ("forecast", BudgetForecastRuleConfig),
    ):
        kind, only = f"budget_{flag}", {"budget": "g*"}
        own = model(name=f"budget-{flag}", kind=kind, match=only, severity="info")
        one = engine(own)
        outcome = step(one, 10, row(10, **{flag: True}), row(10, budget="gpu", **{flag: True}))
        assert notified(outcome) == [("firing", "info")]
        assert one.alerts()[0].labels["budget"] == "gpu"
    both = step(engine(), 10, row(10, exceeded=True), row(10, exceeded=True, budget="gpu"))
    assert notified(both) == [("firing", "critical")] * 2
