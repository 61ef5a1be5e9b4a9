"""Nothing is imported from the working directory, which may belong to another user.

An administrator who runs `costprobe doctor` in /tmp must not run what another user left there.
"""

import os
import subprocess
import sys

import pytest

# The first imports of the children: our modules, the standard library and others.
NAMES = ["apprise", "faulthandler", "json", "runpy", "torch", "urllib"]
PREPARE = "import logging, sys\nfrom pathlib import Path\n"
STARTS = {
    "the sensor": """
from costprobe.ui.cli.support.discovery import discovered_devices
discovered_devices()
""",
    "the check of torch": """
from costprobe.ui.cli.support.checks import torch_checks
from costprobe.configuration import demo_config
print(list(torch_checks(demo_config().probe)))
""",
    "a probe": """
from costprobe.adapters.probe_child.runner import ProbeChild, worker_command
from fakes.probe_requests import probe_request
child = ProbeChild(worker_command(sys.executable), {})
child.send(probe_request("module", dtype=None, module="own:make").to_wire())
print(child.messages.get(timeout=60))
child.kill()
""",
    "a probe of a server": """
from costprobe.adapters.probe_child.runner import LOAD_COMMAND, ProbeChild
child = ProbeChild(LOAD_COMMAND, {})
print(child.messages.get(timeout=60))
child.kill()
""",
    "a message": """
from costprobe.delivery.apprise import AppriseConfig
from costprobe.delivery.apprise import Apprise
from costprobe.adapters.http.errors import RetryLater
from fakes.incidents import incident
Path("url").write_text("json://127.0.0.1:9/x")
try:
    Apprise(AppriseConfig(name="n", kind="apprise", url=f"file:{Path.cwd()}/url")).send([incident()], 1)
except RetryLater as error:
    print(error)
""",
}


@pytest.fixture
def trapped(tmp_path):
    """A folder of modules that each write a file when imported."""
    note = tmp_path / "note"
    trap = f"open({str(note)!r}, 'a').write(__name__ + ' ')\n"
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(trap)
    for package in ("costprobe", "costprobe_probes"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(trap)
    (tmp_path / "own.py").write_text(trap)
    return tmp_path


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_child_imports_nothing_from_the_working_folder(trapped, start):
    # An installed script runs without the working directory on the import path.
    command = [sys.executable, "-P", "-c", PREPARE + start]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        command, cwd=trapped, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    note = trapped / "note"
    assert not note.exists(), note.read_text()
