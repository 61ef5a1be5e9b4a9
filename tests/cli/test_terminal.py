"""Colours on a real terminal and nowhere else, plots, a live view in any width."""

import os
import re
import subprocess
import sys
import time

import pytest
from fakes.clock import FakeClock
from fakes.incidents import incident
from fakes.reported import month
from fakes.terminal import on_terminal
from rich.cells import cell_len

from agent.cli.colour import colour_of, paint
from agent.storage.reader import StoreReader
from agent.storage.writer import Store

COLOUR = re.compile(rb"\x1b\[[0-9;]*[1-9][0-9;]*m")
CONTROL = re.compile(rb"\x1b\[[?0-9;]*[a-zA-Z]")
# Commands with colours, each of which has some on the host below.
COLOURED = (
    ("status",),
    ("alerts",),
    ("doctor",),
    ("trend", "--since", "2d"),
    ("compare", "--since", "2d"),
    ("store", "check"),
    ("top", "--once"),
)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Two days of a small host, an incident that fires, and the status of a daemon that ended."""
    path = month(tmp_path_factory.mktemp("terminal"), hours=49)
    # The doctor has it import torch, which takes seconds where there is one.
    python = 'kind = "cnn"\npython = "/nowhere/python"'
    path.write_text(path.read_text().replace('kind = "cnn"', python))
    now_ns = time.time_ns()
    store = Store.open(path.parent / "infercost.db", FakeClock(now_ns))
    found = incident(since_ns=now_ns - 90 * 10**9).to_document()
    store.put_state("alerts", {"alerts": [found], "silenced": [], "silences": []})
    store.put_state("status", _status())
    store.close()
    return path


def _status():
    """As a daemon writes it that has ended."""
    return {
        "state": "stopped", "version": "0", "pid": 1, "host": "h", "started_ns": 1, "config": None,
        "config_fault": "bad", "devices": [], "probes": [], "services": [], "jobs": {},
        "sinks": {}, "notifiers": {}, "alerting": {}, "budgets": [], "http": {},
        "sensor": {"state": "stopped", "driver_version": None, "restarts": 0, "last_fault": None,
                   "devices": {}},
        "store": {"path": "x", "fault": None},
        "control": {"path": "x", "fault": None},
    }  # fmt: skip


@pytest.mark.parametrize("words", COLOURED, ids=" ".join)
def test_colours_are_for_terminals(config, words):
    assert COLOUR.search(on_terminal(config, *words))
    piped = subprocess.run(
        [sys.executable, "-m", "agent", "-c", str(config), *words],
        capture_output=True, check=False, env={**os.environ, "TERM": "xterm-256color"},
    )  # fmt: skip
    assert b"\x1b" not in piped.stdout + piped.stderr
    assert piped.stdout


@pytest.mark.parametrize("words", COLOURED, ids=" ".join)
def test_no_color_is_honoured(config, words):
    assert b"\x1b" not in on_terminal(config, *words, env={"NO_COLOR": "1"}.items())


@pytest.mark.parametrize("how", ["option", "dumb", "empty"])
def test_other_ways_to_want_none(config, how):
    option = ("--no-color",) if how == "option" else ()
    env = {"dumb": {"TERM": "dumb"}, "empty": {"NO_COLOR": ""}}.get(how, {})
    seen = on_terminal(config, *option, "alerts", env=env.items())
    # An empty NO_COLOR is as one that is not set.
    assert bool(COLOUR.search(seen)) is (how == "empty")


def test_a_dumb_terminal_is_written_to_line_by_line(config):
    seen = on_terminal(config, "top", env={"TERM": "dumb"}.items(), stdin_too=True)
    assert b"gpu0" in seen
    assert b"\x1b" not in seen


def test_json_on_a_terminal_is_plain_too(config):
    assert b"\x1b" not in on_terminal(config, "alerts", "--json")
    assert b"\x1b" not in on_terminal(config, "top", "--json")


def test_what_is_wanted_of_colours():
    assert colour_of({}, refused=False) is None
    assert colour_of({"NO_COLOR": ""}, refused=False) is None
    assert colour_of({"NO_COLOR": "0"}, refused=False) is False
    assert colour_of({"TERM": "dumb"}, refused=False) is False
    assert colour_of({}, refused=True) is False
    assert paint("x", "bad") != paint("x", "good") != "x"


@pytest.mark.parametrize("columns", [24, 40, 60, 80, 120, 200])
def test_the_live_view_fits_any_terminal(config, columns):
    seen = on_terminal(config, "top", "--once", columns=columns)
    lines = CONTROL.sub(b"", seen).decode().splitlines()
    assert max(cell_len(line.rstrip()) for line in lines) <= columns
    text = "\n".join(lines)
    for word in ("RUNNING", "gpu0", "ranker", "now"):
        assert word in text
    assert ("SM clock" in text) is (columns >= 60)


def test_the_live_view_needs_no_daemon(tmp_path):
    config = month(tmp_path, hours=2)
    done = subprocess.run(
        [sys.executable, "-m", "agent", "-c", str(config), "top", "--once"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "no daemon has written its status" in done.stdout
    assert "gpu0" in done.stdout
    StoreReader.open(tmp_path / "infercost.db").close()


def test_a_plot_has_colours_or_marks_that_differ(config):
    coloured = on_terminal(config, "trend", "--since", "2d")
    assert len(set(re.findall(rb"\x1b\[(3\d)m\xe2[\xa0-\xa3]", coloured))) == 2
    assert len(set(re.findall(rb"\x1b\[3\dm\xe2\x94\x80", coloured))) == 2
    plain = on_terminal(config, "trend", "--since", "2d", env={"NO_COLOR": "1"}.items()).decode()
    assert {"── gpu0 encoder", "xx gpu0 ranker"} <= {
        line[:15].rstrip() for line in plain.splitlines()
    }
    # Costs of two bases stand in two plots.
    assert "cost_per_inference probe EUR" in plain
    assert "cost_per_inference serving EUR" in plain
    assert b"\xe2\x94\xa4" not in on_terminal(config, "trend", "--since", "2d", "--no-plot")


def test_compare_draws_on_a_terminal_and_where_it_is_asked_to(config):
    words = ("compare", "--since", "2d")
    assert "A ranker" in on_terminal(config, *words, env={"NO_COLOR": "1"}.items()).decode()
    assert "┤" not in on_terminal(config, *words, "--no-plot").decode()
    for more, draws in (((), False), (("--plot",), True)):
        piped = subprocess.run(
            [sys.executable, "-m", "agent", "-c", str(config), *words, *more],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert ("┤" in piped.stdout) is draws
