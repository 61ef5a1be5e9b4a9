"""systemd booted in a container of Debian packages.

The root directory is created once and is read-only: the changes of a container are in memory and are
lost at its end. It shares the network of the host, and only the given folders.
"""

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from fakes.made_once import made_once

SUITE = "bookworm"
PACKAGES = "systemd,systemd-sysv,dbus,procps,python3,python3-venv,udev"
TOOLS = ("debootstrap", "systemd-nspawn", "nsenter")
NSPAWN = (
    "systemd-nspawn", "--register=no", "--keep-unit", "--quiet", "--volatile=overlay",
)  # fmt: skip
OF_THE_SYSTEM = (
    "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/.pwd.lock", "/etc/subuid",
    "/etc/subgid", "/etc/.updated", "/etc/ld.so.cache", "/root", "/var/log", "/var/lib/systemd",
    "/var/lib/dpkg", "/var/lib/apt", "/var/cache/apt", "/var/cache/ldconfig",
    "/var/cache/debconf", "/var/cache/man", "/usr/lib/python3",
)  # fmt: skip
MAKE_S = 600
BOOT_S = 60.0
COMMAND_S = 300
# The signal for "halt" to systemd-nspawn (systemd(1): SIGRTMIN+3).
HALT = 37


def can_boot():
    """Whether this is root with the required programs."""
    return os.geteuid() == 0 and all(map(shutil.which, TOOLS))


def debian_root():
    """The root directory of a minimal Debian."""
    debootstrap = ("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE)
    return made_once(SUITE, lambda folder: _run(*debootstrap, folder), PACKAGES)


def in_debian(root, binds, *script):
    """Run lines of a shell in a container that boots nothing.

    Args:
        root: Its root directory, of which it gets a writable view.
        binds: Folders of this machine by their place in it.
        script: The lines.
    """
    bound = [f"--bind={here}:{there}" for there, here in binds.items()]
    _run(*NSPAWN, f"--directory={root}", *bound, "/bin/sh", "-ec", "\n".join(script))


def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MAKE_S)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


class Container:
    """A booted container while the context is open; without one the test is skipped.

    Args:
        root: Its root directory, of which it gets a writable view.
        binds: Folders of this machine by their place in it.
        log: Where its console goes.
    """

    def __init__(self, root, binds, log):
        bound = (f"--bind={here}:{there}" for there, here in binds.items())
        self._command = [*NSPAWN, "--boot", f"--directory={root}", *bound]
        self._log = log
        self._init = None

    def __enter__(self):
        with self._log.open("wb") as console:
            self._nspawn = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT
            )
        ends_s = time.monotonic() + BOOT_S
        while not self._has_booted():
            if self._nspawn.poll() is not None or time.monotonic() > ends_s:
                self.__exit__()
                output = self._log.read_text(errors="replace")[-1000:]
                pytest.skip(f"the kernel of this machine boots no containers: {output}")
            time.sleep(0.1)
        return self

    def _has_booted(self):
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children")
        with suppress(OSError, IndexError):
            self._init = int(children.read_text().split()[0])
            state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
            return state in {"running", "degraded"}
        return False

    def run(self, *command, check=True, env=()):
        """Run a program in the container as root."""
        done = subprocess.run(
            [
                "nsenter",
                f"--target={self._init}",
                "--all",
                "/usr/bin/env",
                "-i",
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "LANG=C.UTF-8",
                *env,
                *map(str, command),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )
        assert not check or done.returncode == 0, (command, done.stdout, done.stderr)
        return done

    def write(self, path, text):
        """Write a file in the container, readable by root only."""
        script = 'umask 077; mkdir -p "$(dirname "$1")"; printf %s "$2" >"$1"'
        self.run("sh", "-c", script, "sh", path, text)

    def read(self, path):
        """Return the content of a file."""
        return self.run("cat", path).stdout

    def exists(self, path):
        """Whether the path exists."""
        return self.run("test", "-e", path, check=False).returncode == 0

    def paths(self, *arguments, without=()):
        """What `find` finds on the disk, without those that the system writes for any package or service."""
        found = self.run("find", *arguments).stdout.splitlines()
        return {path for path in found if not path.startswith((*OF_THE_SYSTEM, *without))}

    def wait_for(self, condition, timeout_s=60.0):
        """Wait until a condition holds; fail with the service's log on timeout."""
        ends_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < ends_s, self.run(
                "journalctl", "-u", "costprobe", "-n", "50", "--no-pager", check=False
            ).stdout
            time.sleep(0.1)

    def __exit__(self, *_):
        """Halt the container; kill it on timeout."""
        if self._init is not None and self._nspawn.poll() is None:
            os.kill(self._init, HALT)
        try:
            self._nspawn.wait(20)
        except subprocess.TimeoutExpired:
            self._nspawn.terminate()
            try:
                self._nspawn.wait(10)
            except subprocess.TimeoutExpired:
                self._nspawn.kill()
                self._nspawn.wait()
