"""`infercost service`: puts the daemon on a host under systemd, and takes it away again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import click

from agent import __version__
from agent.cli import service_files as files
from agent.cli.service_files import CONFIG, DASHBOARD, FILES, SERVICE, USER, VENV
from agent.cli.service_steps import StepError, Steps
from agent.cli.service_venv import install_packages, make_venv, with_page
from agent.cli.settings import bad_input

HOST = Path("/")
READABLE_BY_ALL = 0o022
_ROOT_OPTION = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=HOST,
    help="Work on the system below this folder, as for an image: nothing is started.",
)
_JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="The steps, as JSON.")


@click.group()
def command() -> None:
    """Puts the daemon on this host under systemd, and takes it away again."""


@command.command()
@_ROOT_OPTION
@click.option("--python", help="The Python to make the environment of (default: one that fits).")
@click.option("--from", "source", help="What pip installs (default: this source tree or version).")
@click.option("--no-start", is_flag=True, help="Neither start the service nor restart it.")
@_JSON_OPTION
def install(
    root: Path, python: str | None, source: str | None, *, no_start: bool, as_json: bool
) -> None:
    """Installs the service, or upgrades it; what is there already is kept.

    The environment goes to /opt/infercost, the units and their like below /usr/local/lib, an example
    configuration to /etc/infercost where there is none. With --root the environment is left out, for
    it works only where it was made.
    """
    _check(root)
    os.umask(READABLE_BY_ALL)
    told, say = _teller(as_json=as_json)
    steps = Steps(say)
    on_host = root == HOST
    try:
        if on_host:
            _install_environment(root, python, source, steps)
        _put_files(root, steps)
        _make_user_and_grants(root, steps)
        if on_host:
            _start(steps, starts=not no_start)
        else:
            steps.run(["systemctl", f"--root={root}", "enable", SERVICE], "is systemd installed?")
    except OSError as error:
        raise StepError(
            f"{error.filename or root}: {error.strerror}; is the disk writable?"
        ) from error
    if as_json:
        document = {"root": str(root), "steps": told, "config": str(root / CONFIG)}
        click.echo(json.dumps(document))
        return
    click.echo(f"installed; the configuration is {root / CONFIG}")


@command.command()
@_ROOT_OPTION
@click.option("--purge", is_flag=True, help="Delete configuration, store and user as well.")
@_JSON_OPTION
def uninstall(root: Path, *, purge: bool, as_json: bool) -> None:
    """Stops the service and deletes it; the configuration and the store stay.

    With --purge nothing stays but the journal's lines, which systemd deletes in its time.
    """
    _check(root)
    told, say = _teller(as_json=as_json)
    steps = Steps(say)
    try:
        _stop(root, steps)
        _remove_program(root, steps)
        kept = [] if purge else _kept(root)
        if purge:
            _purge(root, steps)
        if root == HOST:
            steps.attempt(["systemctl", "daemon-reload"])
            steps.attempt(["systemctl", "reset-failed", SERVICE, DASHBOARD])
    except OSError as error:
        raise StepError(
            f"{error.filename or root}: {error.strerror}; is the disk writable?"
        ) from error
    if as_json:
        click.echo(json.dumps({"root": str(root), "steps": told, "kept": kept}))
        return
    for line in kept:
        click.echo(line)
    click.echo("uninstalled" if purge or not kept else "uninstalled; --purge deletes what is left")


def _teller(*, as_json: bool) -> tuple[list[str], Callable[[str], None]]:
    """What takes a line for a person, and the lines that JSON is made of.

    With --json people have them on standard error, also where a step fails and no JSON is printed.
    """
    told: list[str] = []

    def say(line: str) -> None:
        told.append(line.strip())
        click.echo(line, err=as_json)

    return told, say


def _check(root: Path) -> None:
    """Says what is missing before anything is changed."""
    if os.geteuid() != 0:
        raise bad_input("the service belongs to root; run it as root, as with sudo")
    if root == HOST and not Path("/run/systemd/system").is_dir():
        raise bad_input(
            "systemd does not run here; use `infercost run` under what does, or --root for an image"
        )


def _install_environment(root: Path, python: str | None, source: str | None, steps: Steps) -> None:
    """The virtual environment, with this version or the one that was named."""
    venv = root / VENV
    wanted = with_page(source or str(files.checkout() or f"infercost=={__version__}"))
    steps.say(f"{venv}: installing {wanted}")
    make_venv(venv, python, steps)
    install_packages(venv, wanted, steps)


def _put_files(root: Path, steps: Steps) -> None:
    """Units, users, grants, the program on the path, and a configuration where there is none."""
    sources = files.unit_sources(root / VENV if root == HOST else None)
    if sources is None:
        raise StepError(f"no {SERVICE} came with the program; install it from its source tree")
    for name, target in FILES.items():
        changed = files.put(sources / name, root / target)
        steps.say(f"{root / target}: {'written' if changed else 'as it was'}")
    config = root / CONFIG
    if config.exists():
        steps.say(f"{config}: kept")
    else:
        files.put(sources / files.EXAMPLE, config)
        steps.say(f"{config}: written, an example; put your prices and your database into it")
    if files.link(root):
        steps.say(f"{root / files.LINK}: written")
    elif not files.is_our_link(root):
        steps.say(f"{root / files.LINK}: is another program and stays")
    for path in files.shadows(root):
        steps.say(f"{path}: takes the place of the installed file; delete it unless you mean it")


def _make_user_and_grants(root: Path, steps: Steps) -> None:
    """The user, and what its group may read."""
    where = [] if root == HOST else [f"--root={root}"]
    steps.run(["systemd-sysusers", *where, str(root / files.SYSUSERS)], "is /etc/passwd writable?")
    steps.run(
        ["systemd-tmpfiles", *where, "--create", str(root / files.TMPFILES)],
        "is the user infercost in /etc/passwd?",
    )
    if root == HOST and Path("/run/udev/control").exists():
        steps.attempt(["udevadm", "control", "--reload"])


def _start(steps: Steps, *, starts: bool) -> None:
    """Starts what was installed, or starts it anew; a bad configuration leaves all as it runs."""
    steps.run(["systemctl", "daemon-reload"], "is systemd well? systemctl status")
    steps.run(["systemctl", "enable", SERVICE], "is /etc/systemd/system writable?")
    program = str(HOST / VENV / "bin/infercost")
    steps.run(
        [program, "--config", str(HOST / CONFIG), "config", "check"],
        "all is installed and nothing was restarted; mend the configuration, then:"
        " systemctl restart infercost",
    )
    if starts:
        # As after a crash loop: an operator who installs wants it to be tried again.
        steps.attempt(["systemctl", "reset-failed", SERVICE])
        steps.run(["systemctl", "restart", SERVICE], "see why: journalctl -u infercost -n 30")
        steps.run(["systemctl", "try-restart", DASHBOARD], f"see why: journalctl -u {DASHBOARD}")


def _stop(root: Path, steps: Steps) -> None:
    where = ["--now"] if root == HOST else [f"--root={root}"]
    there = [name for name in (SERVICE, DASHBOARD) if (root / FILES[name]).exists()]
    if there:
        steps.run(
            ["systemctl", "disable", *where, *there], "stop it first: systemctl stop infercost"
        )


def _remove_program(root: Path, steps: Steps) -> None:
    """All that the installation put there and that holds nothing of the operator's."""
    for counter in files.granted_counters(root):
        files.take_back(counter)
        steps.say(f"{counter}: given back to root alone")
    paths = [root / target for target in FILES.values()]
    if files.is_our_link(root):
        paths.append(root / files.LINK)
    venv = root / VENV
    if files.is_venv(venv):
        paths.append(venv)
    elif venv.exists():
        steps.say(f"{venv}: is no virtual environment and stays")
    for path in (*paths, root / files.CACHE):
        if files.remove(path):
            steps.say(f"{path}: deleted")
    files.remove_empty(root)
    if root == HOST and Path("/run/udev/control").exists():
        steps.attempt(["udevadm", "control", "--reload"])


def _kept(root: Path) -> list[str]:
    """What stays, one line for each."""
    kept = [
        f"{root / path}: kept, {what}"
        for path, what in files.KEPT.items()
        if (root / path).exists() and not (root / path).is_symlink()
    ]
    if _has_user(root):
        kept.append(f"the user {USER}: kept, for the store is its own")
    return kept


def _purge(root: Path, steps: Steps) -> None:
    """Configuration, store and user."""
    for path in files.KEPT:
        if files.remove(root / path):
            steps.say(f"{root / path}: deleted")
    if _has_user(root):
        where = [] if root == HOST else ["--prefix", str(root)]
        steps.run(["userdel", *where, USER], f"end what still runs as {USER}: pgrep -u {USER}")


def _has_user(root: Path) -> bool:
    passwd = root / "etc/passwd"
    return passwd.is_file() and any(
        line.startswith(f"{USER}:") for line in passwd.read_text(errors="replace").splitlines()
    )
