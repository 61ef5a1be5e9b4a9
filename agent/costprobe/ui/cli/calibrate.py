"""`costprobe calibrate`: device time and energy of a service's input and output tokens."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

import click

from costprobe.adapters.engines.exposition import ScrapeError
from costprobe.configuration import Config
from costprobe.core.money import money
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.schema import part_words
from costprobe.core.units import counted
from costprobe.probing.cost import ProbeRun
from costprobe.probing.load_curve import (
    DEADLINE_MARGIN_S,
    POINT_OVERHEAD_S,
    LoadStep,
    longest_point_s,
)
from costprobe.probing.load_settings import LATENCY_RISE_MAX
from costprobe.probing.settings import OpenAiProbeConfig
from costprobe.savings.gather import probes_of
from costprobe.serving.latency_watch import ProductionWatch, watched
from costprobe.serving.settings import ServiceConfig
from costprobe.serving.tokens import (
    CACHED_SHARE,
    CalibrationWindow,
    LengthMix,
    calibrated,
    calibration_mixes,
    calibration_point,
    production_load,
)
from costprobe.ui.amounts import si
from costprobe.ui.cli.bench import Bench, keep, open_bench
from costprobe.ui.cli.load import check_idle, in_maintenance
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.known_names import PROBES, SERVICES, unknown_name
from costprobe.ui.cli.support.output import echo, echo_json, echo_lines
from costprobe.ui.cli.support.place import Settings, bad_input, reader_of
from costprobe.ui.text import ago

REPEATS = 2
# How tokens must be counted: by the server.
COUNTED = "usage"
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
    settings = Settings(config)
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


def _measured(settings: Settings, planned: PlannedLoad, *, agreed: bool) -> Point:
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
        _check_alone(bench, settings.config)
        # The probe as the daemon runs it: its fingerprint tells later whether the server changed.
        fingerprint = bench.run(probe.model_copy(update={"energy": False})).fingerprint
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


def _check_alone(bench: Bench, config: Config) -> None:
    """Check that no service on these devices has requests, whose device time would be counted.

    Raises:
        click.ClickException: One has, or its metrics cannot be read.
    """
    services = watched(config.service, bench.devices)
    try:
        watch = ProductionWatch(services, LATENCY_RISE_MAX, bench.wait)
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


def _window(run: ProbeRun, devices: int, *, keeps_cached: bool) -> CalibrationWindow:
    """Return what a run measured.

    Raises:
        click.ClickException: The server does not count its tokens.
    """
    tokens_in, tokens_out = run.window_tokens_in, run.window_tokens_out
    if tokens_in is None or tokens_out is None or run.token_source != COUNTED:
        raise click.ClickException(
            f"{run.probe}: the server does not count tokens in its answers (`usage`), which a"
            " calibration needs"
        )
    cached = (run.cached_tokens or 0.0) * run.inferences
    return CalibrationWindow(
        requests=run.inferences,
        tokens_in=max(0.0, tokens_in - cached),
        tokens_out=tokens_out,
        device_s=run.window_s * devices,
        energy_j=None if run.window_energy is None else run.window_energy.energy_j,
        decode_steps=run.decode_steps or 0.0,
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


_UNCACHED = (
    "not measured, they weigh 0: the server's answers reported no cached tokens (vLLM:"
    " --enable-prompt-tokens-details, SGLang: --enable-cache-report)"
)


def calibration_document(row: Point) -> dict[str, Any]:
    """Return a calibration as JSON, from its row."""
    names = [
        f"{what}_per_million_tokens_{kind}{end}_{unit}"
        for what, unit in (("time", "s"), ("energy", "j"))
        for kind in ("in", "cached", "out")
        for end in ("", "_low", "_high")
    ]
    tags = {name: row.tags.get(name) for name in ("service", "probe", "device")}
    own = ("prompt_s", "token_in_s", "token_out_s", "context_token_s", "cached_token_s")
    others = (*own, "tokens_in", "tokens_out", "in_flight", "windows", "fingerprint")
    fields = {name: row.fields.get(name) for name in (*others, *names)}
    return {"time_ns": row.time_ns, **tags, **fields}


def calibration_lines(document: dict[str, Any], load: str) -> list[str]:
    """Return a calibration in words.

    Args:
        document: The calibration as JSON.
        load: Its load in words.
    """
    place = f"{document['service']} on {document['device']}, {load}"
    lines = [f"{place}: {counted(document['windows'], 'window')}, intervals of 95 %"]
    kinds = (("in", "tokens in"), ("cached", "cached tokens in"), ("out", "tokens out"))
    for kind, words in kinds:
        parts = []
        for name, unit in (("time", "s"), ("energy", "j")):
            value, low, high = (
                document[f"{name}_per_million_tokens_{kind}{end}_{unit}"]
                for end in ("", "_low", "_high")
            )
            if value is not None:
                shown = partial(si, unit="J") if unit == "j" else _device_s
                parts.append(f"{shown(value)} ({shown(low)} to {shown(high)})")
        lines.append(f"  a million {words}: {', '.join(parts) or _UNCACHED}")
    return lines


def _device_s(value: float) -> str:
    return f"{value:,.4g} device-s"


PRODUCTION_S = 86_400


class PlannedLoad(NamedTuple):
    """What a calibration measures.

    Attributes:
        service: The service.
        probe: A probe of one of its servers.
        mix: Mean lengths of its requests.
        in_flight: Requests in flight.
    """

    service: ServiceConfig
    probe: OpenAiProbeConfig
    mix: LengthMix
    in_flight: int

    @property
    def text(self) -> str:
        """The load in words."""
        return (
            f"{counted(self.in_flight, 'request')} in flight of about {self.mix.tokens_in:,.0f}"
            f" tokens in and {self.mix.tokens_out:,.0f} out"
        )


def planned_load(
    settings: Settings,
    name: str,
    probe_name: str | None,
    asked: tuple[int | None, int | None, int | None],
) -> PlannedLoad:
    """Return what a calibration of a service measures.

    Args:
        settings: The configuration.
        name: The service.
        probe_name: The probe that sends the requests; None for the one with its address.
        asked: Requests in flight, and tokens in and out of a request; None for those of production.

    Raises:
        click.ClickException: No such service or probe, or its load is unknown.
    """
    services = {service.name: service for service in settings.config.service}
    if name not in services:
        raise unknown_name("service", name, services)
    service = services[name]
    if not service.url or service.has_one_kind:
        raise bad_input(f"{name} cannot be calibrated, as {part_words(service.row_tags)}")
    probe = _probe_of(settings.config, service, probe_name)
    in_flight, tokens_in, tokens_out = asked
    mix: LengthMix | None = None
    if in_flight is None or tokens_in is None or tokens_out is None:
        now_ns = time.time_ns()
        with reader_of(settings) as reader:
            since_ns = now_ns - PRODUCTION_S * NS_PER_S
            found = reader.points("serving", since_ns, now_ns, {"service": name})
            rows = [row for row in found if "served_model" not in row.tags]
        load = production_load(rows, len(service.url))
        in_flight = in_flight or load.in_flight
        mix = load.mix
    lengths = {
        "--tokens-in": tokens_in or (mix and mix.tokens_in),
        "--tokens-out": tokens_out or (mix and mix.tokens_out),
    }
    wanted = {"--in-flight": in_flight, **lengths}
    unknown = [option for option, value in wanted.items() if value is None]
    if unknown or in_flight is None:
        raise bad_input(f"{name}: its load of the last 24 h is unknown; give {', '.join(unknown)}")
    return PlannedLoad(service, probe, LengthMix(*(x or 0.0 for x in lengths.values())), in_flight)


def _probe_of(config: Config, service: ServiceConfig, name: str | None) -> OpenAiProbeConfig:
    """Return the probe of a server of a service: the named one, or the first with its address."""
    probes = [probe for probe in config.probe if isinstance(probe, OpenAiProbeConfig)]
    if name is not None:
        for probe in probes:
            if probe.name == name:
                return probe
        raise unknown_name("openai probe", name, [probe.name for probe in probes])
    for found in probes_of(config.probe, service):
        if isinstance(found, OpenAiProbeConfig):
            return found
    raise bad_input(
        f'{service.name}: no [[probe]] of kind = "openai" has its address; add one with'
        f' url = "{service.url[0]}", or name one with --probe'
    )
