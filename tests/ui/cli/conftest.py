"""What most tests of commands begin with."""

import pytest
from fakes.cli import Cli


@pytest.fixture
def costprobe(tmp_path):
    """A store and a configuration of its own; called with the words of a command."""
    return Cli(tmp_path)
