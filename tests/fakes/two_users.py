"""Root and an unprivileged user on one host: folders of the second, and commands of the first."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import costprobe

# nobody
OTHER_UID = 65534
AGENT = Path(costprobe.__file__).resolve().parents[1]


def reason_to_skip():
    """Why two users cannot be played here; empty if they can."""
    if os.geteuid() != 0:
        return "two users can be played by root alone"
    return "" if _python() else "no Python of this version that other users can run"


@cache
def _python():
    """An interpreter of our version that the other user can run with our packages."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for path in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        program = [path, "-c", "import costprobe.ui.cli.run"]
        with suppress(OSError):
            if _run(program, user=OTHER_UID, group=OTHER_UID).returncode == 0:
                return path
    return None


def _run(command, *, env=None, **others):
    # The packages of this environment, whichever interpreter runs them.
    paths = [
        str(AGENT),
        str(AGENT.parent / "probes"),
        *(path for path in sys.path if "site-packages" in path),
    ]
    return subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HOME": "/root", **(env or {})},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
        cwd="/",
        **others,
    )


def as_root(*words, **env):
    """Run a command as root."""
    return _run([_python(), "-m", "costprobe", *map(str, words)], env=env)


def script_as_root(path, *words, **env):
    """Run a Python file as root, with an interpreter that the other user can run, too."""
    return _run([_python(), str(path), *map(str, words)], env=env)


@contextmanager
def service_host(config=""):
    """A folder of root's with a configuration, and in it a folder `state` of the other user."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        folder.chmod(0o755)
        state = folder / "state"
        state.mkdir(mode=0o700)
        (folder / "costprobe.toml").write_text(
            f'[store]\npath = "{state}/costprobe.db"\n[telemetry]\ngpus = false\n{config}'
        )
        give(state)
        yield folder
    finally:
        shutil.rmtree(folder)


def give(path):
    """Make a path, with all that is in it, the other user's."""
    for entry in (path, *path.rglob("*")):
        os.lchown(entry, OTHER_UID, OTHER_UID)
