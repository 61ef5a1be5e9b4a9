"""The commands page: every command, argument, option and example, from the click tree."""

from __future__ import annotations

from collections.abc import Iterator

import click
from costprobe.ui.cli.main import main
from costprobe.ui.cli.support.command_classes import commands_of, examples_of
from costprobe.ui.cli.support.place import EXIT_CODES

from scripts.reference.markdown import MADE, Tables, code, table

_HEAD = """\
# Commands

`costprobe --help` and `costprobe COMMAND --help` have the same content as this page, and so has `man costprobe`.
`costprobe completion bash|zsh|fish` prints a completion script.
"""
_ENVIRONMENT = """\
## Environment

| variable | meaning |
| --- | --- |
| `COSTPROBE_CONFIG` | the configuration file, unless an option names one |
| `NO_COLOR` | set and not empty: no colours |
"""


def render() -> str:
    """Return the page."""
    found = [*commands()]
    options = Tables(
        ("option", "meaning"),
        [_options(command) for _, command, _ in found],
        least=3,
        where="[Shared](#options-of-several-commands)",
    )
    lines = [
        MADE,
        _HEAD,
        table(
            ["exit code", "meaning"], [[str(number), words] for number, words in EXIT_CODES.items()]
        ),
        "",
        "## Options of all commands",
        "",
        *options.lines(_options(main)),
        *_examples(main),
        "## Options of several commands",
        "",
        options.shared,
        "",
        _ENVIRONMENT,
    ]
    for path, command, level in found:
        lines += [f"{'#' * level} {code(f'costprobe {path}')}", ""]
        context = click.Context(command, info_name=path)
        arguments = " ".join(
            piece for one in command.params for piece in one.get_usage_pieces(context)
        )
        lines += [f"Arguments: {code(arguments)}", ""] if arguments else []
        lines += _paragraphs(command.help or "")
        lines += options.lines(_options(command))
        lines += _examples(command)
    return "\n".join(lines).rstrip() + "\n"


def commands() -> Iterator[tuple[str, click.Command, int]]:
    """Yield every command with its path and the level of its heading."""
    for name, command in commands_of(main).items():
        yield from _tree(name, command, 2)


def without_words() -> list[str]:
    """Return commands and options without help, and commands without examples."""
    missing = []
    for path, command, _ in commands():
        if not command.help:
            missing.append(path)
        if not examples_of(command):
            missing.append(f"{path}: examples")
        missing += [
            f"{path} {option.opts[0]}" for option in _shown_options(command) if not option.help
        ]
    return missing


def _tree(
    path: str, command: click.Command, level: int
) -> Iterator[tuple[str, click.Command, int]]:
    yield path, command, level
    if isinstance(command, click.Group):
        for name, inner in commands_of(command).items():
            yield from _tree(f"{path} {name}", inner, level + 1)


def _shown_options(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option) and not one.hidden]


def _options(command: click.Command) -> list[list[str]]:
    context = click.Context(command, info_name="costprobe", terminal_width=80)
    rows = []
    for option in _shown_options(command):
        record = option.get_help_record(context)
        if record is not None:
            rows.append([code(record[0]), record[1]])
    return rows


def _examples(command: click.Command) -> list[str]:
    lines = [example.split("  # ") for example in examples_of(command)]
    shown = [text for line, does in lines for text in (f"# {does}", line)]
    return ["```bash", *shown, "```", ""] if shown else []


def _paragraphs(help_text: str) -> list[str]:
    found = []
    for paragraph in help_text.split("\n\n"):
        # Click leaves a paragraph that begins with \b as it is written.
        if paragraph.lstrip(" ").startswith("\b"):
            found += ["```text", paragraph.replace("\b", "").strip("\n"), "```", ""]
        elif paragraph.strip():
            found += [" ".join(paragraph.split()), ""]
    return found
