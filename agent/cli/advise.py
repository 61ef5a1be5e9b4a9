"""`infercost advise`: what would cost less, with evidence, saving and how much data it had."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from agent.advising.exclusive import exclusions, together
from agent.advising.hint import Hint, Unsaid
from agent.advising.registry import advice
from agent.cli.past import history_of
from agent.cli.settings import Settings, reader_of
from agent.cli.timespan import Moment, local
from agent.cli.what_if import plans_of

_TITLES: Mapping[str, str] = {
    "batch": "another batch",
    "idle_hours": "idle hours",
    "mig_slice": "a smaller slice",
    "reserved": "a reservation",
    "cpu": "a processor",
}


@click.command()
@click.option("--since", "since_ns", type=Moment(), default="30d", show_default=True)
@click.option(
    "--plans",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A TOML file of [[price]] tables: reservations that could be taken.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.pass_obj
def command(config: str | None, *, since_ns: int, file: Path | None, as_json: bool) -> None:
    """Looks for what would cost less: batches, idle hours, slices, reservations, processors.

    Every hint has its evidence, its saving a month of 730 h and how much data it had. Without enough
    data there is none, and it is said what is needed. Hints that exclude each other say so.
    """
    settings = Settings(config)
    plans = plans_of(file) if file else []
    with reader_of(settings) as reader:
        history = history_of(settings, reader, since_ns, plans)
    if not history.devices:
        raise click.ClickException(f"no device row since {local(since_ns)}; is the daemon running?")
    hints, unsaid = advice(history)
    if as_json:
        click.echo(json.dumps(_document(hints, unsaid)))
    else:
        click.echo("\n".join(_shown(hints, unsaid)))


def _document(hints: Sequence[Hint], unsaid: Sequence[Unsaid]) -> dict[str, Any]:
    excluded = exclusions(hints)
    return {
        "hints": [
            {
                "kind": hint.kind,
                "subject": hint.subject,
                "devices": list(hint.devices),
                "action": hint.action,
                "saving_per_month": str(hint.saving_per_month),
                "currency": hint.currency,
                "evidence": list(hint.evidence),
                "had": hint.had,
                "assumes": list(hint.assumes),
                "excludes": [
                    {"hint": other, "reason": reason} for other, reason in excluded[index].items()
                ],
            }
            for index, hint in enumerate(hints)
        ],
        "together": [
            {
                "currency": one.currency,
                "saving_per_month": str(one.saving_per_month),
                "hints": list(one.hints),
            }
            for one in together(hints)
        ],
        "unsaid": [
            {
                "kind": one.kind,
                "subject": one.subject,
                "reason": one.reason,
                "had": one.had,
                "needed": one.needed or None,
            }
            for one in unsaid
        ],
    }


def _shown(hints: Sequence[Hint], unsaid: Sequence[Unsaid]) -> Iterator[str]:
    """What was found, for people."""
    for index, (hint, excluded) in enumerate(zip(hints, exclusions(hints), strict=True)):
        yield (
            f"{index + 1}. {hint.subject}: {hint.action}, saves {hint.saving_per_month}"
            f" {hint.currency} a month"
        )
        yield from (f"     {line}" for line in hint.evidence)
        yield f"     from {hint.had}"
        yield f"     if {'; '.join(hint.assumes)}"
        yield from (f"     not with {other + 1}: {why}" for other, why in excluded.items())
    for one in together(hints):
        numbers = ", ".join(str(index + 1) for index in sorted(one.hints))
        yield f"together {one.saving_per_month} {one.currency} a month: {numbers}"
    if not hints:
        yield "nothing to advise"
    for title, wanted in (("not enough data", True), ("nothing to save", False)):
        lines = [_line(one) for one in unsaid if bool(one.needed) is wanted]
        if lines:
            yield title
            yield from lines


def _line(one: Unsaid) -> str:
    needed = f"; needed: {one.needed}" if one.needed else ""
    return f"  {one.subject}, {_TITLES[one.kind]}: {one.reason} (had: {one.had}{needed})"
