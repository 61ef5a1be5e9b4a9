"""`costprobe calibrate`: device time and energy of a service's input and output tokens."""

from __future__ import annotations

import time
from typing import NamedTuple

import click

from costprobe.adapters.engines.exposition import ScrapeError
from costprobe.configuration import Config
from costprobe.core.money import money
from costprobe.core.records import Point
from costprobe.core.units import counted
from costprobe.probing.load_curve import (
    DEADLINE_MARGIN_S,
    POINT_OVERHEAD_S,
    LoadStep,
    longest_point_s,
)
from costprobe.probing.rows import MeasuredRun
from costprobe.probing.settings import OpenAiProbeConfig
from costprobe.serving.latency_watch import ProductionWatch, watched
from costprobe.serving.tokens import (
    CACHED_SHARE,
    CalibrationWindow,
    LengthMix,
    calibrated,
    calibration_mixes,
    calibration_point,
)
from costprobe.ui.cli.bench import Bench, open_bench
from costprobe.ui.cli.load import check_idle, in_maintenance
from costprobe.ui.cli.support.calibration_load import PlannedLoad, planned_load
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.kept_rows import keep
from costprobe.ui.cli.support.known_names import PROBES, SERVICES
from costprobe.ui.cli.support.loaded_config import LoadedConfig, bad_input
from costprobe.ui.cli.support.output import echo, echo_json, echo_lines
from costprobe.ui.cli.views.calibration_lines import calibration_document, calibration_lines
from costprobe.ui.text import ago

REPEATS = 2
TOKENS_MAX = 100_000


