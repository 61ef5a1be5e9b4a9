"""The arguments for pip, and the wheel of the running program."""

import zipfile
from importlib.metadata import PackageNotFoundError, PathDistribution
from pathlib import Path

import pytest
from costprobe.ui.cli.support import service_venv
from costprobe.ui.cli.support.service_files import StepError
from costprobe.ui.cli.support.service_venv import (
    CPU_BUILD,
    pip_arguments,
    running_wheel,
    torch_requirement,
)

ROOT = Path(__file__).parents[2]


def test_dependencies_are_installed_by_their_hashes(tmp_path):
    venv, wheel = tmp_path / "venv", "/x/costprobe-1.2.3-py3-none-any.whl"
    lock = f"{venv}/share/costprobe/requirements.txt"
    hashed = ["--no-warn-conflicts", "--require-hashes", "--requirement", lock]
    upgrade = ["--upgrade", "--no-deps"]
    expected = {
        (wheel, None): [[*upgrade, wheel], hashed],
        (wheel, "1.2.2"): [[*upgrade, wheel], hashed],
        (wheel, "1.2.3"): [["--force-reinstall", "--no-deps", wheel], hashed],
        (f"{wheel}[forecast]", "1.2.3"): [
            ["--force-reinstall", "--no-deps", f"{wheel}[forecast]"],
            hashed,
            [f"{wheel}[forecast]"],
        ],
        # Before a build, because the lock contains the build backend.
        (str(tmp_path), "1.2.3"): [
            ["--require-hashes", "--requirement", f"{tmp_path}/requirements/run.txt"],
            ["--no-deps", "--no-build-isolation", str(tmp_path)],
        ],
    }
    assert {case: pip_arguments(venv, *case) for case in expected} == expected


def test_pytorch_build_is_that_of_the_running_program_or_of_the_host(monkeypatch, tmp_path):
    module = "costprobe.ui.cli.support.service_venv.version"
    monkeypatch.delenv("COSTPROBE_TORCH", raising=False)
    monkeypatch.setattr(module, lambda _: "2.13.0")
    assert torch_requirement() == ["torch==2.13.0"]
    # PyPI has no version with a local label: it cannot replace this one by its CUDA build.
    monkeypatch.setattr(module, lambda _: "2.13.0+cpu")
    *options, requirement = torch_requirement()
    assert requirement == "torch==2.13.0+cpu"
    assert options[-2:] == ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]

    def missing(_):
        raise PackageNotFoundError

    monkeypatch.setattr(module, missing)
    driver = tmp_path / "version"
    monkeypatch.setattr(service_venv, "_DRIVER", (driver,))
    cpu = torch_requirement()
    assert cpu == ["--extra-index-url", "https://download.pytorch.org/whl/cpu", CPU_BUILD]
    assert f"cpu_build={CPU_BUILD}\n" in (ROOT / "scripts/setup").read_text()
    driver.touch()
    assert torch_requirement() == ["torch"]
    monkeypatch.setenv("COSTPROBE_TORCH", "torch==2.9.1 --index-url https://mirror/cu128")
    assert torch_requirement() == ["torch==2.9.1", "--index-url", "https://mirror/cu128"]


@pytest.fixture
def installation(tmp_path, monkeypatch):
    """An installed distribution in a virtual environment, as pip leaves it."""
    site = tmp_path / "lib/python3.11/site-packages"
    info = site / "costprobe-1.2.3.dist-info"
    package, meta = "lib/python3.11/site-packages/costprobe", "costprobe-1.2.3.dist-info"
    files = {
        f"{package}/__init__.py": "__version__ = '1.2.3'\n",
        f"{package}/__pycache__/__init__.cpython-311.pyc": "code",
        f"{package}_probes/__init__.py": "",
        f"{site.relative_to(tmp_path)}/{meta}/METADATA": "Name: costprobe\nVersion: 1.2.3\n",
        f"{site.relative_to(tmp_path)}/{meta}/INSTALLER": "pip\n",
        "share/costprobe/systemd/costprobe.service": "[Unit]\n",
        "bin/costprobe": "#!/usr/bin/python3\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    prefix = "lib/python3.11/site-packages/"
    names = [
        name.removeprefix(prefix) if name.startswith(prefix) else f"../../../{name}"
        for name in files
    ]
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    monkeypatch.setattr(service_venv, "distribution", lambda _: PathDistribution(info))
    monkeypatch.setattr(service_venv.sysconfig, "get_path", lambda _: str(tmp_path))
    return tmp_path


def test_wheel_of_the_running_program_contains_its_own_files(installation, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    path = running_wheel(folder)
    assert path.name == "costprobe-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(path) as wheel:
        assert set(wheel.namelist()) == {
            "costprobe/__init__.py",
            "costprobe_probes/__init__.py",
            "costprobe-1.2.3.dist-info/METADATA",
            "costprobe-1.2.3.dist-info/RECORD",
            "costprobe-1.2.3.data/data/share/costprobe/systemd/costprobe.service",
        }
        record = wheel.read("costprobe-1.2.3.dist-info/RECORD").decode()
    assert "costprobe/__init__.py,sha256=" in record


def test_incomplete_installation_is_an_error(installation, tmp_path):
    (installation / "lib/python3.11/site-packages/costprobe/__init__.py").unlink()
    with pytest.raises(StepError, match="install costprobe again"):
        running_wheel(tmp_path)
    (installation / "lib/python3.11/site-packages/costprobe-1.2.3.dist-info/RECORD").write_text("")
    with pytest.raises(StepError, match="no record of its files"):
        running_wheel(tmp_path)
