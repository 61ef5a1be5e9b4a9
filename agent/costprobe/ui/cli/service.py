"""`costprobe service`: install the daemon as a systemd service, upgrade it, uninstall it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from costprobe import __version__
from costprobe.ui.cli.support import service_files as files
from costprobe.ui.cli.support.examples import ExampleGroup
from costprobe.ui.cli.support.loaded_config import bad_input
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.service_files import CONFIG, DASHBOARD, FILES, SERVICE, USER, VENV
from costprobe.ui.cli.support.service_steps import StepError, Steps
from costprobe.ui.cli.support.service_venv import install_packages, make_venv
from costprobe.ui.cli.support.service_wheel import running_wheel

HOST = Path("/")
READABLE_BY_ALL = 0o022
_ROOT_OPTION = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=HOST,
    help="Install into the system image below this folder; nothing is started.",
)
_JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="The steps, as JSON.")


@click.group(cls=ExampleGroup)
def command() -> None:
    """Install the daemon as a systemd service of this host, upgrade it, or uninstall it."""


@command.command(
    examples=("sudo costprobe service install  # install or upgrade the systemd service",),
)
@_ROOT_OPTION
@click.option(
    "--python", help="The interpreter of the environment (default: the first usable one)."
)
@click.option(
    "--from",
    "source",
    help="A source tree, wheel or requirement for pip (default: the running program).",
)
@click.option("--no-start", is_flag=True, help="Do not start or restart the service.")
@_JSON_OPTION
def install(
    root: Path, python: str | None, source: str | None, *, no_start: bool, as_json: bool
) -> None:
    """Install the service, or upgrade it; configuration and store are kept.

    The virtual environment is created in /opt/costprobe from the files of the running program, unit
    files in /usr/local/lib, and an example configuration in /etc/costprobe if there is none.
    With --root no environment is created, because it works only on the host that created it.
    """
    _check(root)
    os.umask(READABLE_BY_ALL)
    printed, log = _printer(as_json=as_json)
    steps = Steps(log)
    on_host = root == HOST
    try:
        if on_host:
            _install_environment(root, python, source, steps)
        _put_files(root, steps)
        _make_user_and_grants(root, steps)
        if on_host:
            _start(steps, starts=not no_start)
        else:
            steps.run(
                ["systemctl", f"--root={root}", "enable", SERVICE],
                "check that systemd is installed",
            )
    except OSError as error:
        raise StepError(
            f"{error.filename or root}: {error.strerror}; check that the disk is writable"
        ) from error
    if as_json:
        document = {"root": str(root), "steps": printed, "config": str(root / CONFIG)}
        echo(json.dumps(document))
        return
    echo(f"installed; the configuration is {root / CONFIG}")


@command.command(
    examples=(
        "sudo costprobe service uninstall  # keep configuration and store",
        "sudo costprobe service uninstall --purge  # delete them, too",
    ),
)
@_ROOT_OPTION
@click.option("--purge", is_flag=True, help="Delete configuration, store and user as well.")
@_JSON_OPTION
def uninstall(root: Path, *, purge: bool, as_json: bool) -> None:
    """Stop the service and delete it; configuration and store are kept.

    With --purge only the entries in the journal remain.
    """
    _check(root)
    printed, log = _printer(as_json=as_json)
    steps = Steps(log)
    try:
        _stop(root, steps)
        _remove_program(root, steps)
        remaining = [] if purge else _kept(root)
        if purge:
            _purge(root, steps)
        if root == HOST:
            steps.attempt(["systemctl", "daemon-reload"])
            steps.attempt(["systemctl", "reset-failed", SERVICE, DASHBOARD])
    except OSError as error:
        raise StepError(
            f"{error.filename or root}: {error.strerror}; check that the disk is writable"
        ) from error
    if as_json:
        echo(json.dumps({"root": str(root), "steps": printed, "kept": remaining}))
        return
    for line in remaining:
        echo(line)
    echo("uninstalled" if purge or not remaining else "uninstalled; --purge deletes these, too")


def _printer(*, as_json: bool) -> tuple[list[str], Callable[[str], None]]:
    """Return a list of lines, for JSON, and the function that prints a line and adds it.

    With --json the lines are printed to stderr, so that they are visible if a step fails.
    """
    printed: list[str] = []

    def log(line: str) -> None:
        printed.append(line.strip())
        echo(line, err=as_json)

    return printed, log


def _check(root: Path) -> None:
    """Check the requirements before anything is changed.

    Raises:
        click.ClickException: With exit code 2.
    """
    if os.geteuid() != 0:
        program = Path(sys.executable).with_name("costprobe")
        name = click.get_current_context().info_name
        raise bad_input(f"root is required: sudo {program} service {name}")
    if root == HOST and not Path("/run/systemd/system").is_dir():
        raise bad_input(
            "systemd is not running; run `costprobe run` under your process supervisor, or use"
            " --root for a system image"
        )


def _install_environment(root: Path, python: str | None, source: str | None, steps: Steps) -> None:
    """Create or upgrade the virtual environment from the source, or from the running program."""
    venv = root / VENV
    with tempfile.TemporaryDirectory() as folder:
        chosen = source or str(files.checkout() or running_wheel(Path(folder)))
        steps.log(f"{venv}: installing costprobe {__version__ if source is None else source}")
        make_venv(venv, python, steps)
        install_packages(venv, chosen, steps)


def _put_files(root: Path, steps: Steps) -> None:
    """Install units, permissions, the link in the path, and a configuration if there is none."""
    sources = files.unit_sources(root / VENV if root == HOST else None)
    if sources is None:
        raise StepError(f"this installation has no {SERVICE}; specify a wheel with --from")
    for name, target in FILES.items():
        changed = files.put(sources / name, root / target)
        steps.log(f"{root / target}: {'written' if changed else 'unchanged'}")
    config = root / CONFIG
    if config.exists():
        steps.log(f"{config}: kept")
    else:
        files.put(sources / files.EXAMPLE, config)
        steps.log(f"{config}: written, an example; add your prices and your database")
    if files.link(root):
        steps.log(f"{root / files.LINK}: written")
    elif not files.is_our_link(root):
        steps.log(f"{root / files.LINK}: belongs to another program, kept")
    for path in files.shadows(root):
        steps.log(f"{path}: overrides the installed file; delete it unless that is intended")


def _make_user_and_grants(root: Path, steps: Steps) -> None:
    """Create the user and set the permissions of its group."""
    where = [] if root == HOST else [f"--root={root}"]
    steps.run(
        ["systemd-sysusers", *where, str(root / files.SYSUSERS)],
        "check that /etc/passwd is writable",
    )
    steps.run(
        ["systemd-tmpfiles", *where, "--create", str(root / files.TMPFILES)],
        "check that the user costprobe is in /etc/passwd",
    )
    if root == HOST and Path("/run/udev/control").exists():
        steps.attempt(["udevadm", "control", "--reload"])


def _start(steps: Steps, *, starts: bool) -> None:
    """Start or restart the service, unless the configuration has an error."""
    steps.run(["systemctl", "daemon-reload"], "check systemd: systemctl status")
    steps.run(["systemctl", "enable", SERVICE], "check that /etc/systemd/system is writable")
    program = str(HOST / VENV / "bin/costprobe")
    steps.run(
        [program, "--config", str(HOST / CONFIG), "config", "check"],
        "the files are installed, but nothing was restarted; fix the configuration, then:"
        " systemctl restart costprobe",
    )
    if starts:
        # After a crash loop systemd would refuse to start it.
        steps.attempt(["systemctl", "reset-failed", SERVICE])
        steps.run(
            ["systemctl", "restart", SERVICE], "see the reason: journalctl -u costprobe -n 30"
        )
        steps.run(
            ["systemctl", "try-restart", DASHBOARD], f"see the reason: journalctl -u {DASHBOARD}"
        )


def _stop(root: Path, steps: Steps) -> None:
    where = ["--now"] if root == HOST else [f"--root={root}"]
    installed = [name for name in (SERVICE, DASHBOARD) if (root / FILES[name]).exists()]
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
    for path in (*paths, root / files.CACHE):
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