class _Load(NamedTuple):
    """The requests of a window: lengths, how many are in flight, the share that all have in common."""

    mix: LengthMix
    in_flight: int
    shared_prefix: float | None = None


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe calibrate chat --yes  # at the load of the last 24 h",
        "costprobe calibrate chat --in-flight 16 --tokens-in 2000 --tokens-out 250 --yes  # another load",
    ),
)
@click.argument("service", shell_complete=SERVICES)
@click.option(
    "--probe",
    "probe_name",
    shell_complete=PROBES,
    help="Probe that sends the requests (default: the one of kind openai with the service's address).",
)
@click.option(
    "--in-flight",
    type=click.IntRange(1, 1024),
    help="Requests in flight (default: those of the last 24 h).",
)
@click.option(
    "--tokens-in",
    type=click.IntRange(1, TOKENS_MAX),
    help="Mean prompt tokens of a request (default: likewise).",
)
@click.option(
    "--tokens-out",
    type=click.IntRange(2, TOKENS_MAX),
    help="Mean generated tokens of a request (default: likewise).",
)
@click.option("--yes", is_flag=True, help="Put the server under this load.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_obj
def command(  # noqa: PLR0913 - click passes each option
    config: str | None,
    *,
    service: str,
    probe_name: str | None,
    in_flight: int | None,
    tokens_in: int | None,
    tokens_out: int | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Measure the device time and the energy of SERVICE's tokens: in, cached and out; store them.

    It sends prefill-heavy and decode-heavy requests at the concurrency of production, and prompts of
    which the server's prefix cache answers one half. With
    token_split = "calibrated" in its [[service]] the price of its tokens follows. Run it while the
    server has no other traffic.
    """
    settings = LoadedConfig(config)
    planned = planned_load(settings, service, probe_name, (in_flight, tokens_in, tokens_out))
    row = _measured(settings, planned, agreed=yes)
    keep(settings, [row])
    document = calibration_document(row)
    if as_json:
        echo_json(document)
    else:
        echo_lines(calibration_lines(document, planned.text))
        if not planned.service.is_calibrated:
            echo('set token_split = "calibrated" in its [[service]] to price its tokens by this')


def _measured(settings: LoadedConfig, planned: PlannedLoad, *, agreed: bool) -> Point:
    """Measure the windows, and return the row of the calibration."""
    probe = planned.probe
    deadline_s = longest_point_s(probe) + DEADLINE_MARGIN_S
    probe = probe.model_copy(update={"deadline_s": deadline_s})
    loads = [_Load(mix, planned.in_flight) for mix in calibration_mixes(planned.mix)] * REPEATS
    under_load = len(loads)
    if planned.in_flight > 1:
        loads += [_Load(planned.mix, 1)] * REPEATS
    uncached = len(loads)
    loads += [_Load(loads[1].mix, planned.in_flight, CACHED_SHARE)] * REPEATS
    with open_bench(settings, probe, None) as bench:
        labels = {**bench.tags, "device": bench.device, "probe": probe.name}
        echo(_announcement(bench, planned, len(loads)), err=True)
        if not agreed and not in_maintenance(settings.config, labels, time.time_ns()):
            raise bad_input(
                "a calibration puts the server under load: add --yes, or run it within a"
                " [[maintenance]] window"
            )
        check_idle(bench, probe)
        _check_alone(bench, planned, settings.config)
        # The probe as the daemon runs it: its fingerprint tells later whether the server changed.
        fingerprint = bench.run(probe.model_copy(update={"energy": False})).result.fingerprint
        windows = [
            _window(
                bench.run(
                    _loaded(probe, load),
                    load=LoadStep("closed", number, concurrency=load.in_flight),
                ),
                len(bench.devices),
                keeps_cached=load.shared_prefix is not None,
            )
            for number, load in enumerate(loads, 1)
        ]
        bench.bar.clear()
    try:
        # Of a server that does not report its hits it is unknown whether it had some.
        hits = [x for x in windows[uncached:] if x.cached_tokens * 2 > x.tokens_in]
        windows = [*windows[:uncached], *hits]
        found = calibrated(windows[:under_load], planned.mix, windows[under_load:])
    except ValueError as error:
        raise click.ClickException(f"{planned.service.name}: {error}") from error
    return calibration_point(
        found,
        {**labels, "service": planned.service.name},
        time.time_ns(),
        in_flight=planned.in_flight,
        windows=len(windows),
        fingerprint=fingerprint,
    )


def _check_alone(bench: Bench, planned: PlannedLoad, config: Config) -> None:
    """Check that no service on these devices has requests, whose device time would be counted.

    Raises:
        click.ClickException: One has, or its metrics cannot be read.
    """
    services = watched(config.service, bench.devices)
    try:
        watch = ProductionWatch(services, planned.probe.load_curve.latency_rise_max, bench.wait)
        with watch:
            busy = ", ".join(watch.in_production)
    except ScrapeError as error:
        raise click.ClickException(str(error)) from error
    if busy:
        raise click.ClickException(
            f"{busy}: has requests of others, whose device time a calibration would count as its own;"
            " take the server out of the load balancer, and repeat it"
        )


def _loaded(probe: OpenAiProbeConfig, own: _Load) -> OpenAiProbeConfig:
    """Return the probe with requests of other lengths; a cache can answer their shared part only."""
    lengths = {
        "tokens_in": max(1, round(own.mix.tokens_in)),
        "tokens_out": max(2, round(own.mix.tokens_out)),
        "ignore_eos": True,
        "prompts": None,
        "shared_prefix": own.shared_prefix,
    }
    load = probe.load_curve.model_copy(update=lengths)
    return probe.model_copy(update={"load": load, "vary_prompt": True})


def _window(run: MeasuredRun, devices: int, *, keeps_cached: bool) -> CalibrationWindow:
    """Return what a run measured.

    Raises:
        click.ClickException: The server does not count its tokens.
    """
    result = run.result
    source = result.fields.get("token_source")
    if result.tokens_in is None or result.tokens_out is None or source != "usage":
        raise click.ClickException(
            f"{result.probe}: the server does not count tokens in its answers (`usage`), which a"
            " calibration needs"
        )
    cached = result.fields.get("cached_tokens")
    cached = cached * result.inferences if isinstance(cached, float) else 0.0
    return CalibrationWindow(
        requests=result.inferences,
        tokens_in=max(0.0, result.tokens_in - cached),
        tokens_out=result.tokens_out,
        device_s=result.window_s * devices,
        energy_j=None if run.energy is None else run.energy.energy_j,
        decode_steps=run.load.get("decode_steps", 0.0),
        # Of other loads it is the beginning of the chat template, a part of each prompt.
        cached_tokens=cached if keeps_cached else 0.0,
    )


def _announcement(bench: Bench, planned: PlannedLoad, windows: int) -> str:
    load = planned.probe.load_curve
    expected_s = windows * (load.warmup_s + load.window_s + POINT_OVERHEAD_S)
    terms = bench.terms
    cost = ""
    if terms is not None:
        amount = money(terms.per_s * expected_s, terms.rate.currency)
        cost = f"; {amount} at the present price"
    return (
        f"calibration of {planned.service.name} by {planned.probe.name} on {bench.device}:"
        f" {counted(windows, 'window')}, about {ago(expected_s)}, {planned.text}{cost}"
    )
