"""The systemd units: valid, with a low exposure."""

import json
import subprocess
from pathlib import Path

import pytest
from fakes.programs import require

SYSTEMD = Path(__file__).parents[2] / "systemd"
UNITS = ("costprobe.service", "costprobe-dashboard.service", "costprobe-fleet.service")
# The highest accepted exposure, times ten.
EXPOSURE = 14


@pytest.fixture(scope="module")
def analyze():
    return require("systemd-analyze")


@pytest.mark.parametrize("name", UNITS)
def test_systemd_reports_no_problem_of_the_unit(analyze, tmp_path, name):
    # The unit's program is not installed here: the only problem that may be reported.
    unit = tmp_path / name
    text = (SYSTEMD / name).read_text()
    unit.write_text(text.replace("/opt/costprobe/bin/costprobe", "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", UNITS)
def test_exposure_of_the_unit_is_low(analyze, name):
    done = subprocess.run(
        [
            analyze,
            "security",
            "--offline=true",
            f"--threshold={EXPOSURE}",
            "--json=short",
            str(SYSTEMD / name),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    open_doors = [check["name"] for check in json.loads(done.stdout) if check["set"] is False]
    assert done.returncode == 0, open_doors
