"""Commands whose `--help` ends with examples, and groups that import a command when it is called.

The man page and the reference show the same examples.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import click

# At the end of a command's name: the same question about all hosts.
FLEET: Final = " --fleet"


class ExampleCommand(click.Command):
    """A command with examples.

    Attributes:
        examples: Shell lines, each with its description as a comment: "costprobe status --watch  # ...".
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:  # noqa: ANN401 - click's arguments
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples below the options."""
        super().format_epilog(ctx, formatter)
        write_examples(self.examples, formatter)


class ExampleGroup(click.Group):
    """A group with examples: its own, else the first one of each of its commands.

    Attributes:
        examples: Shell lines, as in `ExampleCommand`.
    """

    command_class = ExampleCommand

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:  # noqa: ANN401 - click's arguments
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one ends with what can be written instead."""
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            # Imported here: help and completion need no store.
            from costprobe.ui.cli.support.known_names import unknown_name  # noqa: PLC0415
            from costprobe.ui.cli.support.place import bad_input  # noqa: PLC0415

            words = unknown_name("command", args[0], self.list_commands(ctx)).message
            itself = "".join(f"; or: {line.partition('  # ')[0]}" for line in self.examples[:1])
            raise bad_input(words + itself if self.invoke_without_command else words)
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples below the options and commands."""
        super().format_epilog(ctx, formatter)
        write_examples(examples_of(self), formatter)


def examples_of(command: click.Command) -> tuple[str, ...]:
    """Return the examples in the help of a command."""
    direct: tuple[str, ...] = getattr(command, "examples", ())
    if direct or not isinstance(command, click.Group):
        return direct
    inner = (examples_of(one) for one in commands_of(command).values())
    return tuple(examples[0] for examples in inner if examples)


def commands_of(group: click.Group) -> dict[str, click.Command]:
    """Return the commands of a group by name, in the order of the code; a lazy group imports them.

    The same question about all hosts is a command of its own: "spend --fleet".
    """
    names = group.modules if isinstance(group, LazyGroup) else group.commands
    found = {name: group.get_command(click.Context(group), name) for name in names}
    return {name: command for name, command in found.items() if command is not None}


def write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    """Write a section of examples, each on one line, without wrapping."""
    if not examples:
        return
    with formatter.section("Examples"):
        for example in examples:
            line, _, comment = example.partition("  # ")
            formatter.write(f"{'':{formatter.current_indent}}# {comment}\n")
            formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class LazyGroup(ExampleGroup):
    """A group whose commands are imported when they are called.

    Shell completion and `--help` must be fast, and no command should load what only
    another needs.

    Attributes:
        modules: Where each command is, as "package.module:variable".
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:  # noqa: ANN401 - click's arguments
        super().__init__(*args, **kwargs)
        self.modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands, in the order of the table."""
        return [name for name in self.modules if not name.endswith(FLEET)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Load a command; None if there is none of that name."""
        place = self.modules.get(cmd_name)
        if place is None:
            return None
        module, variable = place.split(":")
        # What an import creates stays: to collect meanwhile takes a tenth longer and frees nothing.
        gc.disable()
        try:
            return cast("click.Command", getattr(importlib.import_module(module), variable))
        finally:
            gc.enable()
