"""The wheel and its import packages, beside files of the same names as our source roots."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.core.records import Point

ROOT = Path(__file__).parents[2]
NOTEBOOK = """
import sys
from costprobe.client import open_store
with open_store() as store:
    assert store.measurements() == ["device"], store.measurements()
print(open_store.__code__.co_filename)
print(sorted({"click", "pydantic", "apscheduler", "torch"} & set(sys.modules)))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the tree without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.iterdir()
    return zipfile.ZipFile(path)


def test_wheel_contains_exactly_two_import_packages(wheel):
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in top if not name.endswith((".dist-info", ".data"))} == {
        "costprobe",
        "costprobe_probes",
    }
    tables = {
        f"costprobe/pricing/data/{name}.csv" for name in ("prices", "purchases", "gpus", "hosted")
    }
    assert tables <= set(wheel.namelist())
    names = {name.partition(".data/data/")[2] for name in wheel.namelist()}
    assert {
        "share/costprobe/systemd/costprobe.service",
        "share/costprobe/README.md",
        "share/costprobe/requirements.txt",
        "share/man/man1/costprobe.1",
    } <= names


def test_notebook_api_and_command_work_beside_foreign_agent_and_probes_modules(wheel, tmp_path):
    for name in ("agent.py", "probes.py"):
        (tmp_path / name).write_text("raise SystemExit('a foreign module was imported')\n")
    wheel.extractall(tmp_path / "site")
    store = Store.open(tmp_path / "state" / "costprobe" / "costprobe.db", SystemClock())
    store.append([Point("device", {"device": "gpu0"}, {"power_w": 300.0}, 1_780_000_000 * 10**9)])
    store.close()

    def run(*arguments):
        env = {"PYTHONPATH": "site", "XDG_STATE_HOME": str(tmp_path / "state"), "PATH": "/usr/bin"}
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    path, loaded = run("-c", NOTEBOOK)
    assert path == "site/costprobe/client.py" or path.endswith("/site/costprobe/client.py")
    assert loaded == "[]"
    assert run("-m", "costprobe", "--version")[0].startswith("costprobe, version")
