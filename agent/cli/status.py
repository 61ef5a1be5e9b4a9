"""`infercost status`: what each part is doing, last results, sink lag, faults."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.cli.asking import ask
from agent.cli.colour import Role, painted
from agent.cli.place import Place, reader_of
from agent.cli.status_lines import lines_of

if TYPE_CHECKING:  # the command is to answer at once
    from agent.storage.outbox import SinkStatus

STALE_S = 45.0
NOT_RUNNING = 3
# A daemon that is busy with another request has written its status a moment ago.
ANSWER_S = 1.0
_PAINTED: tuple[tuple[str, Role], ...] = (
    ("  FAULT  ", "bad"),
    ("NOT RUNNING", "bad"),
    (" is exceeded", "bad"),
    ("         critical: ", "bad"),
    ("         warning: ", "note"),
    (" will be exceeded", "note"),
    ("late     ", "note"),
    ("missing counter", "note"),
    (": running for ", "good"),
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The whole status, as JSON.")
@click.pass_obj
def command(config: str | None, *, as_json: bool) -> None:
    """Shows what the daemon says of itself, or last said; exit code 3 if it is not running."""
    place = Place(config)
    stored, told = _stored(place), _told(place)
    # A store that cannot be written tells of the past alone; what is asked tells of now.
    status = {**(stored or {"alerts": [], "outbox": {}}), **told} if told else stored
    if status is None:
        raise click.ClickException(f"{place.store_path}: no daemon has written here yet")
    if as_json:
        click.echo(json.dumps(status))
    else:
        click.echo("\n".join(painted(line, _PAINTED) for line in lines_of(status)))
    sys.exit(0 if status["running"] else NOT_RUNNING)


def _stored(place: Place) -> dict[str, Any] | None:
    """What the daemon last wrote of itself; None if it has written nothing that can be read."""
    try:
        with reader_of(place) as reader:
            states = reader.states()
            sinks = reader.sinks()
    except click.ClickException as error:
        place.check()
        click.echo(error.message, err=True)
        return None
    found = states.get("status")
    if found is None:
        return None
    status: dict[str, Any] = found[0]
    written_ns = found[1]
    status["age_s"] = max(0.0, (time.time_ns() - written_ns) / 1e9)
    status["running"] = is_running(status)
    alerts, _ = states.get("alerts", ({"alerts": []}, 0))
    status["alerts"] = alerts["alerts"]
    status["outbox"] = {sink.sink: outbox_document(sink) for sink in sinks}
    return status


def _told(place: Place) -> dict[str, Any] | None:
    """What the daemon says of itself when it is asked; None where none answers."""
    try:
        status: dict[str, Any] = ask(place, {"do": "status"}, ANSWER_S)
    except click.ClickException:
        return None
    if Path(status["store"]["path"]).resolve() != place.store_path.resolve():
        return None  # the daemon of another store
    return {**status, "age_s": 0.0, "running": True}


def outbox_document(sink: SinkStatus) -> dict[str, Any]:
    """How far a sink has got, as JSON; `lag_s` is the age of the oldest point that waits."""
    oldest_ns = sink.backlog.oldest_time_ns
    return {
        "acked_seq": sink.acked_seq,
        "backlog_points": sink.backlog.points,
        "lag_s": 0.0 if oldest_ns is None else max(0.0, time.time() - oldest_ns / 1e9),
        "sent_points": sink.sent_points,
        "rejected_points": sink.rejected_points,
        "dropped_points": sink.dropped_points,
    }


def is_running(status: dict[str, Any]) -> bool:
    """True if the daemon said so lately and its process is there (or hidden from us)."""
    if status["state"] != "running" or status["age_s"] > STALE_S:
        return False
    try:
        os.kill(status["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
