"""How a step of the installation is run, told, and fails: with what to do about it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click

COMMAND_TIMEOUT_S: Final = 300.0
WORDS_MAX: Final = 12


class StepError(click.ClickException):
    """A step that failed; what was done before it stays, and the same command goes on from there."""


class Steps:
    """Runs steps one after the other and tells each.

    Args:
        say: Takes one line for a person.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    def run(
        self,
        command: Sequence[str],
        fix: str,
        *,
        timeout_s: float = COMMAND_TIMEOUT_S,
        env: Mapping[str, str] | None = None,
    ) -> str:
        """Runs a program and tells it; what it wrote on its standard output.

        Args:
            command: Program and arguments.
            fix: What a person can do where it fails.
            timeout_s: Its longest duration in seconds.
            env: Its environment; ours by default.

        Raises:
            StepError: It is not there, failed, or took too long.
        """
        self.say(f"  {shlex.join(command)}")
        return self.ask(command, fix, timeout_s=timeout_s, env=env)

    def ask(
        self,
        command: Sequence[str],
        fix: str,
        *,
        timeout_s: float = COMMAND_TIMEOUT_S,
        env: Mapping[str, str] | None = None,
    ) -> str:
        """As `run`, for a question that changes nothing and is not told.

        Raises:
            StepError: As for `run`.
        """
        try:
            done = subprocess.run(  # noqa: S603 - a program of the table above, no shell
                list(command),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
                env=env,
                stdin=subprocess.DEVNULL,
            )
        except OSError as error:
            raise StepError(f"{command[0]}: {error.strerror}; {fix}") from error
        except subprocess.TimeoutExpired as error:
            raise StepError(f"{shlex.join(command)}: no end in {timeout_s:.0f} s; {fix}") from error
        if done.returncode != 0:
            words = (done.stderr.strip() or done.stdout.strip()).splitlines()[-WORDS_MAX:]
            told = "\n".join(f"  {word}" for word in words)
            raise StepError("\n".join([f"{shlex.join(command)} failed:", told, fix]))
        return done.stdout

    def attempt(self, command: Sequence[str], *, timeout_s: float = COMMAND_TIMEOUT_S) -> bool:
        """Runs what may fail without harm, such as stopping what does not run; True if it worked."""
        if shutil.which(command[0]) is None:
            return False
        try:
            self.run(command, "it is not needed", timeout_s=timeout_s)
        except StepError as error:
            # The last line is the fix; the one before it is what the program said last.
            self.say(f"    not done: {error.message.splitlines()[-2:][0].strip()}")
            return False
        return True
