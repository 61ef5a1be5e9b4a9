"""`infercost alerts`: what fires now, what fired, and a test of the notifiers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

import click

from agent.cli.asking import ask
from agent.cli.colour import SEVERITIES, paint
from agent.cli.completing import NOTIFIERS
from agent.cli.settings import Settings, reader_of
from agent.cli.silence import silence_line
from agent.cli.timespan import Moment, ago, local
from agent.model import NS_PER_S, Point

STALE_S = 150.0
WEEK = "7d"
END_OF_TIME_NS = 2**63 - 1
TEST_TIMEOUT_S = 120.0
FIRING = 1


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if something fires.")
@click.pass_context
def command(ctx: click.Context, *, as_json: bool, exit_code: bool) -> None:
    """Lists the incidents that are pending or firing now."""
    if ctx.invoked_subcommand is not None:
        return
    settings = Settings(ctx.obj)
    with reader_of(settings) as reader:
        states = reader.states()
    if "alerts" not in states:
        raise click.ClickException(f"{settings.store_path}: no daemon has looked for alerts yet")
    document, written_ns = states["alerts"]
    age_s = max(0.0, (time.time_ns() - written_ns) / NS_PER_S)
    if as_json:
        click.echo(json.dumps({**document, "age_s": age_s}))
    else:
        click.echo("\n".join(_lines(document, age_s)))
    firing = [alert for alert in document["alerts"] if alert["state"] == "firing"]
    sys.exit(FIRING if exit_code and firing else 0)


@command.command("history")
@click.option("--since", "since_ns", type=Moment(), default=WEEK, help='"7d" or a date.')
@click.option("--json", "as_json", is_flag=True, help="A JSON document for each incident.")
@click.pass_obj
def history(config: str | None, *, since_ns: int, as_json: bool) -> None:
    """Lists the incidents that fired in a time, the oldest first."""
    with reader_of(Settings(config)) as reader:
        found = incidents_of(reader.points("alert", since_ns, END_OF_TIME_NS))
    for incident in found:
        click.echo(json.dumps(incident) if as_json else _history_line(incident))
    if not found and not as_json:
        click.echo("nothing fired in that time")


@command.command("test")
@click.argument("notifier", required=False, shell_complete=NOTIFIERS)
@click.option("--json", "as_json", is_flag=True, help="What came of each, as JSON.")
@click.pass_obj
def test(config: str | None, *, notifier: str | None, as_json: bool) -> None:
    """Sends a test through a notifier, or through all; exit code 1 if one fails."""
    answers = ask(Settings(config), {"do": "test", "notifier": notifier}, TEST_TIMEOUT_S)
    if not answers:
        raise click.ClickException("no notifier is configured; add a [[notifier]] and reload")
    if as_json:
        told = [
            {"notifier": name, "sent": not reason, "error": reason or None}
            for name, reason in answers.items()
        ]
        click.echo(json.dumps(told))
    for name, reason in () if as_json else answers.items():
        click.echo(f"{name}: {f'FAILED: {reason}' if reason else 'sent'}")
    sys.exit(1 if any(answers.values()) else 0)


def incidents_of(rows: Iterable[Point]) -> list[dict[str, Any]]:
    """Incidents from rows of `alert` that are in order of time; those that never fired are not told.

    Times are UTC in ns; `resolved_ns` is None for one that still fires.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        identity = str(row.fields.get("id", ""))
        state = row.tags.get("state")
        incident = found.setdefault(
            identity,
            {"id": identity, "name": row.tags.get("rule"), "fired_ns": None, "resolved_ns": None},
        )
        incident["labels"] = {
            tag: value for tag, value in row.tags.items() if tag not in {"rule", "state"}
        }
        incident |= {name: row.fields.get(name) for name in ("severity", "summary", "cause")}
        if state == "firing" and incident["fired_ns"] is None:
            incident["fired_ns"] = row.time_ns
        if state == "resolved":
            incident["resolved_ns"] = row.time_ns
    return [incident for incident in found.values() if incident["fired_ns"] is not None]


def _lines(document: Mapping[str, Any], age_s: float) -> list[str]:
    now_ns = time.time_ns()
    silenced = set(document["silenced"])
    lines = []
    if age_s > STALE_S:
        words = f"AS OF {ago(age_s)} AGO: the daemon does not run, see infercost status"
        lines.append(paint(words, "note"))
    if not document["alerts"]:
        lines.append(paint("nothing fires", "good"))
    for alert in document["alerts"]:
        notes = [
            f"since {local(alert['since_ns'])} ({ago((now_ns - alert['since_ns']) / NS_PER_S)})"
        ]
        notes += ["silenced"] * (alert["id"] in silenced) + ["flapping"] * alert["is_flapping"]
        is_told = alert["state"] == "firing" and alert["id"] not in silenced
        role = SEVERITIES.get(alert["severity"], "note") if is_told else "faint"
        head = f"{alert['state'].upper():8s} {alert['severity']:8s}"
        lines.append(
            f"{paint(head, role)} {alert['name']}  {_labels(alert['labels'])}  {', '.join(notes)}"
        )
        lines.append(f"         {alert['summary']}")
        if len(alert["symptoms"]) > 1:
            lines += [f"         - {symptom['text']}" for symptom in alert["symptoms"]]
    if document["silences"]:
        lines += ["", "silences", *(silence_line(s, now_ns) for s in document["silences"])]
    return lines


def _history_line(incident: Mapping[str, Any]) -> str:
    fired_ns, resolved_ns = incident["fired_ns"], incident["resolved_ns"]
    lasted = (
        "fires still" if resolved_ns is None else f"for {ago((resolved_ns - fired_ns) / NS_PER_S)}"
    )
    return (
        f"{local(fired_ns)}  {lasted:12s}  {incident['severity']:8s}  {incident['name']}"
        f"  {_labels(incident['labels'])}  {incident['summary']}"
    )


def _labels(labels: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(labels.items()))
