"""The systemd unit: systemd finds nothing wrong with it, and little to expose."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agent.config_file import parse

SYSTEMD = Path(__file__).parents[2] / "systemd"
UNITS = ("infercost.service", "infercost-dashboard.service")
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


@pytest.mark.parametrize("name", UNITS)
def test_systemd_has_nothing_to_say_of_the_unit(analyze, tmp_path, name):
    # Its program is not installed here, which is all that it might complain of.
    unit = tmp_path / name
    text = (SYSTEMD / name).read_text()
    unit.write_text(text.replace("/opt/infercost/bin/infercost", "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", UNITS)
def test_its_exposure_is_low(analyze, name):
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


def test_the_example_configuration_is_good_with_and_without_its_examples():
    text = (SYSTEMD / "infercost.toml.example").read_text()
    assert parse(text, None).probe[0].name == "transformer"
    # Every key that is commented out is one that there is.
    full = re.sub(r"^# (?=(\[|[a-z_]+ +=))", "", text, flags=re.MULTILINE)
    assert full != text
    config = parse(full.replace("module = ", "# module = "), None)
    assert config.sink[0].bucket == "infercost"
    assert config.price[0].plan == "on_demand"
    assert config.notifier[0].kind == "alertmanager"
