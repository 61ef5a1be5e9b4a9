"""`costprobe install`: install the daemon as a systemd service of this host, or upgrade it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from costprobe import __version__
from costprobe.ui.cli.support import service_files as files
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.service_files import (
    CONFIG,
    FILES,
    HOST,
    OTHER_UNITS,
    ROOT_OPTION,
    SERVICE,
    VENV,
    StepError,
    Steps,
    check_host,
)
from costprobe.ui.cli.support.service_venv import (
    install_packages,
    make_venv,
    replace_venv,
    running_wheel,
)

READABLE_BY_ALL = 0o022


@click.command(
    cls=ExampleCommand,
    examples=("sudo costprobe install  # install or upgrade the systemd service",),
)
@ROOT_OPTION
@click.option(
    "--python", help="The interpreter of the environment (default: the first usable one)."
)
@click.option(
    "--from",
    "source",
    help='A source tree or wheel, "FILE.whl[EXTRA]" with an extra (default: the running program).',
)
@click.option(
    "--no-start", is_flag=True, help="Do not start the service; a running one is stopped."
)
def command(root: Path, python: str | None, source: str | None, *, no_start: bool) -> None:
    """Install the service, or upgrade it; configuration and store are kept.

    The virtual environment is created in /opt/costprobe from the files of the running program, unit
    files in /usr/local/lib, and an example configuration in /etc/costprobe if there is none. An upgrade
    stops the service when the new environment is complete; one that fails before changes nothing.
    With --root no environment is created, because it works only on the host that created it.
    """
    check_host(root)
    os.umask(READABLE_BY_ALL)
    steps = Steps(echo)
    on_host = root == HOST
    stopped: list[str] = []
    with files.disk_errors(root):
        if on_host:
            _install_environment(python, source, steps)
            stopped = _replace_environment(steps)
        _put_files(root, steps)
        _make_user_and_grants(root, steps)
        if on_host:
            _start(steps, stopped, starts=not no_start)
        else:
            steps.run(
                ["systemctl", f"--root={root}", "enable", SERVICE],
                "check that systemd is installed",
            )
    echo(f"installed; the configuration is {root / CONFIG}")


def _install_environment(python: str | None, source: str | None, steps: Steps) -> None:
    """Install the source, or the running program, into a copy of the virtual environment."""
    venv, new = HOST / VENV, HOST / files.NEW_VENV
    with tempfile.TemporaryDirectory() as folder:
        if source is not None and not Path(source.partition("[")[0]).exists():
            raise StepError(
                f"{source}: no such folder or wheel; make packages in a checkout builds one"
            )
        chosen = source or str(files.checkout() or running_wheel(Path(folder)))
        steps.log(f"{venv}: installing costprobe {__version__ if source is None else source}")
        make_venv(venv, new, python, steps)
        install_packages(new, chosen, steps)


def _replace_environment(steps: Steps) -> list[str]:
    """Replace the environment by its complete copy; return the units that were stopped for it.

    Running programs would load the rest of their code from the new version.
    """
    new, config = HOST / files.NEW_VENV, HOST / CONFIG
    if config.exists():
        steps.run(
            [
                str(new / "bin/python"),
                "-m",
                "costprobe",
                "--config",
                str(config),
                "config",
                "check",
            ],
            "nothing was changed or restarted; fix the configuration, then install again",
        )
    loaded = ["systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating"]
    listed = steps.run(
        [*loaded, SERVICE, *OTHER_UNITS], "check systemd: systemctl status", is_shown=False
    )
    running = [line.split()[0] for line in listed.splitlines()]
    if running:
        steps.run(["systemctl", "stop", *running], f"see the reason: journalctl -u {SERVICE}")
    try:
        replace_venv(HOST / VENV, new)
    except OSError:
        if running:
            steps.attempt(["systemctl", "start", *running])
        raise
    return running


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


def _start(steps: Steps, stopped: list[str], *, starts: bool) -> None:
    """Start the service, and the other units that were stopped for the upgrade."""
    steps.run(["systemctl", "daemon-reload"], "check systemd: systemctl status")
    steps.run(["systemctl", "enable", SERVICE], "check that /etc/systemd/system is writable")
    if not starts:
        return
    # After a crash loop systemd would refuse to start it.
    steps.attempt(["systemctl", "reset-failed", SERVICE])
    for unit in dict.fromkeys([SERVICE, *stopped]):
        steps.run(["systemctl", "start", unit], f"see the reason: journalctl -u {unit} -n 30")
