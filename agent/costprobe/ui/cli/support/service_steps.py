"""The steps of an installation: each is printed, run with a time limit, and fails with a hint."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click

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
    ) -> str:
        """Print a command, run it, and return its standard output.

        Args:
            command: Program and arguments.
            fix: What the user can do if it fails.
            timeout_s: The time limit in s.
            shows_output: Pass the output on to stderr, such as a progress bar, instead of
                returning it.
            env: The environment; None for that of this program.

        Raises:
            StepError: The program does not exist, failed, or exceeded its time limit.
        """
        self.log(f"  {shlex.join(command)}")
        return self.ask(command, fix, timeout_s=timeout_s, shows_output=shows_output, env=env)

    def ask(
        self,
        command: Sequence[str],
        fix: str,
        *,
        timeout_s: float = COMMAND_TIMEOUT_S,
        shows_output: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> str:
        """Run a command that changes nothing, without printing it.

        Raises:
            StepError: As for `run`.
        """
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
