"""Nothing is imported from the working directory, which may belong to another user.

An administrator who runs `costprobe doctor` in /tmp must not run what another user left there.
"""

import os
import subprocess
import sys

# The first imports of the children: our modules, the standard library and others.
NAMES = ["apprise", "faulthandler", "json", "runpy", "torch", "urllib"]
# Starts the sensor, the check of torch, a probe, a probe of a server, and a notifier's child.
STARTS = """
import sys
from pathlib import Path
from costprobe.adapters.http.errors import RetryLater
from costprobe.adapters.probe_child.runner import LOAD_COMMAND, ProbeChild, worker_command
from costprobe.configuration import demo_config
from costprobe.delivery.apprise import Apprise, AppriseConfig
from costprobe.ui.cli.support.checks import torch_checks
from costprobe.ui.cli.support.discovery import discovered_devices
from fakes.incidents import incident
from fakes.probe_requests import probe_request
discovered_devices()
list(torch_checks(demo_config().probe))
for command in (worker_command(sys.executable), LOAD_COMMAND):
    child = ProbeChild(command, {})
    child.send(probe_request("module", dtype=None, module="own:make").to_wire())
    child.messages.get(timeout=60)
    child.kill()
Path("url").write_text("json://127.0.0.1:9/x")
config = AppriseConfig(name="n", kind="apprise", url=f"file:{Path.cwd()}/url")
try:
    Apprise(config).send([incident()], 1)
except RetryLater:
    print("all started")
"""


def test_child_imports_nothing_from_the_working_folder(tmp_path):
    note = tmp_path / "note"
    trap = f"open({str(note)!r}, 'a').write(__name__ + ' ')\n"
    for name in (*NAMES, "own", "costprobe/__init__", "costprobe_probes/__init__"):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(trap)
    # An installed script runs without the working directory on the import path.
    command = [sys.executable, "-P", "-c", STARTS]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout == "all started\n", done.stderr
    assert not note.exists(), note.read_text()
