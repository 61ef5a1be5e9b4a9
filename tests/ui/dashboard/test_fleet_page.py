"""The JSON of the fleet's page: the figures of `costprobe fleet`, kept while the database fails."""

import json
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Event
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from contents import Recorded, value, values, words
from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S
from costprobe.fleet.peers import FleetOutliers
from costprobe.ui.cli.main import main
from costprobe.ui.cli.support import fleet_options
from costprobe.ui.dashboard.fleet.documents import banner, tiles
from costprobe.ui.dashboard.fleet.page import (
    KEPT_MAX,
    RETRY_S,
    Asked,
    FleetFigures,
    PageSection,
    host_link,
)
from costprobe.ui.dashboard.guard import json_response
from fakes.clock import FakeClock
from fakes.command import of_fleet
from fakes.paged_fleet import DAY_S, HOUR_S, NOW_S, RATE_PER_H, Recipe
from page_servers import HOST_URL, FleetServer
from record.record_files import check_outcomes

HOSTS, GPUS = 5, 4
RECIPE = Recipe(hosts=HOSTS, gpus=GPUS, silent=("h04",), every_s=600)


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
            return all(part["age_s"] is not None for part in found["parts"].values())

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


def figures_of(tiles):
    return {one["name"]: value(one["big"]) for one in tiles}


def test_figures_are_those_of_the_commands(kept, answered, command):
    fleet = answered(kept, "/api/fleet")
    tiles, total = figures_of(fleet["tiles"]), command(HOUR_S, "spend")["total"]
    (cost,) = total["costs"]
    status = command(7 * DAY_S, "status")
    assert tiles == pytest.approx(
        {
            "Spend now": cost["cost"],
            "May 2026": tiles["May 2026"],
            "Unused now": cost["cost"] * cost["idle_share"],
            "Power": total["energy_j"] / HOUR_S,
            "Hosts": status["hosts"],
            "Coverage": total["coverage"],
        }
    )
    assert f"{status['silent']} silent: h04 for " in words(fleet["tiles"][4]["notes"])
    wanted = {one["model"]: one for one in command(HOUR_S, "compare")["models"]}
    units = values(fleet["units"], "Cost now")
    assert units.pop("encoder probe") == wanted["encoder"]["cost_per_inference"]
    for name, each in units.items():
        one = wanted[name.removesuffix(" service")]
        assert each == pytest.approx(one["cost_per_million_tokens_out"] / 1e6), name
    for by in ("host", "service", "label:rack"):
        spend = answered(kept, f"/api/spend?by={by}")["spend"]
        found = command(DAY_S, "spend", "--by", by)
        own = {" ".join(one["group"]): one["costs"][0]["cost"] for one in found["parts"]}
        for one in found["rest"] or ():
            own["(unallocated)"] = one["cost"]
        assert values(spend, "Cost") == pytest.approx(own)
        assert value(spend["total"]) == found["total"]["costs"][0]["cost"]
    table = answered(kept, "/api/map")["outliers"]
    (outlier,) = command(7 * DAY_S, "outliers")["outliers"]
    for head, key in (("Time", "time_excess_pct"), ("A month", "cost_per_month")):
        assert list(values(table, head).values()) == [pytest.approx(outlier[key])]


# Hours of the second role of a service over two hosts: all, from the ninth on, and since the day before.
DECODE_HOURS = (range(200), range(9, 200), range(25, 200))


def test_documents_of_the_page_are_as_recorded(stopped, answered):
    """Of each document the lines that none before it has; see `record_files`."""
    assumed, empty = stopped(FleetServer(RECIPE)), stopped(FleetServer(Recipe(hosts=0)))
    kept = assumed.reader.by_measurement
    for one in kept["device"]:
        one.fields["price_assumed"] = True
    kept["cost"] = [
        replace(one, tags={**one.tags, "plan": "assumed"}) if "probe" in one.tags else one
        for one in kept["cost"]
    ]
    whole = stopped(FleetServer(RECIPE))
    recorded = Recorded("fleet_page.txt")
    # The banner of a page is that of its map, once that is known.
    for name, server in (("a fleet", whole), ("assumed prices", assumed), ("no host", empty)):
        recorded.add(name, partial(answered, server))
    for hours in DECODE_HOURS:
        pools = (("h00", "prefill", range(200)), ("h01", "decode", hours))
        server = stopped(FleetServer(replace(RECIPE, pools=pools)))
        recorded.add(f"a role in {hours}", partial(answered, server))
    recorded.check()


def test_tiles_and_the_change_do_not_move_while_they_are_asked_for(kept, answered):
    fleet = answered(kept, "/api/fleet")
    names = ["Spend now", "This month", "Unused now", "Power", "Hosts", "Coverage"]
    assert [tile["name"] for tile in tiles(None, None, None, "asking")] == names
    assert [tile["name"] for tile in fleet["tiles"]] == [names[0], "May 2026", *names[2:]]
    units = kept.figures.get(Asked("units")).value
    waiting = banner(None, None, (), is_failing=False)
    none = FleetOutliers((), 40, 0)
    found = [banner(*given, (), is_failing=False) for given in ((None, units), (none, None))]
    assert found == [waiting, waiting]
    calm = words(banner(none, units, (), is_failing=False)["text"])
    assert calm == "llama-3.1-8b costs 3.1 % more than in the same hour a day before."
    assert banner(None, units, (), is_failing=True) != waiting


def test_failing_database_leaves_figures_with_their_age_and_many_pages_ask_once(
    stopped, answered, wait_until
):
    recipe = Recipe(hosts=2, gpus=1, sick={}, silent=(), days=(), every_s=600)
    server = stopped(FleetServer(recipe))
    answered(server, "/api/fleet")
    answered(server, "/api/map")
    asked = server.reader.asked
    for _ in range(5):
        server.json("/api/fleet")
    assert server.reader.asked == asked

    def now():
        return server.json("/api/fleet")["parts"]["now"]

    server.reader.error = "connection refused"
    server.clock.move(61)
    wait_until(lambda: now()["error"])
    assert (now()["age_s"], now()["error"]) == (61, "connection refused")
    assert value(server.json("/api/fleet")["tiles"][0]["big"]) == pytest.approx(2 * RATE_PER_H)
    server.reader.error, server.reader.problems = "", ("no answer from 10 to 11",)
    server.clock.move(RETRY_S)
    wait_until(lambda: not now()["error"])
    assert (now()["age_s"], now()["problems"]) == (0, ["no answer from 10 to 11"])


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
    check_outcomes("fleet_page_refused.json", kept.error)
    assert "default-src 'none'" in kept.request("/")[1]["Content-Security-Policy"]


def test_names_that_are_no_unicode_are_shown():
    document = {"host": "a\ud800", "model": "é"}
    body = json_response(document).body
    assert json.loads(body) == document
    assert "é" in body.decode()


def test_links_lead_to_host_names_only():
    query = "?field=probe.throughput_per_s&since=7d"
    cases = {
        ("h1.example.com", "gpu1"): f"http://h1.example.com:9470/{query}&device=gpu1",
        ("h1", ""): f"http://h1:9470/{query}",
        ("h1", "a&b"): f"http://h1:9470/{query}&device=a%26b",
        ("evil.com/", "gpu1"): None,
        ("user@evil", "gpu1"): None,
    }
    assert {case: host_link(HOST_URL, *case) for case in cases} == cases
    assert host_link(None, "h1", "gpu1") is None
