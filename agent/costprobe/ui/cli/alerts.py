"""`costprobe alerts`: current and past incidents, and a test of the notifiers."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

import click

from costprobe.adapters.store.database import decoding
from costprobe.core.outside import OutsideError, one_line
from costprobe.core.records import END_OF_TIME_NS, NS_PER_S
from costprobe.core.units import counted
from costprobe.ui.cli.silence import silence_line
from costprobe.ui.cli.support.command_classes import ExampleGroup
from costprobe.ui.cli.support.control_client import NoDaemonError, ask
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.known_names import NOTIFIERS, unknown_name
from costprobe.ui.cli.support.option_types import since_option
from costprobe.ui.cli.support.output import (
    SEVERITIES,
    echo,
    echo_coloured,
    echo_json,
    echo_lines,
    paint,
)
from costprobe.ui.cli.support.place import (
    FAILED,
    NOT_RUNNING,
    NotRunningError,
    Settings,
    bad_input,
    reader_of,
)
from costprobe.ui.incidents import hidden_changes, incidents_of, noisy_services
from costprobe.ui.text import ago, in_local_zone, labels_text, local

STALE_S = 150.0
WEEK = "7d"
TEST_TIMEOUT_S = 120.0


@click.group(
    invoke_without_command=True,
    cls=ExampleGroup,
    examples=(
        "costprobe alerts  # incidents that are pending or firing",
        "costprobe alerts --exit-code  # for scripts: exit code 1 if an alert is firing",
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--exit-code",
    is_flag=True,
    help="Exit with code 1 if an alert is firing; with 3 if that is not known, because the daemon"
    " does not answer, or the store cannot be read.",
)
@click.pass_context
def command(ctx: click.Context, *, as_json: bool, exit_code: bool) -> None:
    """List the incidents that are pending or firing now, from the daemon or else the store."""
    if ctx.invoked_subcommand is not None:
        return
    settings = Settings(ctx.obj)
    try:
        with decoding(settings.store_path):
            document = _current(settings)
            lines, status = _lines(document), _exit_code(document)
    except (OutsideError, click.ClickException) as error:
        if not exit_code:
            raise
        raise NotRunningError(str(error)) from error
    if as_json:
        echo_json(document)
    else:
        echo_coloured(lines)
    if exit_code:
        sys.exit(status)


def _current(settings: Settings) -> dict[str, Any]:
    """Return the incidents from the daemon, whose store may be full; else the stored ones."""
    request = {"do": "alerts", "store": str(settings.store_path.resolve())}
    try:
        answer = ask(settings, request)
        reason = "the daemon that answers has another store"
    except click.ClickException as error:  # also while it starts, or is of another version
        answer, reason = None, error.message
    if answer is not None:
        return {**answer, "age_s": 0.0, "source": "daemon"}
    with reader_of(settings) as reader:
        states = reader.states()
    if "alerts" not in states:
        raise NotRunningError(f"{settings.store_path}: no daemon has evaluated alert rules yet")
    stored, written_ns = states["alerts"]
    age_s = max(0.0, (time.time_ns() - written_ns) / NS_PER_S)
    fired = sum(alert["state"] == "firing" for alert in stored["alerts"])
    then = f", when {counted(fired, 'alert')} fired; what fires now is not known" if fired else ""
    echo(f"from the store, as of {ago(age_s)} ago{then}: {reason}", err=True)
    return {"detectable": [], "noisy_services": [], **stored, "age_s": age_s, "source": "store"}


def _exit_code(document: Mapping[str, Any]) -> int:
    if document["source"] != "daemon":
        return NOT_RUNNING
    return FAILED if any(alert["state"] == "firing" for alert in document["alerts"]) else 0


@command.command(
    "history",
    examples=("costprobe alerts history --since 7d  # incidents of the last week",),
)
@since_option(WEEK)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document for each incident.")
@click.pass_obj
def history(config: str | None, *, since_ns: int, as_json: bool) -> None:
    """List the incidents of a time range, oldest first."""
    with reader_of(Settings(config)) as reader:
        incidents = incidents_of(reader.points("alert", since_ns, END_OF_TIME_NS))
    if as_json:
        for incident in incidents:
            echo_json(incident)
    elif incidents:
        echo_lines(
            incident_table([(one, one["fired_ns"], one["resolved_ns"]) for one in incidents])
        )
    else:
        echo("no incident in that time")


def incident_table(
    incidents: Iterable[tuple[Mapping[str, Any], int, int | None]], *, with_detail: bool = False
) -> list[str]:
    """Return incidents that fired as a table.

    Args:
        incidents: Each as JSON, with the UTC ns at which it fired, and was resolved; None while it fires.
        with_detail: Whether its causes are shown, too.
    """
    heads = ("fired", "lasted", "severity", "rule", "of", "what")
    rows = []
    for incident, fired_ns, ended_ns in incidents:
        lasted = "still firing" if ended_ns is None else ago((ended_ns - fired_ns) / NS_PER_S)
        of = {name: value for name, value in incident["labels"].items() if name != "host"}
        own = (incident["severity"], incident["name"], labels_text(of))
        texts = [incident["summary"], incident["detail"] if with_detail else ""]
        what = in_local_zone("; ".join(filter(None, texts)), fired_ns)
        rows.append((local(fired_ns), lasted, *(one_line(str(text)) for text in own), what))
    return table_lines([heads, *rows], len(heads), (0, 1, 2, 4, 3, 0), has_prose=True)


@command.command(
    "test",
    examples=("costprobe alerts test pager  # send a test alert through one notifier",),
)
@click.argument("notifier", required=False, shell_complete=NOTIFIERS)
@click.pass_obj
def test(config: str | None, *, notifier: str | None) -> None:
    """Send a test alert through one notifier, or through all; exit code 1 if one fails.

    The daemon sends it; this command does if no daemon runs.
    """
    settings = Settings(config)
    try:
        answers = ask(settings, {"do": "test", "notifier": notifier}, TEST_TIMEOUT_S)
    except NoDaemonError:
        # Imported here: a list of incidents needs no notifier.
        from costprobe.adapters.host.host_name import host_tags  # noqa: PLC0415
        from costprobe.delivery.delivery import sample_alert, send_tests  # noqa: PLC0415

        configs = {one.name: one for one in settings.config.notifier}
        alert = sample_alert(time.time_ns(), host_tags(settings.config.host))
        try:
            answers = send_tests(configs, notifier, alert)
        except KeyError:
            raise unknown_name("notifier", str(notifier), configs) from None
    if not answers:
        raise bad_input("no notifier is configured; add a [[notifier]] and reload")
    for name, reason in answers.items():
        echo(f"{name}: {f'FAILED: {reason}' if reason else 'sent'}")
    sys.exit(FAILED if any(answers.values()) else 0)


def _lines(document: Mapping[str, Any]) -> list[str]:
    now_ns = time.time_ns()
    silenced = set(document["silenced"])
    lines = []
    if document["age_s"] > STALE_S:
        words = (
            f"AS OF {ago(document['age_s'])} AGO: the daemon is not running, see costprobe status"
        )
        lines.append(paint(words, "note"))
    if not document["alerts"]:
        lines.append(paint("no alert is firing", "good"))
    for alert in document["alerts"]:
        notes = [
            f"since {local(alert['since_ns'])} ({ago((now_ns - alert['since_ns']) / NS_PER_S)})"
        ]
        notes += ["silenced"] * (alert["id"] in silenced) + ["flapping"] * alert["is_flapping"]
        is_notified = alert["state"] == "firing" and alert["id"] not in silenced
        role = SEVERITIES.get(alert["severity"], "note") if is_notified else "faint"
        head = f"{alert['state'].upper()} {alert['severity']}"
        lines.append(
            f"{paint(head, role)}  "
            + one_line(f"{alert['name']}  {labels_text(alert['labels'])}  {', '.join(notes)}")
        )
        symptoms = alert["symptoms"] if len(alert["symptoms"]) > 1 else ()
        texts = [
            alert["summary"],
            alert.get("detail", ""),
            *(f"- {one['text']}" for one in symptoms),
        ]
        lines += [f"  {in_local_zone(text, alert['since_ns'])}" for text in texts if text]
    hidden = hidden_changes(document.get("detectable", ()))
    hidden += noisy_services(document.get("noisy_services", ()))
    lines += [one_line(text) for text in hidden]
    if document["silences"]:
        lines += [
            "",
            "silences",
            *(one_line(silence_line(s, now_ns)) for s in document["silences"]),
        ]
    return lines
