"""A daemon in a child process, and operations on it."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

from click.testing import CliRunner
from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.read import StoreReader
from costprobe.ui.cli.main import main
from costprobe.ui.cli.support.control_client import ask

TIMEOUT_S = 90.0
STOP_S = 60.0


class DaemonProcess:
    """A daemon process with its configuration file, store and output, stopped when the context ends.

    Args:
        folder: For its files.
        env: Added to this process's environment.
        wrapper: A command that gets the daemon's command line as arguments and runs it by exec.
    """

    def __init__(self, folder, env, wrapper=()):
        self.folder = folder
        self.config = folder / "costprobe.toml"
        self.store = folder / "costprobe.db"
        self.output = folder / "output"
        scope = {"COSTPROBE_SCOPE": str(folder)[-60:]}
        debugging = {"PYTHONWARNINGS": "default", "PYTHONFAULTHANDLER": "1"}
        self.env = {**os.environ, **debugging, **scope, **env}
        self._wrapper = tuple(map(str, wrapper))
        self._process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def pid(self):
        return self._process.pid

    def write(self, text):
        store = f'\n[store]\npath = "{self.store}"\n'
        self.config.write_text(text + store)

    def start(self, text=None):
        if text is not None:
            self.write(text)
        # The output of an earlier process is ignored.
        before = self.output.stat().st_size if self.output.exists() else 0
        self.spawn()
        self.wait_for(lambda: b"store: " in self.output.read_bytes()[before:])

    def spawn(self):
        """Start the daemon without waiting until it is ready."""
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *self._wrapper,
                    *(sys.executable, "-m", "costprobe", "--config", str(self.config), "run"),
                ],
                env=self.env,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def look(self, *arguments, code=0):
        """Run a command in this process with the daemon's configuration; return its stdout.

        With `code=None` any exit code is right, and errors are returned as well.
        """
        done = CliRunner().invoke(
            main, ["--config", str(self.config), *arguments], env=self.env, catch_exceptions=False
        )
        assert code in {done.exit_code, None}, done.output
        return done.output if code is None else done.stdout

    def run(self, *arguments, code=0, timeout_s=TIMEOUT_S):
        """Run a command with the same configuration; return its stdout."""
        done = subprocess.run(
            [sys.executable, "-m", "costprobe", "--config", str(self.config), *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        assert done.returncode == code, done
        return done.stdout

    def wait_for(self, condition, timeout_s=TIMEOUT_S, *, every_s=0.1):
        """Wait until a condition is true and return its value; fail if the daemon exits."""
        ends_s = time.monotonic() + timeout_s
        while time.monotonic() < ends_s:
            assert self._process.poll() is None, self.output.read_text()
            if found := condition():
                return found
            time.sleep(every_s)
        raise AssertionError(f"the condition was never true: {self.output.read_text()}")

    def points(self, measurement, **tags):
        try:
            reader = StoreReader.open(self.store)
        except StoreError:
            return []
        try:
            return list(reader.points(measurement, 0, 2**62, tags or None))
        finally:
            reader.close()

    def status(self):
        """The present status, from the control socket; the store has it up to ten seconds later."""
        return ask(SimpleNamespace(store_path=self.store), {"do": "status"})

    def state(self, name):
        """A stored document."""
        reader = StoreReader.open(self.store)
        try:
            return reader.states()[name][0]
        finally:
            reader.close()

    def signal(self, number):
        self._process.send_signal(number)

    def stop(self):
        """Send SIGINT and wait; return the exit code."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                # SIGABRT makes faulthandler print the stack of each thread.
                self._process.send_signal(signal.SIGABRT)
                self._process.wait()
                raise AssertionError(
                    f"the daemon does not stop:\n{self.output.read_text()}"
                ) from None
        return self._process.returncode if self._process else None

    def wait(self):
        """Wait until the daemon exits; return its exit code."""
        return self._process.wait(TIMEOUT_S)

    def kill(self):
        """Kill the daemon with SIGKILL."""
        self._process.kill()
        self._process.wait()
