"""The page of the commands: every command, argument and option, from the click tree."""

from __future__ import annotations

from collections.abc import Iterator

import click

from agent.cli.main import COMMANDS, main
from scripts.reference.markdown import MADE, code, table

_HEAD = """\
# Commands

`infercost --help` and `infercost COMMAND --help` say the same as this page, and so does `man infercost`.
`infercost completion bash|zsh|fish` prints what a shell needs to complete them.

| code | means |
| --- | --- |
| 0 | it was done |
| 1 | it could not be done, or a check found something |
| 2 | what was given cannot be used: an option, an argument, the configuration |
"""
# What options mean wherever they stand, for those that do not say it themselves.
_SHARED = {"--since": 'From when on: a time ago, such as "7d", or a date.'}
_ENVIRONMENT = """\
## Environment

| variable | is |
| --- | --- |
| `INFERCOST_CONFIG` | the configuration file, where no option names it |
| `NO_COLOR` | set and not empty: no colours, on a terminal either |
"""


def render() -> str:
    """The page."""
    lines = [MADE, _HEAD, "## Options of all commands", "", *_options(main), _ENVIRONMENT]
    for path, command, level in commands():
        context = click.Context(command, info_name=path)
        usage = " ".join(command.collect_usage_pieces(context))
        lines += [f"{'#' * level} {code(f'infercost {path}')}", ""]
        lines += ["```text", f"infercost {path} {usage}".rstrip(), "```", ""]
        lines += _paragraphs(command.help or "")
        lines += _options(command)
    return "\n".join(lines).rstrip() + "\n"


def commands() -> Iterator[tuple[str, click.Command, int]]:
    """Every command with its name behind `infercost` and the level of its heading."""
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        if command is None:
            raise RuntimeError(f"{name} is in the table of commands and cannot be loaded")
        yield from _tree(name, command, 2)


def without_words() -> list[str]:
    """Commands and options that say nothing of themselves."""
    missing = []
    for path, command, _ in commands():
        if not command.help:
            missing.append(path)
        missing += [
            f"{path} {option.opts[0]}"
            for option in _shown_options(command)
            if not option.help and option.opts[0] not in _SHARED
        ]
    return missing


def _tree(
    path: str, command: click.Command, level: int
) -> Iterator[tuple[str, click.Command, int]]:
    yield path, command, level
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _tree(f"{path} {name}", inner, level + 1)


def _shown_options(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option) and not one.hidden]


def _options(command: click.Command) -> list[str]:
    context = click.Context(command, info_name="infercost", terminal_width=80)
    rows = []
    for option in _shown_options(command):
        record = option.get_help_record(context)
        if record is not None:
            shared = "" if option.help else _SHARED.get(option.opts[0], "")
            rows.append([code(record[0]), f"{shared} {record[1]}".strip()])
    return [table(["option", "does"], rows), ""] if rows else []


def _paragraphs(help_text: str) -> list[str]:
    found = []
    for paragraph in help_text.split("\n\n"):
        # Click leaves a paragraph that begins with \b as it is written.
        if paragraph.lstrip(" ").startswith("\b"):
            found += ["```text", paragraph.replace("\b", "").strip("\n"), "```", ""]
        elif paragraph.strip():
            found += [" ".join(paragraph.split()), ""]
    return found
