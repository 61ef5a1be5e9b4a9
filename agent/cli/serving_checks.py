"""Whether each service's endpoint can be read, and counts what it should."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agent.cli.checks import Check
from agent.config_service import ServiceConfig


def service_checks(
    services: Sequence[ServiceConfig], environ: Mapping[str, str]
) -> Iterator[Check]:
    """Each endpoint: reachable, and its counters there.

    Args:
        services: The services.
        environ: The process's environment, in which systemd names its folder of credentials.
    """
    for service in services:
        for url in service.url:
            yield _endpoint_check(service, url, environ)


def _endpoint_check(service: ServiceConfig, url: str, environ: Mapping[str, str]) -> Check:
    # Here, and not at the top: without a service nobody needs it.
    from agent.serving.errors import ScrapeError  # noqa: PLC0415
    from agent.serving.exposition import parse_exposition  # noqa: PLC0415
    from agent.serving.fetch import Fetcher, access_of  # noqa: PLC0415
    from agent.serving.reading import engine_of, read_counters, wanted_names  # noqa: PLC0415

    name = f"service {service.name}"
    engine = engine_of(service)
    try:
        body = Fetcher(access_of(service, environ))(url)
        exposition = parse_exposition(body, wanted_names(engine), engine.prefix)
        reading = read_counters(exposition, engine, service.models, service.model or "")
    except ScrapeError as error:
        fix = "see docs/serving.md for what to switch on, and at which address it answers"
        return Check(name, "bad", f"{url}: {error}", fix)
    found = ", ".join(sorted(reading.measures)) or "nothing"
    if reading.missing:
        fix = f'is it {service.engine}? else set engine, or engine = "generic" with its counters'
        lacks = "; ".join(reading.missing)
        return Check(name, "bad", f"{url}: counts {found}; missing: {lacks}", fix)
    return Check(name, "good", f"{url}: counts {found}", "")
