"""The JSON of the fleet's page: the figures of `costprobe fleet`, kept while the database fails."""

import json
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S
from costprobe.ui.cli.main import main
from costprobe.ui.cli.support import fleet_options
from costprobe.ui.dashboard.fleet.page import (
    KEPT_MAX,
    RETRY_S,
    Asked,
    FleetFigures,
    PageSection,
    host_link,
)
from costprobe.ui.dashboard.guard import json_response
from fakes import paged_fleet
from fakes.clock import FakeClock
from fakes.command import of_fleet
from fakes.paged_fleet import DAY_S, HOUR_S, NOW_S, RATE_PER_H, Recipe
from fleet_server import HOST_URL, FleetServer, parts_of

HOSTS, GPUS = 5, 4
RECIPE = Recipe(hosts=HOSTS, gpus=GPUS, silent=("h04",), every_s=600)
SICK = ("h03", "gpu1")


@pytest.fixture(scope="module")
def kept():
    """The server that no test changes."""
    server = FleetServer(RECIPE)
    yield server
    server.stop()


@pytest.fixture
def answered(wait_until):
    """Asks a server until all parts of the answer have figures."""

    def ask(server, path):
        found = {}

        def is_complete():
            found.update(server.json(path))
            return all(part["figures"] is not None for part in parts_of(found))

        wait_until(is_complete)
        return found

    return ask


@pytest.fixture
def command(kept, monkeypatch, tmp_path):
    """Runs `costprobe fleet …` on the same rows at the same time; returns its JSON."""
    monkeypatch.setattr(fleet_options, "fleet_reader", lambda *_: kept.reader)
    monkeypatch.setattr(fleet_options, "time", SimpleNamespace(time_ns=kept.clock.time_ns))
    path = tmp_path / "costprobe.toml"
    path.write_text('[fleet]\nkind = "prometheus"\nurl = "http://127.0.0.1:1"\n')

    def run(since_s, *arguments):
        since = ["--since", iso((NOW_S + 60 - since_s) * NS_PER_S), "--json"]
        done = CliRunner().invoke(main, ["-c", str(path), *of_fleet(*arguments), *since])
        assert (done.exit_code, done.stderr) == (0, ""), done.output
        return json.loads(done.stdout)

    return run


def test_figures_are_those_of_the_commands(kept, answered, command):
    fleet = answered(kept, "/api/fleet")
    now = fleet["now"]["figures"]
    total = command(HOUR_S, "spend")["total"]
    costs = [{key: one[key] for key in one if key != "cost_per_h"} for one in now["costs"]]
    assert {**now, "costs": costs, "power_w": None} == {**total, "power_w": None}
    assert now["costs"][0]["cost_per_h"] == pytest.approx(now["costs"][0]["cost"])
    status = command(7 * DAY_S, "status")
    assert {key: fleet["status"]["figures"][key] for key in ("hosts", "silent", "versions")} == {
        key: status[key] for key in ("hosts", "silent", "versions")
    }
    models = command(HOUR_S, "compare")["models"]
    units = fleet["units"]["figures"]["units"]
    for one in models:
        own = next(unit for unit in units if unit["model"] == one["model"])
        assert {key: own[key] for key in one} == {**one, "group": ""}
    for by in ("host", "service", "label:rack"):
        spend = answered(kept, f"/api/spend?by={by}")["figures"]
        wanted = command(DAY_S, "spend", "--by", by)
        assert {key: spend[key] for key in ("total", "parts", "rest")} == {
            key: wanted[key] for key in ("total", "parts", "rest")
        }
    found = answered(kept, "/api/map")["figures"]
    wanted = command(7 * DAY_S, "outliers")
    shared = [
        {key: one[key] for key in one if key not in ("url", "action")} for one in found["outliers"]
    ]
    assert shared == wanted["outliers"]
    assert {key: found[key] for key in ("tested", "untested", "updated")} == {
        key: wanted[key] for key in ("tested", "untested", "updated")
    }


def test_unit_costs_have_changes_and_money_known_from_the_rows(kept, answered):
    fleet = answered(kept, "/api/fleet")
    units = {one["model"]: one for one in fleet["units"]["figures"]["units"]}
    assert list(units) == ["mixtral-8x7b", "llama-3.1-8b", "encoder"]
    for model, (cost, factor) in paged_fleet.MODELS.items():
        one = units[model]
        assert one["change_24h_pct"] == pytest.approx((factor - 1) * 100)
        assert one["change_7d_pct"] == pytest.approx((factor - 1) * 100)
        # 1.5 million tokens a currency unit before.
        assert one["cost"] == pytest.approx(factor / 1.5e6)
        # Six rows an hour; the silent host sent four.
        assert one["cost_per_h"] == pytest.approx(cost * (6 * (HOSTS - 1) + 4))
    assert units["encoder"]["change_7d_pct"] > units["encoder"]["change_24h_pct"] > 0
    assert units["encoder"]["spread_share"] > 0
    (month,) = fleet["month"]["figures"]["currencies"]
    assert (month["amount"], fleet["month"]["figures"]["timezone"]) == (5e5, "UTC")
    of_rack = answered(kept, "/api/fleet?label=rack%3Dr0")["month"]["figures"]
    assert of_rack["timezone"] == "Europe/Berlin"
    assert [one["amount"] for one in of_rack["currencies"]] == [1e5]
    rows = 6 * (HOSTS - 1) + 4
    assert month["spent"] == pytest.approx(rows * GPUS * RATE_PER_H / 6)


