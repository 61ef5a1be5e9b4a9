"""Colours on terminals only, plots, and the live view in any width."""

import re
import time

import pytest
from costprobe.adapters.store.write import Store
from costprobe.ui.cli.support.output import colour_of, paint
from fakes.clock import FakeClock
from fakes.command import called
from fakes.incidents import incident
from fakes.reported import month
from fakes.terminal import on_terminal

COLOUR = re.compile(rb"\x1b\[[0-9;]*[1-9][0-9;]*m")
CONTROL = re.compile(rb"\x1b\[[?0-9;]*[a-zA-Z]")
# Commands that print colours for the host below.
COLOURED = (
    ("status",),
    ("alerts",),
    ("doctor",),
    ("trend", "--since", "2d"),
    ("compare", "--since", "2d"),
    ("store", "check"),
    ("status", "--watch"),
)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Two days of a small host, a firing incident, and the status of a stopped daemon."""
    path = month(tmp_path_factory.mktemp("terminal"), hours=49)
    # The doctor would import torch, which takes seconds.
    python = 'kind = "cnn"\npython = "/nowhere/python"'
    path.write_text(path.read_text().replace('kind = "cnn"', python))
    now_ns = time.time_ns()
    store = Store.open(path.parent / "costprobe.db", FakeClock(now_ns))
    found = incident(since_ns=now_ns - 90 * 10**9).to_document()
    store.put_state("alerts", {"alerts": [found], "silenced": [], "silences": []})
    store.put_state("status", _status())
    store.close()
    return path


def _status():
    """Return the status document of a stopped daemon."""
    return {
        "state": "stopped", "version": "0", "pid": 1, "host": "h", "started_ns": 1, "config": None,
        "config_fault": "bad", "devices": [], "probes": [], "services": [], "jobs": {},
        "sinks": {}, "notifiers": {}, "alerting": {}, "budgets": [], "http": {},
        "sensor": {"state": "stopped", "driver_version": None, "child_restarts": 0, "last_fault": None,
                   "devices": {}},
        "store": {"path": "x", "fault": None},
        "control": {"path": "x", "fault": None},
    }  # fmt: skip


def test_colours_are_printed_on_terminals_only(config):
    problems = []
    for words in COLOURED:
        if not COLOUR.search(on_terminal(config, *words)):
            problems.append(f"{words}: no colour on a terminal")
        piped = called(config, *words, code=None, env={"TERM": "xterm-256color"})
        if "\x1b" in piped.output or not piped.stdout:
            problems.append(f"{words}: {piped.output}")
    assert not problems, "\n".join(problems)


def test_no_color_is_honoured_by_click_and_plots(config):
    for words in (("alerts",), ("trend", "--since", "2d"), ("status", "--watch")):
        assert b"\x1b" not in on_terminal(config, *words, env={"NO_COLOR": "1"}.items()), words


def test_colours_are_off_by_option_and_on_with_an_empty_no_color(config):
    assert not COLOUR.search(on_terminal(config, "--no-color", "alerts"))
    assert COLOUR.search(on_terminal(config, "alerts", env={"NO_COLOR": ""}.items()))


def test_dumb_terminal_receives_plain_lines(config):
    seen = on_terminal(config, "status", "--watch", env={"TERM": "dumb"}.items(), stdin_too=True)
    assert b"gpu0" in seen
    assert b"\x1b" not in seen


def test_json_has_no_colours_on_a_terminal(config):
    assert b"\x1b" not in on_terminal(config, "alerts", "--json")


def test_colour_setting():
    assert colour_of({}, refused=False) is None
    assert colour_of({"NO_COLOR": ""}, refused=False) is None
    assert colour_of({"NO_COLOR": "0"}, refused=False) is False
    assert colour_of({"TERM": "dumb"}, refused=False) is False
    assert colour_of({}, refused=True) is False
    assert paint("x", "bad") != paint("x", "good") != "x"


def test_compare_plots_on_a_terminal_and_with_an_option(config):
    words = ("compare", "--since", "2d")
    assert "A ranker" in on_terminal(config, *words, env={"NO_COLOR": "1"}.items()).decode()
    assert "┤" not in on_terminal(config, *words, "--no-plot").decode()
    assert "┤" not in called(config, *words).stdout
    assert "┤" in called(config, *words, "--plot").stdout
