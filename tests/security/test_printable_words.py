"""The output of servers and commands is printed without terminal escape sequences."""

import sys

import pytest
from costprobe.adapters.clouds.source import SourceError, read_source
from costprobe.pricing.plans import SpotPlan

ESCAPES = "gone\x1b[2J\x1b]0;title\x07 \x9b31m\r\n\x00there\u202e"


@pytest.mark.processes
def test_output_of_a_price_command_is_shown_as_one_printable_line():
    program = f"import sys; sys.exit({ESCAPES!r})"
    plan = SpotPlan(plan="spot", command=(sys.executable, "-c", program))
    with pytest.raises(SourceError) as caught:
        read_source(plan)
    assert str(caught.value).isprintable()
    assert "there" in str(caught.value)
