"""The forecast of a fleet's spend, from the cost of each hour."""

import pytest
from costprobe.adapters.databases.kinds import READERS
from costprobe.adapters.databases.question import FleetAnswer, FleetConfig, GroupValue
from costprobe.adapters.databases.reader import FleetReader
from costprobe.core.clock import SystemClock
from costprobe.core.periods import HOUR_NS, TimeSpan
from costprobe.fleet.answers import FleetAnswers, FleetPeriod
from costprobe.fleet.spend import fleet_forecast
from fakes.command import called
from fakes.documents import checked

HOURS = 14 * 24
END_NS = 496_000 * HOUR_NS
DEVICES, GAP_DEVICES, PER_HOUR = 10, 3, 2.0
# The hour of the day, in UTC, that costs twice as much.
DEAR_HOUR = 11
# Two hours in which most hosts sent nothing.
GAPS = {END_NS - 30 * HOUR_NS, END_NS - 31 * HOUR_NS}


class Hourly(FleetReader):
    """A fleet whose days cost the same, with a gap of most hosts."""

    def fetch(self, question, span):
        assert question.every_s == 3600
        values = []
        for end_ns in range(span.start_ns + HOUR_NS, span.end_ns + 1, HOUR_NS):
            devices = GAP_DEVICES if end_ns in GAPS else DEVICES
            is_dear = (end_ns // HOUR_NS - 1) % 24 == DEAR_HOUR
            cost = PER_HOUR * devices / DEVICES * (1 + is_dear)
            value = devices if question.over_time == "count" else cost
            values.append(GroupValue(("EUR",), value, end_ns))
        return FleetAnswer(tuple(values))

    def close(self):
        pass


CONFIG = FleetConfig.model_validate({"kind": "prometheus", "url": "http://127.0.0.1:9"})


def test_forecast_adds_the_usual_hours_to_what_was_spent():
    period = FleetPeriod(END_NS - HOURS * HOUR_NS, END_NS, 3600, END_NS)
    week = TimeSpan(END_NS - 100 * HOUR_NS, END_NS + 68 * HOUR_NS)
    (found,) = fleet_forecast(FleetAnswers(Hourly(CONFIG, SystemClock()), period, {}), week, "UTC")
    # Four of the last 100 hours are dear, and three of the next 68.
    missing = len(GAPS) * (1 - GAP_DEVICES / DEVICES)
    assert found.spent == pytest.approx(PER_HOUR * (100 - missing + 4))
    assert found.coverage == pytest.approx((100 - missing) / 100)
    assert found.left_out == len(GAPS)
    assert found.expected == pytest.approx(found.spent + (68 + 3) * PER_HOUR)
    assert found.low == found.high == pytest.approx(found.expected)


def test_planned_amounts_are_compared_with_the_forecast(tmp_path, monkeypatch):
    monkeypatch.setitem(READERS, "prometheus", Hourly)
    path = tmp_path / "costprobe.toml"
    path.write_text('[fleet]\nkind = "prometheus"\nurl = "http://127.0.0.1:9"\n')

    def asked(command, *words):
        done = called(path, command, "--fleet", *words, "--json")
        return checked(f"{command} --fleet", done.stdout)

    def verdict(*words):
        (one,) = asked("forecast", *words)["currencies"]
        return one["currency"], one["amount"], one["verdict"]

    assert verdict("--period", "year", "--amount", "1") == ("EUR", 1, "exceeded")
    # A day costs 50.
    assert verdict("--period", "day", "--amount", "49.9")[-1].endswith("exceeded")
    assert verdict("--period", "day", "--amount", "51")[-1] == ""
    done = called(path, "forecast", "--fleet", "--timezone", "Mars/Base", code=2)
    assert "no time zone" in done.stderr
    assert "add a [[fleet.watch.budget]]" in called(path, "budget", "--fleet", code=2).stderr
    with path.open("a") as file:
        file.write(
            '[[fleet.watch.budget]]\nname = "gpus"\namount = 1\ncurrency = "EUR"\nperiod = "year"\n'
        )
    (one,) = asked("budget")
    assert (one["budget"], one["amount"], one["verdict"]) == ("gpus", 1, "exceeded")
