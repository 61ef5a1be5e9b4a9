"""What most tests of commands begin with."""

import pytest
from fakes.cli import Cli, stopped_clock
from fakes.command import called


@pytest.fixture
def costprobe(tmp_path):
    """A store and a configuration of its own; called with the words of a command."""
    return Cli(tmp_path)


@pytest.fixture
def stopped():
    """The wall clock stands at NOW_S, in UTC."""
    with stopped_clock():
        yield


@pytest.fixture
def on_sink(tmp_path):
    """Runs a command with a sink, of which the lines are given; returns its output."""

    def run(sink, *words, code=0):
        config = tmp_path / "costprobe.toml"
        config.write_text("[[sink]]\n" + "".join(f"{line}\n" for line in sink))
        return called(config, *words, code=code).output

    return run
