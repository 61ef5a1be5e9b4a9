"""Nothing is imported from the folder that a command is run in, which may be anybody's.

An administrator who runs `infercost doctor` in /tmp must not run what another user left there.
"""

import os
import subprocess
import sys

import pytest

# What the children import first, of ours, of the standard library and of others.
NAMES = ["apprise", "faulthandler", "json", "runpy", "torch", "urllib"]
PREPARE = "import logging, sys\nfrom pathlib import Path\n"
STARTS = {
    "the sensor": """
from agent.cli.discovery import discovered_devices
discovered_devices()
""",
    "the check of torch": """
from agent.cli.checks import torch_checks
from agent.config import TRY_OUT
print(list(torch_checks(TRY_OUT.probe)))
""",
    "a probe": """
from agent.probing.child import ProbeChild, worker_command
from agent.probing.request import ProbeRequest
child = ProbeChild(worker_command(sys.executable), {})
child.send(ProbeRequest("p", "module", "cpu", None, 1, energy=False, module="own:make").to_wire())
print(child.receive(60))
child.kill()
""",
    "a spot price's endpoint": """
from agent.config_price import SpotPlanConfig
from agent.feeds.source import SourceError, read_source
try:
    read_source(SpotPlanConfig(plan="spot", url="http://127.0.0.1:9/"))
except SourceError as error:
    print(error)
""",
    "a message": """
from agent.config_notifier import AppriseConfig
from agent.notifying.apprise import Apprise
from agent.notifying.sender import RetryLater
from fakes.incidents import incident
Path("url").write_text("json://127.0.0.1:9/x")
try:
    Apprise(AppriseConfig(name="n", kind="apprise", url_file=Path("url")), None).send([incident()], 1)
except RetryLater as error:
    print(error)
""",
}


@pytest.fixture
def trapped(tmp_path):
    """A folder full of modules that leave a note when they are imported."""
    note = tmp_path / "note"
    trap = f"open({str(note)!r}, 'a').write(__name__ + ' ')\n"
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(trap)
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "__init__.py").write_text(trap)
    (tmp_path / "own.py").write_text(trap)
    return tmp_path


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_a_child_imports_nothing_from_the_working_folder(trapped, start):
    # As an installed script runs: without the working folder among the places to import from.
    command = [sys.executable, "-P", "-c", PREPARE + start]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        command, cwd=trapped, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    note = trapped / "note"
    assert not note.exists(), note.read_text()


def test_the_traps_do_snap(trapped):
    """Run as an interpreter looks by itself, the traps are found."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    command = [sys.executable, "-c", "import torch, own"]
    subprocess.run(command, cwd=trapped, env=environ, check=True)
    assert (trapped / "note").read_text() == "torch own "
