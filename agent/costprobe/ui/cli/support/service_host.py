"""What `install` and `uninstall` share: their options, their output, and the host they need."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.place import bad_input
from costprobe.ui.cli.support.service_files import PACKAGED

HOST: Final = Path("/")
ROOT_OPTION = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=HOST,
    help="Install into the system image below this folder; nothing is started.",
)
JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="The steps, as JSON.")


def step_printer(*, as_json: bool) -> tuple[list[str], Callable[[str], None]]:
    """Return a list of lines, for JSON, and the function that prints a line and adds it.

    With --json the lines are printed to stderr, so that they are visible if a step fails.
    """
    printed: list[str] = []

    def log(line: str) -> None:
        printed.append(line.strip())
        echo(line, err=as_json)

    return printed, log


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
