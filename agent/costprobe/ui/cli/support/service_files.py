"""The service on a host: its files, and the steps, options and output of its commands.

Each step of an installation is printed, run with a time limit, and fails with a hint.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

import costprobe
from costprobe.adapters.host.files import replace_file
from costprobe.ui.cli.support.place import bad_input

SERVICE: Final = "costprobe.service"
DASHBOARD: Final = "costprobe-dashboard.service"
FLEET: Final = "costprobe-fleet.service"
# Installed beside the daemon, and enabled by an administrator.
OTHER_UNITS: Final = (DASHBOARD, FLEET)
USER: Final = "costprobe"
EXAMPLE: Final = "costprobe.toml.example"
SYSUSERS: Final = "usr/local/lib/sysusers.d/costprobe.conf"
TMPFILES: Final = "usr/local/lib/tmpfiles.d/costprobe.conf"
# Not in /etc: files of the administrator in /etc take precedence, and upgrades do not change them.
FILES: Final[Mapping[str, str]] = {
    SERVICE: f"usr/local/lib/systemd/system/{SERVICE}",
    **{name: f"usr/local/lib/systemd/system/{name}" for name in OTHER_UNITS},
    "costprobe.sysusers": SYSUSERS,
    "costprobe.tmpfiles": TMPFILES,
    "60-costprobe-rapl.rules": "usr/local/lib/udev/rules.d/60-costprobe-rapl.rules",
}
# The unit of a Debian or RPM package, which has files of its own.
PACKAGED: Final = f"usr/lib/systemd/system/{SERVICE}"
VENV: Final = "opt/costprobe"
# A new version, until it is complete; and the replaced one, until it is deleted.
NEW_VENV: Final = f"{VENV}.new"
OLD_VENV: Final = f"{VENV}.old"
LINK: Final = "usr/local/bin/costprobe"
CONFIG: Final = "etc/costprobe/costprobe.toml"
CACHE: Final = "var/cache/costprobe"
# Deleted only by --purge.
KEPT: Final[Mapping[str, str]] = {
    "etc/costprobe": "the configuration",
    f"etc/systemd/system/{SERVICE}.d": "your drop-ins",
    **{f"etc/systemd/system/{name}.d": "your drop-ins" for name in OTHER_UNITS},
    "var/lib/costprobe": "the store",
    "var/lib/costprobe-fleet": "the store of the fleet's watcher",
    "var/lib/private/costprobe": "the store",
}
RAPL_COUNTERS: Final = (
    "sys/devices/virtual/powercap/intel-rapl/intel-rapl:*/energy_uj",
    "sys/devices/virtual/powercap/intel-rapl/intel-rapl:*/intel-rapl:*/energy_uj",
)
_SHARED: Final = "share/costprobe/systemd"
_ROOT_ALONE: Final = 0o400


def checkout() -> Path | None:
    """Return the source tree of this program; None if it was installed from a wheel."""
    folder = Path(costprobe.__file__).resolve().parents[2]
    return folder if (folder / "pyproject.toml").is_file() else None


def unit_sources(venv: Path | None) -> Path | None:
    """Return the folder of the units, or None if there is none.

    Args:
        venv: The virtual environment whose version the units belong to; None for this program.
    """
    if venv is not None:
        folders = [venv / _SHARED]
    else:
        source = checkout()
        folders = [source / "systemd"] if source else []
        folders.append(Path(sysconfig.get_path("data")) / _SHARED)
    return next((folder for folder in folders if (folder / SERVICE).is_file()), None)


def put(source: Path, target: Path) -> bool:
    """Copy a file atomically; return False if the target has the same content already.

    Raises:
        OSError: It cannot be written.
    """
    content = source.read_bytes()
    if target.is_file() and target.read_bytes() == content:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, content)
    return True


def link(root: Path) -> bool:
    """Link the program into the path of all users; return False if the name is taken.

    Raises:
        OSError: It cannot be written.
    """
    path = root / LINK
    if path.is_symlink() or path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(f"/{VENV}/bin/costprobe")
    return True


def is_our_link(root: Path) -> bool:
    """Return whether the program in the path belongs to the service."""
    path = root / LINK
    return path.is_symlink() and path.readlink() == Path(f"/{VENV}/bin/costprobe")


def is_venv(folder: Path) -> bool:
    """Return whether a folder is a virtual environment, which may be deleted completely."""
    return (folder / "pyvenv.cfg").is_file()


def shadows(root: Path) -> list[Path]:
    """Return the files in /etc that override installed files of the same name."""
    units = [root / "etc/systemd/system" / name for name in (SERVICE, *OTHER_UNITS)]
    others = [root / "etc" / folder / "costprobe.conf" for folder in ("sysusers.d", "tmpfiles.d")]
    return [path for path in (*units, *others) if path.exists()]


def remove(path: Path) -> bool:
    """Delete a file, a link or a folder with its content; return False if there is none.

    Raises:
        OSError: It cannot be deleted.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return True
    existed = path.is_symlink() or path.exists()
    path.unlink(missing_ok=True)
    return existed


