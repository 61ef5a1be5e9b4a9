"""The virtual environment of each engine, made once, and its running server."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from fakes.made_once import made_once

HERE = Path(__file__).parent
INSTALL = HERE.parents[1] / "scripts" / "engines"
START_S = 300.0
STOP_S = 30.0
SHOWN_CHARS = 4000


def lock(name):
    """The pinned packages of an engine."""
    return (HERE / "locks" / f"{name}.txt").read_text()


def environment(name):
    """The folder of an engine's virtual environment; the test is skipped if it cannot be made."""
    content = (lock(name), INSTALL.read_text(), sys.version)
    try:
        return made_once(f"engine-{name}", lambda folder: install(name, folder), *content)
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().splitlines()[-3:] or ["no message"]
        pytest.skip(f"{name} cannot be installed: {' / '.join(reason)}")


def install(name, folder):
    """Install an engine; its output is shown only if that fails."""
    command = [str(INSTALL), name, str(folder)]
    env = {**os.environ, "PYTHON": sys.executable}
    subprocess.run(command, check=True, env=env, capture_output=True, text=True)


class EngineProcess:
    """A server in a session of its own, which can be started again on the same ports.

    Args:
        folder: For its output.
        command: Its command line.
        env: Added to a small environment: PATH, HOME and the locale.
        ready_url: Answers 200 once the server can be used.
    """

    def __init__(self, folder, command, env, ready_url):
        self._output = folder / "output"
        self._folder, self._command, self._ready_url = folder, command, ready_url
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "NO_PROXY": "*",
            **env,
        }
        self._process = None

    def start(self):
        """Start it and wait until it is ready."""
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [str(part) for part in self._command],
                env=self._env,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: os.nice(5),  # noqa: PLW1509 - no threads are involved
            )
        ends_s = time.monotonic() + START_S
        while time.monotonic() < ends_s:
            assert self._process.poll() is None, f"it ended:\n{self.tail()}"
            if _is_ready(self._ready_url):
                return
            time.sleep(0.1)
        raise AssertionError(f"not ready after {START_S:.0f} s:\n{self.tail()}")

    def stop(self, how=signal.SIGTERM):
        """Signal all of its processes, and wait until they ended."""
        process, self._process = self._process, None
        if process is None:
            return
        _signal(process.pid, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        _signal(process.pid, signal.SIGKILL)
        process.wait()

    def tail(self):
        """The end of its output."""
        return self._output.read_text(errors="replace")[-SHOWN_CHARS:]


def _signal(group, how):
    try:
        os.killpg(group, how)
    except ProcessLookupError:
        return


def _is_ready(url):
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - our own server
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False


@contextmanager
def running(engine, folder):
    """Run an engine's server until the context is left."""
    process = EngineProcess(folder, engine.command(), engine.env(), engine.ready_url)
    try:
        process.start()
        yield process
    finally:
        process.stop()
