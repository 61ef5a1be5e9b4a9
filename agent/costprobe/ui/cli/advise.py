"""`costprobe advise`: suggested savings, each with its evidence."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from costprobe.core.money_text import money
from costprobe.domain.advice.exclusive import exclusions, together
from costprobe.domain.advice.hint import Hint, NoHint
from costprobe.domain.advice.registry import advice
from costprobe.ui.cli.support.advice_history import history_of
from costprobe.ui.cli.support.examples import ExampleCommand
from costprobe.ui.cli.support.loaded_config import LoadedConfig, reader_of
from costprobe.ui.cli.support.plan_files import plans_of
from costprobe.ui.cli.support.timespan import Moment
from costprobe.ui.text import local

_TITLES: Mapping[str, str] = {
    "batch": "another batch",
    "idle_hours": "idle hours",
    "mig_slice": "a smaller slice",
    "reserved": "a reservation",
    "cpu": "a processor",
}


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe advise  # what would cost less, from the last 30 days",
        (
            "costprobe advise --since 7d --plans plans.toml"
            "  # also compare reservations that could be bought"
        ),
    ),
)
@click.option("--since", "since_ns", type=Moment(), default="30d", show_default=True)
@click.option(
    "--plans",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="TOML file of [[price]] tables: reservations that could be bought.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.pass_obj
def command(config: str | None, *, since_ns: int, file: Path | None, as_json: bool) -> None:
    """Suggest savings: batch sizes, idle hours, MIG slices, reservations, CPUs.

    Each suggestion has its evidence, its saving a month (730 h) and the amount of data behind it. Without
    enough data there is none, and the output states what is missing. Suggestions that exclude each
    other are marked.
    """
    settings = LoadedConfig(config)
    plans = plans_of(file) if file else []
    with reader_of(settings) as reader:
        history = history_of(settings, reader, since_ns, plans)
    if not history.devices:
        raise click.ClickException(f"no device row since {local(since_ns)}; is the daemon running?")
    hints, no_hints = advice(history)
    if as_json:
        click.echo(json.dumps(_document(hints, no_hints)))
    else:
        click.echo("\n".join(_shown(hints, no_hints)))


def _document(hints: Sequence[Hint], no_hints: Sequence[NoHint]) -> dict[str, Any]:
    excluded = exclusions(hints)
    return {
        "hints": [
            {
                **hint.document(),
                "excludes": [
                    {"hint": other, "reason": reason} for other, reason in excluded[index].items()
                ],
            }
            for index, hint in enumerate(hints)
        ],
        "together": [
            {
                "currency": combined.currency,
                "saving_per_month": str(combined.saving_per_month),
                "hints": list(combined.hints),
            }
            for combined in together(hints)
        ],
        "no_hints": [
            {
                "kind": no_hint.kind,
                "subject": no_hint.subject,
                "reason": no_hint.reason,
                "had": no_hint.had,
                "needed": no_hint.needed or None,
            }
            for no_hint in no_hints
        ],
    }


def _shown(hints: Sequence[Hint], no_hints: Sequence[NoHint]) -> Iterator[str]:
    """Yield the suggestions as readable lines."""
    for index, (hint, excluded) in enumerate(zip(hints, exclusions(hints), strict=True)):
        yield (
            f"{index + 1}. {hint.subject}: {hint.action}, saves"
            f" {money(hint.saving_per_month, hint.currency)} a month"
        )
        yield from (f"     {line}" for line in hint.evidence)
        yield f"     from {hint.had}"
        yield f"     if {'; '.join(hint.assumes)}"
        yield from (f"     not with {other + 1}: {reason}" for other, reason in excluded.items())
    for combined in together(hints):
        numbers = ", ".join(str(index + 1) for index in sorted(combined.hints))
        yield f"together {money(combined.saving_per_month, combined.currency)} a month: {numbers}"
    if not hints:
        yield "no suggestion"
    for title, is_short in (("not enough data", True), ("nothing to save", False)):
        lines = [_line(no_hint) for no_hint in no_hints if bool(no_hint.needed) is is_short]
        if lines:
            yield title
            yield from lines


def _line(no_hint: NoHint) -> str:
    needed = f"; needed: {no_hint.needed}" if no_hint.needed else ""
    title = _TITLES[no_hint.kind]
    return f"  {no_hint.subject}, {title}: {no_hint.reason} (had: {no_hint.had}{needed})"
