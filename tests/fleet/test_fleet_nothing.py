"""Answers without rows, and answers in part, are not mistaken for a fleet without a problem."""

import json

import pytest
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from costprobe.fleet.answers import FleetAnswers, fleet_period
from costprobe.fleet.unit_costs import fleet_unit_costs
from costprobe.ui.cli.fleet_questions import compare_lines
from fakes.cases import check_all
from fakes.command import called, of_fleet
from fakes.fleet_answers import RowsReader
from fakes.servers import Scripted

END_S = 1_780_012_800
# A group of each question; `rollup` is the part of a weighted sum.
GROUP = {"host": "a", "currency": "EUR", "rollup": "avg_over_time"}
PAID = [{"metric": GROUP, "value": [END_S, "7"]}]
COMMANDS = (
    "status", "spend", "compare", "savings", "report", "outliers", "change driver", "change label:release",
    "forecast", "forecast --currency CHF",
)  # fmt: skip


@pytest.fixture
def ask(tmp_path):
    """Runs a command on a VictoriaMetrics that answers all questions alike."""

    def run(result, *words, code, **more):
        answer = json.dumps({"status": "success", "data": {"result": result}, **more}).encode()
        path = tmp_path / "costprobe.toml"
        with Scripted(lambda *_: (200, {}, answer)) as server:
            path.write_text(f'[fleet]\nkind = "victoriametrics"\nurl = "{server.url}"\n')
            return called(path, *of_fleet(*words), code=code)

    return run


def test_no_rows_are_an_error_that_names_what_was_asked_for(ask):
    def check(command):
        words = command.split()
        done = ask([], *words, code=1)
        assert done.stderr.startswith("Error: no rows in CHF" if "CHF" in words else "Error: no ")
        assert done.stderr.endswith("; do the hosts push to the database of [fleet]?\n")
        done = ask([], *words, "--label", "rack=r99", code=1)
        assert " with rack=r99 since " in done.stderr
        assert done.stderr.endswith("; check --label\n")

    check_all(check, COMMANDS)


def test_a_model_paid_in_several_currencies_has_no_unit_cost_without_counts_of_each():
    """A database that counts inferences without their currency."""
    tags = {"host": "a", "service": "chat", "basis": "serving", "served_model": ""}

    def found(*currencies):
        rows = [
            make_point("cost", {**tags, "currency": name}, fields, END_S * NS_PER_S)
            for name, fields in (
                ("", {"inferences": 50.0}),
                *((currency, {"cost_total": 1.0}) for currency in currencies),
            )
        ]
        period = fleet_period((END_S - 3600) * NS_PER_S, END_S * NS_PER_S, END_S * NS_PER_S)
        units = fleet_unit_costs(FleetAnswers(RowsReader(rows), period, {}), "model")
        is_stated = "paid in several currencies" in "\n".join(compare_lines(units, "model"))
        return [one.cost_per_inference for one in units], is_stated

    assert found("EUR") == ([0.02], False)
    assert found("EUR", "USD") == ([None, None], True)


def test_a_partial_report_says_so(ask, tmp_path):
    done = ask(PAID, "report", "--out", str(tmp_path / "fleet.md"), code=0, isPartial=True)
    assert "partial: a storage node of the cluster did not answer\n" in done.stderr