def test_map_has_the_deviation_of_every_gpu(kept, answered):
    answered(kept, "/api/fleet")
    found = answered(kept, "/api/map")["figures"]
    (outlier,) = found["outliers"]
    assert (outlier["host"], outlier["device"], outlier["cause"]) == (*SICK, "clock")
    assert outlier["url"] == "http://h03:9470/?field=probe.throughput_per_s&since=7d&device=gpu1"
    assert found["columns"] == [f"gpu{n}" for n in range(GPUS)]
    rows = {row["host"]: row for row in found["rows"]}
    assert found["rows"][0]["host"] == "h03"
    assert {host for host, row in rows.items() if row["silent_s"] is not None} == {"h04"}
    assert rows["h03"]["cells"][1] == [
        "gpu1",
        pytest.approx(outlier["time_excess_pct"], abs=1e-4),
        True,
    ]
    healthy = [
        cell for row in rows.values() for cell in row["cells"] if cell[0:3:2] != ["gpu1", True]
    ]
    assert len(healthy) == HOSTS * GPUS - 1
    assert all(abs(pct) < 3 and not listed for _, pct, listed in healthy)
    energy = answered(kept, "/api/map?metric=energy&order=name&shown=2")["figures"]
    assert [row["host"] for row in energy["rows"]] == ["h00", "h01"]
    grouped = answered(kept, "/api/map?group=rack&within=rack")["figures"]
    assert {row["group"] for row in grouped["rows"]} == {"r0"}
    assert answered(kept, "/api/map?model=none")["figures"]["rows"] == []
    gpu = answered(kept, "/api/gpu?host=h00&device=gpu2")
    assert gpu["figures"]["total"]["series"] == 1
    assert gpu["figures"]["models"][0]["model"] == "encoder"
    left = answered(kept, "/api/spend?by=host&shown=2")["figures"]
    assert (len(left["parts"]), left["left_out"]) == (2, HOSTS - 2)
    shown = sum(part["costs"][0]["cost"] for part in left["parts"])
    assert shown + left["left_out_costs"][0]["cost"] == pytest.approx(
        left["total"]["costs"][0]["cost"]
    )


def test_failing_database_leaves_figures_with_their_age_and_many_pages_ask_once(
    answered, wait_until
):
    server = FleetServer(Recipe(hosts=2, gpus=1, sick={}, silent=(), days=(), every_s=600))
    try:
        answered(server, "/api/fleet")
        asked = server.reader.asked
        for _ in range(5):
            server.json("/api/fleet")
        assert server.reader.asked == asked
        server.reader.error = "connection refused"
        server.clock.move(61)
        wait_until(lambda: server.json("/api/fleet")["now"]["error"])
        kept = server.json("/api/fleet")["now"]
        assert (kept["age_s"], kept["error"]) == (61, "connection refused")
        assert kept["figures"]["series"] == 2
        server.reader.error, server.reader.problems = "", ("no answer from 10 to 11",)
        server.clock.move(RETRY_S)
        wait_until(lambda: not server.json("/api/fleet")["now"]["error"])
        now = server.json("/api/fleet")["now"]
        assert (now["age_s"], now["is_partial"], now["problems"]) == (
            0,
            True,
            ["no answer from 10 to 11"],
        )
    finally:
        server.stop()


def test_questions_that_no_page_shows_any_more_are_not_asked(wait_until):
    begun, asked = Event(), []

    @contextmanager
    def opened(question):
        begun.wait(60)
        yield question

    def note(_, question):
        asked.append(question.key)
        return question.key

    figures = FleetFigures(FakeClock(), {"gpu": PageSection(60.0, opened, note)}, lambda _: {})
    last = 3 * KEPT_MAX
    for number in range(last + 1):
        figures.get(Asked("gpu", key=str(number)))
    begun.set()
    wait_until(lambda: figures.get(Asked("gpu", key=str(last))).value)
    figures.close()
    assert asked[-1] == str(last)
    assert len(asked) <= KEPT_MAX + 1


def test_invalid_parameters_are_rejected_with_a_reason(kept):
    cases = {
        "/api/fleet?labels=rack": "no such parameter",
        "/api/fleet?label=rack": "NAME=VALUE",
        "/api/spend?by=colour": "label:NAME",
        "/api/spend?shown=0": "whole number",
        "/api/map?metric=power": "not one of time, energy",
        "/api/map?group=a%22b": "the name of a label",
        "/api/gpu?host=h00": "give both",
    }
    wrong = {}
    for path, words in cases.items():
        status, headers, body = kept.request(path)
        if status != 400 or words not in json.loads(body)["error"]:
            wrong[path] = status, body
        assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert not wrong


def test_names_that_are_no_unicode_are_shown():
    document = {"host": "a\ud800", "model": "é"}
    body = json_response(document).body
    assert json.loads(body) == document
    assert "é" in body.decode()


def test_links_lead_to_host_names_only():
    query = "?field=probe.throughput_per_s&since=7d"
    cases = {
        (
            HOST_URL,
            "gpu-01.example.com",
            "gpu1",
        ): f"http://gpu-01.example.com:9470/{query}&device=gpu1",
        (HOST_URL, "h1", ""): f"http://h1:9470/{query}",
        (HOST_URL, "h1", "a&b"): f"http://h1:9470/{query}&device=a%26b",
        (HOST_URL, "evil.com/", "gpu1"): None,
        (HOST_URL, "user@evil", "gpu1"): None,
        (None, "h1", "gpu1"): None,
    }
    assert {case: host_link(*case) for case in cases} == cases
