"""`costprobe calibrate`: device time and energy of a service's input and output tokens."""

from __future__ import annotations

import time
from typing import NamedTuple
from urllib.parse import urlsplit

import click

from costprobe.adapters.probing.served_settings import OpenAiProbeConfig
from costprobe.adapters.serving.settings import ServiceConfig
from costprobe.app.configuration import Config
from costprobe.app.measuring.load_curve import (
    DEADLINE_MARGIN_S,
    POINT_OVERHEAD_S,
    longest_point_s,
)
from costprobe.core.money_text import money
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.units import counted
from costprobe.domain.costing.load.point import LoadStep
from costprobe.domain.costing.probe.run import MeasuredRun
from costprobe.domain.costing.serving.calibration import (
    CalibrationWindow,
    LengthMix,
    calibrated,
    calibration_mixes,
)
from costprobe.domain.costing.serving.production_load import production_load
from costprobe.domain.costing.serving.stored_calibration import calibration_point
from costprobe.ui.cli.bench import Bench, open_bench
from costprobe.ui.cli.load import in_maintenance
from costprobe.ui.cli.support.examples import ExampleCommand
from costprobe.ui.cli.support.kept_rows import keep
from costprobe.ui.cli.support.known_names import unknown_name
from costprobe.ui.cli.support.loaded_config import LoadedConfig, bad_input, reader_of
from costprobe.ui.cli.support.name_completion import PROBES, SERVICES
from costprobe.ui.cli.support.output import echo, echo_json, echo_lines
from costprobe.ui.cli.views.calibration_lines import calibration_document, calibration_lines
from costprobe.ui.text import ago

REPEATS = 2
PRODUCTION_S = 86_400
TOKENS_MAX = 100_000
_PORTS = {"http": 80, "https": 443}


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
    """Measure the device time and the energy of a token in and a token out of SERVICE, and store them.

    It sends prefill-heavy and decode-heavy requests at the concurrency of production. With
    token_split = "calibrated" in its [[service]] the price of its tokens follows. Run it while the
    server has no other traffic.
    """
    settings = LoadedConfig(config)
    planned = _planned(settings, service, probe_name, (in_flight, tokens_in, tokens_out))
    row = _measured(settings, planned, agreed=yes)
    keep(settings, [row])
    document = calibration_document(row)
    if as_json:
        echo_json(document)
    else:
        echo_lines(calibration_lines(document, planned.text))
        if not planned.service.is_calibrated:
            echo('set token_split = "calibrated" in its [[service]] to price its tokens by this')


def _planned(
    settings: LoadedConfig,
    name: str,
    probe_name: str | None,
    asked: tuple[int | None, int | None, int | None],
) -> PlannedLoad:
    services = {service.name: service for service in settings.config.service}
    if name not in services:
        raise unknown_name("service", name, services)
    service = services[name]
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
    addresses = {_address(url) for url in service.url}
    for probe in probes:
        if _address(probe.url) in addresses:
            return probe
    raise bad_input(
        f'{service.name}: no [[probe]] of kind = "openai" has its address; add one with'
        f' url = "{service.url[0]}", or name one with --probe'
    )


def _address(url: str) -> tuple[str, int | None]:
    parts = urlsplit(url)
    return (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme)


def _measured(settings: LoadedConfig, planned: PlannedLoad, *, agreed: bool) -> Point:
    """Measure the windows, and return the row of the calibration."""
    probe = planned.probe
    deadline_s = longest_point_s(probe) + DEADLINE_MARGIN_S
    probe = probe.model_copy(update={"deadline_s": deadline_s})
    steps = [mix for _ in range(REPEATS) for mix in calibration_mixes(planned.mix)]
    with open_bench(settings, probe, None) as bench:
        labels = {**bench.tags, "device": bench.device, "probe": probe.name}
        echo(_announcement(bench, planned, len(steps)), err=True)
        if not agreed and not in_maintenance(settings.config, labels, time.time_ns()):
            raise bad_input(
                "a calibration puts the server under load: add --yes, or run it within a"
                " [[maintenance]] window"
            )
        # The probe as the daemon runs it: its fingerprint tells later whether the server changed.
        fingerprint = bench.run(probe.model_copy(update={"energy": False})).result.fingerprint
        windows = [
            _window(bench.run(_loaded(probe, mix), load=_step(number, planned)), bench.devices)
            for number, mix in enumerate(steps, 1)
        ]
        bench.bar.clear()
    try:
        found = calibrated(windows, planned.mix)
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


def _step(number: int, planned: PlannedLoad) -> LoadStep:
    return LoadStep("closed", number, concurrency=planned.in_flight)


def _loaded(probe: OpenAiProbeConfig, mix: LengthMix) -> OpenAiProbeConfig:
    """Return the probe with requests of other lengths, none of which a prefix cache answers."""
    lengths = {
        "tokens_in": max(1, round(mix.tokens_in)),
        "tokens_out": max(2, round(mix.tokens_out)),
        "ignore_eos": True,
        "prompts": None,
        "shared_prefix": None,
    }
    load = probe.load_curve.model_copy(update=lengths)
    return probe.model_copy(update={"load": load, "vary_prompt": True})


def _window(run: MeasuredRun, devices: int) -> CalibrationWindow:
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
