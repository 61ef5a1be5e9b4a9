"""The manual page matches the help texts of the commands."""

import subprocess
import sys
from pathlib import Path

from costprobe.ui.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[3]


def test_manual_page_is_up_to_date():
    made = subprocess.run(
        [sys.executable, "scripts/man", "-"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert made == (ROOT / "man" / "costprobe.1").read_text(), "run scripts/man"
    for name in COMMANDS:
        assert f'.SS "{name} ' in made