def remove_empty(root: Path) -> None:
    """Delete the folders that contained no other files."""
    for target in FILES.values():
        for folder in (root / target).parents:
            if folder == root / "usr/local/lib" or not folder.is_dir() or any(folder.iterdir()):
                break
            folder.rmdir()


def granted_counters(root: Path) -> Iterator[Path]:
    """Yield the RAPL counters that the group may read."""
    for pattern in RAPL_COUNTERS:
        for path in sorted(root.glob(pattern)):
            if path.stat().st_gid != 0:
                yield path


def take_back(counter: Path) -> None:
    """Make a RAPL counter readable only by root again, the default of the kernel.

    Raises:
        OSError: It cannot be changed.
    """
    os.chown(counter, 0, 0)
    counter.chmod(_ROOT_ALONE)


COMMAND_TIMEOUT_S: Final = 300.0
OUTPUT_LINES_MAX: Final = 12


class StepError(click.ClickException):
    """A step failed. Earlier steps stay in effect, and running the command again is safe."""


class Steps:
    """Runs programs and prints each.

    Args:
        log: Prints one line.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self.log = log

    def run(
        self,
        command: Sequence[str],
        fix: str,
        *,
        timeout_s: float = COMMAND_TIMEOUT_S,
        shows_output: bool = False,
        env: Mapping[str, str] | None = None,
        is_shown: bool = True,
    ) -> str:
        """Print a command, run it, and return its standard output.

        Args:
            command: Program and arguments.
            fix: What the user can do if it fails.
            timeout_s: The time limit in s.
            shows_output: Pass the output on to stderr, such as a progress bar, instead of
                returning it.
            env: The environment; None for that of this program.
            is_shown: False for a command that changes nothing: it is not printed.

        Raises:
            StepError: The program does not exist, failed, or exceeded its time limit.
        """
        if is_shown:
            self.log(f"  {shlex.join(command)}")
        try:
            done = subprocess.run(  # noqa: S603 - a program of the table above, no shell
                list(command),
                stdout=sys.stderr if shows_output else subprocess.PIPE,
                stderr=None if shows_output else subprocess.PIPE,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
                stdin=subprocess.DEVNULL,
                env=env,
            )
        except OSError as error:
            raise StepError(f"{command[0]}: {error.strerror}; {fix}") from error
        except subprocess.TimeoutExpired as error:
            raise StepError(
                f"{shlex.join(command)}: not finished after {timeout_s:.0f} s; {fix}"
            ) from error
        if done.returncode != 0:
            output = (done.stderr or "").strip() or (done.stdout or "").strip()
            shown = "\n".join(f"  {line}" for line in output.splitlines()[-OUTPUT_LINES_MAX:])
            raise StepError("\n".join([f"{shlex.join(command)} failed:", shown, fix]))
        return done.stdout or ""

    def attempt(self, command: Sequence[str]) -> bool:
        """Run an optional command; return True if it succeeded."""
        if shutil.which(command[0]) is None:
            return False
        try:
            self.run(command, "it is not needed")
        except StepError as error:
            # The last line is the hint; the one before it is the program's last line of output.
            self.log(f"    not done: {error.message.splitlines()[-2:][0].strip()}")
            return False
        return True


@contextmanager
def disk_errors(root: Path) -> Iterator[None]:
    """Report a file that cannot be written as a failed step."""
    try:
        yield
    except OSError as error:
        raise StepError(
            f"{error.filename or root}: {error.strerror}; check that the disk is writable"
        ) from error


HOST: Final = Path("/")
ROOT_OPTION = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=HOST,
    help="Install into the system image below this folder; nothing is started.",
)


def check_host(root: Path) -> None:
    """Check the requirements before anything is changed.

    Raises:
        click.ClickException: With exit code 2.
    """
    if os.geteuid() != 0:
        program = Path(sys.executable).with_name("costprobe")
        name = click.get_current_context().info_name
        raise bad_input(f"root is required: sudo {program} {name}")
    if (root / PACKAGED).exists():
        raise bad_input(
            f"{root / PACKAGED}: the service was installed by a package of the system; upgrade or"
            " remove the package costprobe instead, with apt or dnf"
        )
    if root == HOST and not Path("/run/systemd/system").is_dir():
        raise bad_input(
            "systemd is not running; run `costprobe run` under your process supervisor, or use"
            " --root for a system image"
        )
