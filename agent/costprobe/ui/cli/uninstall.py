"""`costprobe uninstall`: stop and delete the systemd service of this host."""

from __future__ import annotations

from pathlib import Path

import click

from costprobe.ui.cli.support import service_files as files
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.output import echo, echo_lines
from costprobe.ui.cli.support.service_files import (
    FILES,
    HOST,
    OTHER_UNITS,
    ROOT_OPTION,
    SERVICE,
    USER,
    VENV,
    Steps,
    check_host,
)


@click.command(
    cls=ExampleCommand,
    examples=(
        "sudo costprobe uninstall  # keep configuration and store",
        "sudo costprobe uninstall --purge  # delete them, too",
    ),
)
@ROOT_OPTION
@click.option("--purge", is_flag=True, help="Delete configuration, store and user as well.")
def command(root: Path, *, purge: bool) -> None:
    """Stop the service and delete it; configuration and store are kept.

    With --purge only the entries in the journal remain.
    """
    check_host(root)
    steps = Steps(echo)
    with files.disk_errors(root):
        _stop(root, steps)
        _remove_program(root, steps)
        remaining = [] if purge else _kept(root)
        if purge:
            _purge(root, steps)
        if root == HOST:
            steps.attempt(["systemctl", "daemon-reload"])
            steps.attempt(["systemctl", "reset-failed", SERVICE, *OTHER_UNITS])
    done = "uninstalled" if purge or not remaining else "uninstalled; --purge deletes these, too"
    echo_lines([*remaining, done])


def _stop(root: Path, steps: Steps) -> None:
    where = ["--now"] if root == HOST else [f"--root={root}"]
    installed = [name for name in (SERVICE, *OTHER_UNITS) if (root / FILES[name]).exists()]
    if installed:
        steps.run(
            ["systemctl", "disable", *where, *installed], "stop it first: systemctl stop costprobe"
        )


def _remove_program(root: Path, steps: Steps) -> None:
    """Delete everything that was installed, except configuration and store."""
    for counter in files.granted_counters(root):
        files.take_back(counter)
        steps.log(f"{counter}: readable only by root again")
    paths = [root / target for target in FILES.values()]
    if files.is_our_link(root):
        paths.append(root / files.LINK)
    venv = root / VENV
    if files.is_venv(venv):
        paths.append(venv)
    elif venv.exists():
        steps.log(f"{venv}: is not a virtual environment, kept")
    for path in (*paths, root / files.NEW_VENV, root / files.OLD_VENV, root / files.CACHE):
        if files.remove(path):
            steps.log(f"{path}: deleted")
    files.remove_empty(root)
    if root == HOST and Path("/run/udev/control").exists():
        steps.attempt(["udevadm", "control", "--reload"])


def _kept(root: Path) -> list[str]:
    """Return a line for each thing that is kept."""
    remaining = [
        f"{root / path}: kept, {reason}"
        for path, reason in files.KEPT.items()
        if (root / path).exists() and not (root / path).is_symlink()
    ]
    if _has_user(root):
        remaining.append(f"the user {USER}: kept, because it owns the store")
    return remaining


def _purge(root: Path, steps: Steps) -> None:
    """Delete configuration, store and user."""
    for path in files.KEPT:
        if files.remove(root / path):
            steps.log(f"{root / path}: deleted")
    if _has_user(root):
        where = [] if root == HOST else ["--prefix", str(root)]
        steps.run(
            ["userdel", *where, USER], f"processes of {USER} are still running: pgrep -u {USER}"
        )


def _has_user(root: Path) -> bool:
    passwd = root / "etc/passwd"
    return passwd.is_file() and any(
        line.startswith(f"{USER}:") for line in passwd.read_text(errors="replace").splitlines()
    )
