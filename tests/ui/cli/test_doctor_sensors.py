"""What doctor reports of the sensors: every fault, with the fix of its own kind."""

import pynvml
from costprobe.configuration import Config
from costprobe.ui.cli.support import checks
from fakes.nvml import FakeNvml


def test_deprecated_package_is_named_with_its_removal(tmp_path, monkeypatch):
    """The folder of the package `pynvml` hides nvidia-ml-py's file of that name."""
    package = tmp_path / "site/pynvml/__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text(f"exec(open({pynvml.__file__!r}).read())")
    environment = {**FakeNvml(tmp_path).env(), "PYTHONPATH": str(package.parents[1])}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = {check.name: check for check in checks.sensor_checks(Config(), tmp_path / "none.db")}
    assert found["sensor"].state == "bad"
    assert "DEPRECATED_PACKAGE" in found["sensor"].detail
    assert str(package) in found["sensor"].fix
    assert "-m pip uninstall pynvml`" in found["sensor"].fix
    assert found["device gpu0"].state == "good"


def test_rapl_that_does_not_advance_is_no_energy_source(tmp_path):
    counter = tmp_path / "intel-rapl:0/energy_uj"
    counter.parent.mkdir()
    counter.write_text("1000000\n")
    check = checks.rapl_check(tmp_path)
    assert check.state == "note"
    assert "does not advance" in check.detail
