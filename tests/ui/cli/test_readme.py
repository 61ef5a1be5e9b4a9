"""The README's commands run as written, in the order in which a new user types them."""

import re

import pytest
from docs.docs_pages import BIN, ROOT, Terminal, commands, section
from fakes.documents import checked

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def terminal(tmp_path):
    """A shell with job control, in which `type` runs a line with the installed scripts."""
    terminal = Terminal(tmp_path)
    # One torch thread: a second one would slow down the tests in parallel.
    terminal.type("set -m; export OMP_NUM_THREADS=1")
    yield terminal
    terminal.close()


def lines_of(heading):
    text = section("../README.md", f"## {heading}")
    return [line.replace(".venv/bin/", f"{BIN}/") for line in commands(text)]


def run_until(terminal, line, words):
    """Run a command in the background until it has printed some words."""
    terminal.type(f"{line} >output 2>&1 &")
    terminal.until("output", words)


def interrupt(terminal):
    terminal.type("kill -INT %1")
    assert "Traceback" not in terminal.until("output", "stopped")


def test_try_it(terminal):
    first, *rest, last = lines_of("Try it")
    assert (first, last) == ("make run", "make test")
    assert [line.split()[1] for line in rest] == ["status", "trend", "export", "probe"]
    # The environment of the clone is the one that the tests run in.
    run_until(terminal, f"make -C {ROOT} run VENV={BIN.parent}", "per million")
    assert all(terminal.type(line) for line in rest[:-1])
    interrupt(terminal)


@pytest.mark.soak
def test_probe_from_the_shell_needs_no_daemon(terminal):
    *_, probe, _ = lines_of("Try it")
    assert checked("probe", terminal.type(probe))["energy"]["energy_per_inference_j"] > 0


def test_five_minutes_to_influxdb(terminal, tmp_path):
    init, check, doctor, daemon = lines_of("Five minutes to InfluxDB")
    terminal.type(init)
    file = tmp_path / "costprobe.toml"
    # Of a user who may not write the service's store it is one of the user's own.
    place = r'^(# )?\[store\]\n(# )?path = "/.*/costprobe\.db"'
    own = f'[store]\npath = "{tmp_path}/costprobe.db"'
    text, replaced = re.subn(place, own, file.read_text(), flags=re.MULTILINE)
    assert replaced == 1
    file.write_text(text)
    assert "good" in terminal.type(check)
    # A warning about an unsynchronized clock or little disk space is no failure.
    assert "torch under" in terminal.type(f"{doctor} || true")
    run_until(terminal, daemon, "store: ")
    interrupt(terminal)
