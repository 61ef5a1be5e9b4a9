"""`costprobe doctor`: every prerequisite, with a fix for each that fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

import click

from costprobe.adapters.host.host_name import host_tag
from costprobe.core.outside import one_line
from costprobe.probing.settings import ProbeConfig
from costprobe.ui.cli.support.checks import (
    Check,
    host_checks,
    module_checks,
    notifier_checks,
    pod_checks,
    secret_checks,
    sensor_checks,
    server_power_checks,
    service_checks,
    sink_checks,
    store_checks,
    torch_checks,
    write_checks,
)
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.output import Role, echo_coloured, echo_json, echo_lines, paint
from costprobe.ui.cli.support.place import Settings

# How long --probes waits for an idle device.
IDLE_WITHIN_S: Final = 10.0
_MARKS = {"good": "ok  ", "note": "note", "bad": "BAD "}
_ROLES: Mapping[str, Role] = {"good": "good", "note": "note", "bad": "bad"}


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe doctor  # check sensors, torch, store, sinks and notifiers",
        "costprobe doctor --probes  # run each probe once, too",
    ),
)
@click.option(
    "--probes",
    is_flag=True,
    help="Run one pass or request of each probe, too; no model on a busy GPU.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
@click.pass_obj
def command(config: str | None, *, probes: bool, as_json: bool) -> None:
    """Check every prerequisite, with a fix for each that fails; exit code 1 if one does."""
    checks = []
    settings = Settings(config)
    for check in chain(_checks(settings), _probe_checks(settings) if probes else ()):
        checks.append(check)
        if not as_json:
            mark = paint(_MARKS[check.state], _ROLES[check.state])
            echo_coloured([f"{mark}  {one_line(f'{check.name}: {check.detail}')}"])
            echo_lines([f"          fix: {check.fix}"] if check.fix else [])
    if as_json:
        echo_json([check._asdict() for check in checks])
    sys.exit(any(check.state == "bad" for check in checks))


def _checks(settings: Settings) -> Iterator[Check]:
    source = settings.path or "no file: demo mode"
    yield Check("configuration", "good", f"{source}", "")
    yield from write_checks(settings.path, settings.config)
    yield from secret_checks(settings.config)
    yield from sensor_checks(settings.config, settings.store_path)
    yield from torch_checks(settings.config.probe)
    yield from service_checks(settings.config.service)
    yield from pod_checks(settings.config.kubernetes, host_tag(settings.config.host))
    yield from server_power_checks(settings.config.server_power)
    yield from store_checks(settings.store_path)
    yield from module_checks(settings.store_path)
    yield from sink_checks(settings.config.sink)
    yield from notifier_checks(settings.config.notifier)
    yield from host_checks()


def _probe_checks(settings: Settings) -> Iterator[Check]:
    """Run each probe once, in its own process and as the daemon's user."""
    from costprobe.ui.cli.bench import open_bench  # noqa: PLC0415 - only with --probes

    for probe in settings.config.probe:
        name = f"run of probe {probe.name}"
        try:
            with open_bench(settings, probe, None, notes=False) as bench:
                is_model = isinstance(probe, ProbeConfig)
                if bench.is_on_cpu or not is_model or bench.wait_idle(IDLE_WITHIN_S):
                    bench.try_once(probe)
                    yield Check(name, "good", f"one answer on {bench.device}", "")
                else:
                    fix = "repeat it when the device is idle"
                    yield Check(name, "note", f"{bench.device} is busy: not run", fix)
        except click.ClickException as error:
            yield Check(name, "bad", error.message, "")
