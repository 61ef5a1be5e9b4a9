"""A sink that only the table names runs in a daemon: the example of the contributors' page."""

import os
import subprocess
import sys

import pytest
from costprobe.adapters.store.read import StoreReader
from costprobe.core.line_protocol import render
from costprobe.core.schema import SCHEMA
from fakes.daemon import DaemonProcess
from fakes.page_examples import example
from fakes.scenes import QUICK

REGISTER = """
from costprobe.delivery.kinds import SINKS, SinkKind
from file_sink import FileSink, FileSinkConfig
SINKS["file"] = SinkKind(FileSinkConfig, FileSink)
"""


def stored_lines(path):
    reader = StoreReader.open(path)
    try:
        return {render(point) for name in SCHEMA for point in reader.points(name, 0, 2**62)}
    finally:
        reader.close()


def is_drained(path):
    reader = StoreReader.open(path)
    try:
        return all(sink.backlog.points == 0 for sink in reader.sinks())
    finally:
        reader.close()


@pytest.fixture
def daemon_with(tmp_path):
    """Return a factory of daemons that import a module at start."""
    made = []

    def make(modules):
        made.append(DaemonProcess(tmp_path, {"PYTHONPATH": str(modules)}))
        return made[-1]

    yield make
    for daemon in made:
        daemon.stop()


def output_of(daemon, modules, *arguments):
    """Return the output of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "costprobe", "--config", str(daemon.config), *arguments],
        env={**os.environ, "PYTHONPATH": str(modules)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_daemon_delivers_to_a_sink_that_only_the_table_names(daemon_with, tmp_path):
    modules, series = tmp_path / "modules", tmp_path / "series.lp"
    modules.mkdir()
    (modules / "file_sink.py").write_text(example("sinks.md", "file_sink.py"))
    # What a contributor adds to the table; Python imports it at its start.
    (modules / "sitecustomize.py").write_text(REGISTER)
    daemon = daemon_with(modules)
    sink = example("sinks.md", "file.toml").replace("series.lp", str(series))
    daemon.start(QUICK + sink)
    daemon.wait_for(lambda: daemon.points("agent") and series.exists())
    assert f"{series} can be written" in output_of(daemon, modules, "doctor")
    daemon.write("[telemetry]\ngpus = false\ncpu = false\n" + sink)
    daemon.signal(1)
    daemon.wait_for(lambda: "reloaded" in daemon.output.read_text())
    daemon.wait_for(lambda: is_drained(daemon.store))
    daemon.stop()
    sent = set(series.read_text().splitlines())
    assert sent <= stored_lines(daemon.store)
    assert {line.split(",")[0] for line in sent} >= {"agent"}

    daemon.write(sink.replace('"file"', '"other"'))
    assert "write one of v1, v2, otlp, file" in output_of(daemon, modules, "config", "check")
