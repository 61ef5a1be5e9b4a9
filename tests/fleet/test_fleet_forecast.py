"""The forecast of a fleet's spend, from the cost of each hour."""

import pytest
from click.testing import CliRunner
from costprobe.adapters.databases.kinds import READERS
from costprobe.adapters.databases.question import FleetAnswer, FleetConfig, GroupValue
from costprobe.adapters.databases.reader import FleetReader
from costprobe.core.clock import SystemClock
from costprobe.core.periods import HOUR_NS, TimeSpan
from costprobe.fleet.answers import FleetAnswers, FleetPeriod
from costprobe.fleet.spend import fleet_forecast
from costprobe.ui.cli.main import main
from fakes.command import called
from fakes.documents import checked

HOURS = 14 * 24
END_NS = 496_000 * HOUR_NS
DEVICES, GAP_DEVICES, PER_HOUR = 10, 3, 2.0
# Two hours in which most hosts sent nothing.
GAPS = {END_NS - 30 * HOUR_NS, END_NS - 31 * HOUR_NS}


class Hourly(FleetReader):
    """A fleet whose hours cost the same, with a gap of most hosts."""

    def fetch(self, question, span):
        assert question.every_s == 3600
        values = []
        for end_ns in range(span.start_ns + HOUR_NS, span.end_ns + 1, HOUR_NS):
            devices = GAP_DEVICES if end_ns in GAPS else DEVICES
            cost = PER_HOUR * devices / DEVICES
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
    missing = len(GAPS) * (1 - GAP_DEVICES / DEVICES)
    assert found.spent == pytest.approx(PER_HOUR * (100 - missing))
    assert found.coverage == pytest.approx((100 - missing) / 100)
    assert found.left_out == len(GAPS)
    assert found.expected == pytest.approx(found.spent + 68 * PER_HOUR)
    assert found.low == found.high == pytest.approx(found.expected)


def test_forecast_command_compares_with_a_planned_amount(tmp_path, monkeypatch):
    monkeypatch.setitem(READERS, "prometheus", Hourly)
    path = tmp_path / "costprobe.toml"
    path.write_text('[fleet]\nkind = "prometheus"\nurl = "http://127.0.0.1:9"\n')

    def run(*words, code=0):
        done = CliRunner().invoke(main, ["-c", str(path), "forecast", "--fleet", *words])
        assert done.exit_code == code, done.output
        return done.output

    (one,) = checked("forecast --fleet", run("--period", "year", "--amount", "1", "--json"))[
        "currencies"
    ]
    assert (one["currency"], one["amount"], one["verdict"]) == ("EUR", 1, "exceeded")
    assert "EUR: median" in run("--period", "quarter")
    assert "exceeded" in run("--period", "day", "--amount", "47.9")
    assert "within it" in run("--period", "day", "--amount", "49")
    assert run("--csv").startswith("currency,spent,coverage,forecast,")
    assert "no time zone" in run("--timezone", "Mars/Base", code=2)


def test_budgets_of_the_fleet_are_shown_as_those_of_a_host(tmp_path, monkeypatch):
    monkeypatch.setitem(READERS, "prometheus", Hourly)
    path = tmp_path / "costprobe.toml"
    path.write_text('[fleet]\nkind = "prometheus"\nurl = "http://127.0.0.1:9"\n')
    assert "add a [[fleet.watch.budget]]" in called(path, "budget", "--fleet", code=2).stderr
    with path.open("a") as file:
        file.write(
            '[[fleet.watch.budget]]\nname = "gpus"\namount = 1\ncurrency = "EUR"\nperiod = "year"\n'
        )
    (one,) = checked("budget --fleet", called(path, "budget", "--fleet", "--json").stdout)
    assert (one["budget"], one["amount"], one["verdict"]) == ("gpus", 1, "exceeded")
    assert "gpus: EXCEEDED" in called(path, "budget", "--fleet").stdout
