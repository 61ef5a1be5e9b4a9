"""`infercost doctor`: every prerequisite, whether it holds, and how to mend it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping

import click

from agent.cli.checks import (
    Check,
    host_checks,
    notifier_checks,
    sensor_checks,
    sink_checks,
    store_checks,
    torch_checks,
)
from agent.cli.colour import Role, paint
from agent.cli.serving_checks import service_checks
from agent.cli.settings import Settings

_MARKS = {"good": "ok  ", "note": "note", "bad": "BAD "}
_ROLES: Mapping[str, Role] = {"good": "good", "note": "note", "bad": "bad"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The checks, as JSON.")
@click.pass_obj
def command(config: str | None, *, as_json: bool) -> None:
    """Checks every prerequisite and says how to mend what is missing; exit code 1 if any is."""
    found = []
    for check in _checks(Settings(config)):
        found.append(check)
        if not as_json:
            fix = f"\n          fix: {check.fix}" if check.fix else ""
            mark = paint(_MARKS[check.state], _ROLES[check.state])
            click.echo(f"{mark}  {check.name}: {check.detail}{fix}")
    if as_json:
        click.echo(json.dumps([check._asdict() for check in found]))
    sys.exit(any(check.state == "bad" for check in found))


def _checks(settings: Settings) -> Iterator[Check]:
    source = settings.path or "no file: the try-out"
    yield Check("configuration", "good", f"{source}", "")
    yield from sensor_checks(settings.config.telemetry, settings.config.service)
    yield from torch_checks(settings.config.probe)
    yield from service_checks(settings.config.service, os.environ)
    yield from store_checks(settings.store_path)
    yield from sink_checks(settings.config.sink)
    yield from notifier_checks(settings.config.notifier)
    yield from host_checks()
