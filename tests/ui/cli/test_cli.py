"""The command line: import time, exit codes and error messages."""

import json
import os
import subprocess
import sys
import tomllib

import pynvml
import pytest
from costprobe.adapters.store.write import Store
from costprobe.configuration import Config, parse
from costprobe.core.clock import SystemClock
from costprobe.core.line_protocol import render
from costprobe.ui.cli.main import COMMANDS
from costprobe.ui.cli.support import checks
from fakes import rows
from fakes.amdsmi import FakeAmdsmi
from fakes.cli import NOW_S, session
from fakes.documents import checked
from fakes.nvml import FakeNvml

S = 1_000_000_000
NOT_SUPPORTED = 3


# Words on the command line, and what they must not import, because it takes longer than all the rest.
SLOW = {"torch", "influxdb_client", "pydantic", "apscheduler", "plotext", "pynvml"}
IMPORTS = (
    (("--help",), SLOW | {"sqlite3"}),
    (("trend", "--help"), SLOW),
    (("status", "--fleet", "--help"), {"sqlite3", "costprobe.configuration"}),
)


def test_commands_import_only_what_they_need():
    for words, slow in IMPORTS:
        command = [sys.executable, "-X", "importtime", "-m", "costprobe", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert "costprobe.ui.cli.main" in imported
        assert not slow & imported, words
        if words == ("--help",):
            assert all(f"  {name} " in done.stdout for name in COMMANDS)


@pytest.mark.usefixtures("stopped")
def test_trend_and_export_have_every_value_of_the_chosen_series_and_time(costprobe):
    """Three hours of costs of two probes, ending now."""
    points = [
        rows.run_cost(
            {"host": "h", "device": "gpu0", "probe": probe},
            (NOW_S - (180 - minute) * 60) * S,
            (1 + minute / 180) * scale,
        )
        for probe, scale in (("cnn", 1e-6), ("encoder", 2e-6))
        for minute in range(0, 180, 30)
    ]
    costprobe.append(points)
    session("export", costprobe.config)
    lines = costprobe("export", "--format", "line").splitlines()
    assert sorted(lines) == sorted(map(render, points))


def test_status_of_another_version_is_shown_as_far_as_possible(costprobe, tmp_path):
    store = Store.open(tmp_path / "costprobe.db", SystemClock())
    status = {"host": "h", "state": "running", "pid": os.getpid(), "version": "0.0.1"}
    store.put_state("status", status)
    printed = costprobe("status")
    assert "the rest needs version 0.0.1" in printed
    assert "the daemon is 0.0.1, this command is" in printed
    (fault,) = json.loads(costprobe("status", "--watch", "--json"))["faults"]
    assert "another version" in fault
    store.put_state("status", {**status, "state": "stopped"})
    assert "restart" not in costprobe("status", code=3)
    store.close()


def test_config_check_and_show(costprobe):
    costprobe.write('[[probe]]\nname = "x"\nevery = "90s"\n')
    assert "good (1 probe, 0 price plans, 0 rules, 0 notifiers)" in costprobe("config", "check")
    shown = costprobe("config", "show")
    assert tomllib.loads(shown)["probe"][0]["every"] == "90s"
    assert parse(shown, costprobe.config).probe[0].every_s == 90


@pytest.mark.processes
def test_config_init_writes_a_valid_file_and_keeps_an_existing_one(costprobe, tmp_path):
    path = tmp_path / "new" / "costprobe.toml"
    assert str(path) in costprobe("config", "init", str(path))
    written = parse(path.read_text(), path)
    assert written.probe[0].name == "transformer"
    assert len(written.price) == 1
    assert "already exists" in costprobe("config", "init", str(path), code=2)
    costprobe("config", "init", "--force", str(path))
    assert parse(costprobe("config", "init", "-"), path) == written


@pytest.fixture
def doctor(costprobe, monkeypatch):
    """Runs the doctor in an environment; returns its checks by name."""

    def run(env=(), code=0):
        for name, value in dict(env).items():
            monkeypatch.setenv(name, value)
        document = checked("doctor", costprobe("doctor", "--json", code=code))
        return {check["name"]: check for check in document}

    return run


@pytest.mark.processes
def test_doctor_runs_all_checks(costprobe, doctor):
    costprobe.write(
        '[[probe]]\nname = "x"\npython = "/nowhere/python"\n'
        '[[sink]]\napi = "v1"\nurl = "http://127.0.0.1:9"\ndatabase = "d"\n'
    )
    found = doctor(code=1)
    bad = {name for name, check in found.items() if check["state"] == "bad"}
    assert bad >= {"torch under /nowhere/python", "sink influxdb"}
    assert all(found[name]["fix"] for name in bad)
    assert {"configuration", "NVIDIA driver", "store", "clock"} <= set(found)
    assert "fix: " in costprobe("doctor", code=1)


def test_doctor_fails_for_a_driver_that_finds_no_gpu(doctor, tmp_path):
    (tmp_path / "library").mkdir()
    (tmp_path / "library/libnvidia-ml.so.1").touch()
    env = {"LD_LIBRARY_PATH": str(tmp_path / "library"), "NVIDIA_VISIBLE_DEVICES": "all"}
    driver = doctor(env, code=1)["NVIDIA driver"]
    assert (driver["state"], "file too short" in driver["detail"]) == ("bad", True)


def test_doctor_names_the_versions_of_amd_smi_that_are_known(doctor, tmp_path):
    fake = FakeAmdsmi(tmp_path)
    fake.set_version(24, 7, 1, 0)
    found = doctor(fake.env(), code=1)
    assert found["AMD driver"]["state"] == "bad"
    assert "install version 25 to 27" in found["AMD driver"]["detail"]
    assert "NVIDIA driver" not in found


def test_doctor_explains_persistence_mode(doctor, tmp_path):
    fake = FakeNvml(tmp_path, gpus=2)
    check = doctor(fake.env())["persistence mode"]
    assert (check["state"], check["detail"]) == ("good", "on for 2 GPUs")
    fake.fail("nvmlDeviceGetPersistenceMode", NOT_SUPPORTED, gpu=0)
    fake.gpus[1].set(persistence_mode=0)
    check = doctor()["persistence mode"]
    assert (check["state"], check["detail"].partition(":")[0]) == ("note", "off for gpu1")
    assert "nvidia-persistenced" in check["fix"]
    assert "nvidia-smi -pm 1" in check["fix"]


def test_deprecated_package_is_named_with_its_removal(tmp_path, monkeypatch):
    """The folder of the package `pynvml` hides nvidia-ml-py's file of that name."""
    package = tmp_path / "site/pynvml/__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text(f"exec(open({pynvml.__file__!r}).read())")
    environment = {**FakeNvml(tmp_path).env(), "PYTHONPATH": str(package.parents[1])}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = {check.name: check for check in checks.sensor_checks(Config(), tmp_path / "none.db")}
    sensor = found["sensor"]
    assert (sensor.state, "DEPRECATED_PACKAGE" in sensor.detail) == ("bad", True)
    assert str(package) in sensor.fix
    assert "-m pip uninstall pynvml`" in sensor.fix
    assert found["device gpu0"].state == "good"


def test_rapl_that_does_not_advance_is_no_energy_source(tmp_path):
    counter = tmp_path / "intel-rapl:0/energy_uj"
    counter.parent.mkdir()
    counter.write_text("1000000\n")
    check = checks.rapl_check(tmp_path)
    assert check.state == "note"
    assert "does not advance" in check.detail
