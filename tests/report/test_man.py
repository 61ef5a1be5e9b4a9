"""The manual page says what the commands themselves say."""

import subprocess
import sys
from pathlib import Path

from agent.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_not_stale():
    made = subprocess.run(
        [sys.executable, "scripts/man", "-"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert made == (ROOT / "man" / "infercost.1").read_text(), "run scripts/man"
    for name in COMMANDS:
        assert f'.SS "{name} ' in made
