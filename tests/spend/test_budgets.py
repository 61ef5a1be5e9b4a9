"""Budgets in the daemon: computed from the store, kept over restarts, reported when exceeded."""

import pytest
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.adapters.store.write import Store
from costprobe.configuration import Config
from costprobe.core.schema import make_point
from costprobe.spend.evaluate import BudgetTracker
from fakes.clock import FakeClock

S = 1_000_000_000
HOUR_NS = 3600 * S
NOON = 1_780_056_000 * S  # 29 May 2026, 12:00 UTC
BUDGET = {"name": "team", "amount": 20, "period": "day"}


class Scene:
    """Budgets over a separate store, with a manual clock."""

    def __init__(self, folder):
        self.clock = FakeClock(NOON)
        self.path = folder / "costprobe.db"
        self.store = Store.open(self.path, self.clock)
        self.ledger = MemoryLedger()
        self.events = []

    def budgets(self, *tables):
        config = Config.model_validate({"budget": tables or (BUDGET,)})
        return BudgetTracker(
            config.budget,
            config.telemetry.aggregate_s,
            self.ledger,
            self.path,
            self.clock,
            {"host": "h"},
            on_event=self.events.append,
        )

    def cost(self, since_ns, until_ns, per_hour, device="gpu0", step_s=60):
        step_ns = step_s * S
        tags = {"host": "h", "device": device, "kind": "gpu", "currency": "USD"}
        times = range(since_ns + step_ns, until_ns + 1, step_ns)
        self.store.append(
            [
                make_point("device", tags, {"cost": per_hour * step_s / 3600}, time_ns)
                for time_ns in times
            ]
        )

    def live(self, hours, per_hour, device="gpu0"):
        """Advance the clock and store cost rows for that time."""
        since_ns = self.clock.time_ns()
        self.clock.move(hours * 3600)
        self.cost(since_ns, self.clock.time_ns(), per_hour, device)


@pytest.fixture
def scene(tmp_path):
    made = Scene(tmp_path)
    yield made
    made.store.close()


def test_budget_is_evaluated_reported_and_stored_as_rows(scene):
    midnight_ns = NOON - 12 * HOUR_NS
    scene.cost(midnight_ns - 24 * HOUR_NS, NOON, 1.0)
    budgets = scene.budgets()
    assert budgets.status() == []
    budgets.refresh()
    (status,) = budgets.status()
    assert status["spent"] == pytest.approx(12.0)
    assert status["coverage"] == pytest.approx(1.0)
    assert status["forecast"] == pytest.approx(24.0)
    assert (status["exceeded"], status["forecast_exceeded"], scene.events) == (False, False, [])
    scene.live(1 / 6, 1.0)
    budgets.refresh()
    assert [event.metric for event in scene.events] == ["budget_forecast"]
    for _ in range(10):
        scene.live(1, 1.0)
        budgets.refresh()
    assert [event.metric for event in scene.events] == ["budget_forecast", "budget_exceeded"]
    (status,) = budgets.status()
    assert (status["exceeded"], status["spent"]) == (True, pytest.approx(12 + 1 / 6 + 10))
    rows = [point for point in scene.ledger.points if point.measurement == "budget"]
    assert len(rows) == 12
    assert rows[-1].fields["exceeded"] is True


def test_each_call_evaluates_and_rows_are_of_ten_minutes_or_an_event(scene):
    budgets = scene.budgets({**BUDGET, "amount": 1}, {**BUDGET, "name": "none", "device": "gpu9"})

    def rows_of(minutes, per_hour):
        """Return when rows were stored, in minutes after noon."""
        scene.ledger.points.clear()
        for _ in range(minutes):
            if per_hour:
                scene.live(1 / 60, per_hour)
            else:
                scene.clock.move(60)
            budgets.refresh()
            assert {one["time_ns"] for one in budgets.status()} == {scene.clock.time_ns()}
        return [(point.time_ns - NOON) // (60 * S) for point in scene.ledger.points]

    # Without costs a budget is unknown and has no row.
    assert rows_of(3, 0) == []
    assert [one["coverage"] for one in budgets.status()] == [0.0, 0.0]
    assert budgets.status()[0]["missing"] == ["no cost data for host in this period"]
    # More than 1 of 20 an hour is spent after four minutes.
    assert rows_of(30, 20.0) == [7, 10, 20, 30]
    assert [event.metric for event in scene.events] == ["budget_exceeded"]


def test_restart_repeats_no_event_unless_the_budget_was_raised(scene):
    scene.cost(NOON - 60 * HOUR_NS, NOON, 2.0)
    scene.budgets().refresh()
    assert [event.metric for event in scene.events] == ["budget_exceeded"]
    scene.budgets({**BUDGET, "amount": 23}).refresh()
    assert [event.metric for event in scene.events] == ["budget_exceeded"] * 2
    scene.budgets().refresh()
    scene.events[:] = scene.events[:1]
    scene.live(1, 2.0)
    again = scene.budgets()
    again.refresh()
    assert len(scene.events) == 1
    assert again.status()[0]["spent"] == pytest.approx(26.0)
    # The next day starts at zero.
    scene.live(12, 0.5)
    again.refresh()
    assert again.status()[0]["spent"] == pytest.approx(0.5)
    assert again.status()[0]["exceeded"] is False


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("wrong_s", [20 * 365 * 86_400, 86_400, -86_400])
def test_spend_is_right_after_the_wall_clock_was_wrong(scene, wrong_s, restarts):
    scene.cost(NOON - 12 * HOUR_NS, NOON, 1.0)
    budgets = scene.budgets()
    budgets.refresh()
    scene.clock.step(wrong_s)
    scene.live(1, 1.0)
    budgets.refresh()
    scene.clock.step(-wrong_s)
    if restarts:
        budgets = scene.budgets()
    scene.live(1, 1.0)
    budgets.refresh()
    (status,) = budgets.status()
    # The hour booked on another day does not count for this one.
    assert status["spent"] == pytest.approx(13.0)
    assert status["coverage"] == pytest.approx(13 / 14)
