"""The manual page: every command, option and example, from the click tree."""

from __future__ import annotations

from collections.abc import Iterator

import click
from costprobe import __version__
from costprobe.ui.cli.main import main
from costprobe.ui.cli.support.command_classes import examples_of

from scripts.reference.commands import commands


def _roff(text: str) -> str:
    """Escape text for roff."""
    plain = " ".join(text.replace("\b", "").split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def _options_of(command: click.Command) -> Iterator[str]:
    """Yield the lines of a command's options."""
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            context = click.Context(command, info_name="costprobe", terminal_width=80)
            names, help_text = option.get_help_record(context) or ("", "")
            yield from (".TP", f".B {_roff(names)}", _roff(help_text or "See above."))


def _examples_lines(command: click.Command) -> Iterator[str]:
    """Yield the examples of a command."""
    examples = [example.split("  # ") for example in examples_of(command)]
    if examples:
        lines = (text for line, does in examples for text in (f"# {does}", line))
        yield from (".PP", "Examples:", ".PP", ".nf", *map(_roff, lines), ".fi")


def _command_lines(path: str, command: click.Command) -> Iterator[str]:
    """Yield the lines of a command."""
    usage = " ".join(command.collect_usage_pieces(click.Context(command)))
    yield f'.SS "{_roff(path)} {_roff(usage)}"'
    for paragraph in (command.help or "").split("\n\n"):
        if paragraph.lstrip().startswith("\b"):
            # click's mark for lines that are not rewrapped.
            lines = paragraph.replace("\b", "").strip().splitlines()
            yield from (".PP", ".nf", *map(_roff, lines), ".fi")
        elif paragraph.strip():
            yield from (".PP", _roff(paragraph))
    yield from _options_of(command)
    yield from _examples_lines(command)


def render() -> str:
    """Return the page, without a date, so that it changes only with the commands."""
    lines = [
        f'.TH COSTPROBE 1 "" "costprobe {__version__}" "costprobe"',
        ".SH NAME",
        "costprobe \\- cost per inference of this host, and why it changed",
        ".SH SYNOPSIS",
        ".B costprobe",
        "[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGS\\fR]...",
        ".SH DESCRIPTION",
        _roff(main.help or ""),
        ".SH OPTIONS",
        *_options_of(main),
        *_examples_lines(main),
        ".SH COMMANDS",
    ]
    for path, command, _ in commands():
        lines += _command_lines(path, command)
    lines += [
        ".SH ENVIRONMENT",
        ".TP",
        ".B COSTPROBE_CONFIG",
        "The configuration file, unless it is set by an option.",
        ".TP",
        ".B NO_COLOR",
        "If set and not empty: no colours, even on a terminal.",
        ".TP",
        ".B TERM",
        "If it is dumb: no colours.",
        ".SH FILES",
        ".TP",
        ".I /etc/costprobe/costprobe.toml",
        "The configuration.",
        ".TP",
        ".I /var/lib/costprobe/costprobe.db",
        "The store.",
    ]
    return "\n".join(lines) + "\n"
