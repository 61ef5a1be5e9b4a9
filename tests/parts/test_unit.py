"""The systemd unit: systemd finds nothing wrong with it, and little to expose."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "systemd" / "infercost.service"
# The highest exposure that is allowed, times ten.
EXPOSURE = 14


@pytest.fixture(scope="module")
def analyze():
    """systemd-analyze; without one the tests are skipped, and fail where CI=true."""
    found = shutil.which("systemd-analyze")
    if found is None:
        reason = "the unit is checked by systemd-analyze: apt-get install systemd"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def test_systemd_has_nothing_to_say_of_the_unit(analyze, tmp_path):
    # Its program is not installed here, which is all that it might complain of.
    unit = tmp_path / UNIT.name
    text = UNIT.read_text()
    command = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    unit.write_text(text.replace(command, "ExecStart=/bin/true"))
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_its_exposure_is_low(analyze):
    done = subprocess.run(
        [
            analyze,
            "security",
            "--offline=true",
            f"--threshold={EXPOSURE}",
            "--json=short",
            str(UNIT),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    open_doors = [check["name"] for check in json.loads(done.stdout) if check["set"] is False]
    assert done.returncode == 0, open_doors


def test_it_waits_for_readiness_and_is_watched():
    keys = dict(
        line.split("=", 1)
        for line in UNIT.read_text().splitlines()
        if "=" in line and not line.startswith("#")
    )
    assert keys["Type"] == "notify"
    assert keys["WatchdogSec"] == "60s"
    assert keys["TimeoutStopSec"] == "10s"
    assert keys["DynamicUser"] == "yes"
