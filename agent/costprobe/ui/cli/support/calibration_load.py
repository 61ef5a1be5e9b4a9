"""The load of a calibration: that of production, or as asked for."""

from __future__ import annotations

import time
from typing import NamedTuple

from costprobe.configuration import Config
from costprobe.core.records import NS_PER_S
from costprobe.core.units import counted
from costprobe.probing.settings import OpenAiProbeConfig
from costprobe.savings.gather import probes_of
from costprobe.serving.settings import ServiceConfig
from costprobe.serving.tokens import LengthMix, production_load
from costprobe.ui.cli.support.known_names import unknown_name
from costprobe.ui.cli.support.loaded_config import LoadedConfig, bad_input, reader_of

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
    settings: LoadedConfig,
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
