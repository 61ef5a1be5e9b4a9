"""A real daemon in a process of its own, and what a test may do to it."""

import os
import signal
import subprocess
import sys
import time

from agent.storage.errors import StoreError
from agent.storage.reader import StoreReader

TIMEOUT_S = 90.0
STOP_S = 60.0


class DaemonProcess:
    """A real daemon: its file, its store, its output, and what one may ask of it.

    Args:
        folder: For its files.
        env: Added to this process's environment.
        wrapper: A command line that the daemon's is put behind, and that becomes it by exec.
    """

    def __init__(self, folder, env, wrapper=()):
        self.folder = folder
        self.config = folder / "infercost.toml"
        self.store = folder / "infercost.db"
        self.output = folder / "output"
        self._env = {**os.environ, "PYTHONWARNINGS": "default", "PYTHONFAULTHANDLER": "1", **env}
        self._wrapper = tuple(map(str, wrapper))
        self._process = None

    @property
    def pid(self):
        return self._process.pid

    def write(self, text):
        store = f'\n[store]\npath = "{self.store}"\n'
        self.config.write_text(text + store)

    def start(self, text=None):
        if text is not None:
            self.write(text)
        # What an earlier one wrote is no word of this one's.
        before = self.output.stat().st_size if self.output.exists() else 0
        self.spawn()
        self.wait_for(lambda: b"store: " in self.output.read_bytes()[before:])

    def spawn(self):
        """Starts it and does not wait until it is up."""
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *self._wrapper,
                    *(sys.executable, "-m", "agent", "--config", str(self.config), "run"),
                ],
                env=self._env,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def run(self, *arguments, code=0, timeout_s=TIMEOUT_S):
        """Runs another command with the same configuration; its standard output."""
        done = subprocess.run(
            [sys.executable, "-m", "agent", "--config", str(self.config), *arguments],
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        assert done.returncode == code, done
        return done.stdout

    def wait_for(self, condition, timeout_s=TIMEOUT_S):
        """Waits until a condition holds and returns what it gave; the daemon must live."""
        ends_s = time.monotonic() + timeout_s
        while time.monotonic() < ends_s:
            assert self._process.poll() is None, self.output.read_text()
            if found := condition():
                return found
            time.sleep(0.05)
        raise AssertionError(f"it never came: {self.output.read_text()}")

    def points(self, measurement, **tags):
        try:
            reader = StoreReader.open(self.store)
        except StoreError:
            return []
        try:
            return list(reader.points(measurement, 0, 2**62, tags or None))
        finally:
            reader.close()

    def state(self, name):
        reader = StoreReader.open(self.store)
        try:
            return reader.states()[name][0]
        finally:
            reader.close()

    def signal(self, number):
        self._process.send_signal(number)

    def stop(self):
        """Ends it as Ctrl-C does."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                # It says where each of its threads is.
                self._process.send_signal(signal.SIGABRT)
                self._process.wait()
                raise AssertionError(f"it does not stop:\n{self.output.read_text()}") from None
        return self._process.returncode if self._process else None

    def wait(self):
        """Waits until it has ended by itself; its exit code."""
        return self._process.wait(TIMEOUT_S)

    def kill(self):
        """Ends it as a power cut does, as far as a process goes."""
        self._process.kill()
        self._process.wait()
