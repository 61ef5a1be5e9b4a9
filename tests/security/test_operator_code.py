"""A module of the user runs in a probe child, and nowhere else."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from fakes.watched_daemon import WatchedDaemon

# Records the process that imports it, then defines a model.
MODULE = """
import json, os, sys
from pathlib import Path

NOTES = Path(__file__).with_name("notes")
with NOTES.open("a") as notes:
    notes.write(json.dumps({
        "pid": os.getpid(),
        "parent": os.getppid(),
        "group": os.getpgid(0),
        "session": os.getsid(0),
        "uid": os.geteuid(),
        "environ": dict(os.environ),
        "files": {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                  if os.path.exists(f"/proc/self/fd/{fd}")},
        "modules": [name for name in sys.modules if name.partition(".")[0] == "costprobe"],
    }) + "\\n")

import torch

def make():
    return torch.nn.Linear(8, 8), (torch.zeros(1, 8),)
"""
CONFIG = """
[telemetry]
every = "50ms"
gpus = false
[probing]
duty = 1
[[probe]]
name = "own"
kind = "module"
module = "operators_own:make"
batch = 1
energy = false
sample_cap = "1s"
every = "1h"
threads = 1
when_busy = "run"
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The daemon after a run of the module, and the module's records."""
    folder = tmp_path_factory.mktemp("operator")
    own = folder / "own"
    own.mkdir()
    (own / "operators_own.py").write_text(MODULE)
    path = os.pathsep.join([str(own), os.environ.get("PYTHONPATH", "")])
    secrets = {"CREDENTIALS_DIRECTORY": str(folder), "DB_PASSWORD": "canary", "OMP_DYNAMIC": "1"}
    with WatchedDaemon(folder, CONFIG, {"PYTHONPATH": path, **secrets}) as daemon:
        daemon.wait_for(lambda: "own  batch 1" in daemon.output.read_text())
        for command in ("config check", "doctor"):
            daemon.look(*command.split(), code=None)
        daemon.maps = Path(f"/proc/{daemon.pid}/maps").read_text()
        daemon.group = os.getpgid(daemon.pid)
    daemon.notes = [json.loads(line) for line in (own / "notes").read_text().splitlines()]
    return daemon


def test_module_is_imported_once_by_one_child_and_not_by_the_daemon(ran):
    (note,) = ran.notes
    assert note["parent"] == ran.pid
    assert note["pid"] != ran.pid
    assert b"probes" in ran.seen[note["pid"]].command
    assert "operators_own" not in ran.maps
    assert "torch" not in ran.maps


def test_child_has_the_user_of_the_service_a_session_of_its_own_and_no_code_of_the_daemon(ran):
    (note,) = ran.notes
    assert note["uid"] == os.geteuid()
    assert note["group"] == note["session"] == note["pid"]
    assert note["group"] != ran.group
    assert note["modules"] == []
    listed = subprocess.run(["ps", "-eo", "pgid="], capture_output=True, text=True, check=True)
    assert str(note["group"]) not in listed.stdout.split()


def test_module_receives_measurement_variables_no_secret_and_no_open_file(ran):
    (note,) = ran.notes
    assert note["environ"]["OMP_DYNAMIC"] == "1"
    assert "PATH" in note["environ"]
    assert not {"CREDENTIALS_DIRECTORY", "DB_PASSWORD"} & note["environ"].keys()
    held = note["files"].values()
    assert {"0", "1", "2"} <= note["files"].keys()
    # Its pipes to the daemon and the files of its own libraries.
    assert not [name for name in held if name.startswith("socket:")]
    assert not [name for name in held if str(ran.folder / "state") in name]
