"""Check that each service's endpoint is reachable and has the expected counters."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from costprobe.adapters.engines.tables import Engine
from costprobe.adapters.kubernetes.api_server import KubernetesConfig
from costprobe.core.units import counted
from costprobe.serving.settings import ServiceConfig
from costprobe.ui.cli.support.checks import Check

if TYPE_CHECKING:  # its HTTP client is only needed if a service is configured
    from costprobe.adapters.engines.scrape import MetricsFetcher

_TIMER: Final = "; before build 10519 each reading restarts its idle timer (--sleep-idle-seconds)"
_SLEEPING: Final = "docs/serving.md has what to set for servers that sleep"
# Several show whether a balancer stands before several servers.
_SCRAPES = 3


def service_checks(
    services: Sequence[ServiceConfig], environ: Mapping[str, str]
) -> Iterator[Check]:
    """Yield a check of each endpoint and its counters.

    Args:
        services: The services.
        environ: The environment, with systemd's credentials folder.
    """
    # Imported here, because it is only needed if a service is configured.
    from costprobe.adapters.engines.scrape import engine_of  # noqa: PLC0415
    from costprobe.serving.meter import tenants_endpoint, tenants_engine  # noqa: PLC0415

    for service in services:
        for url in service.url:
            yield _endpoint_check(service, url, engine_of(service), environ)
        if service.tenants is not None:
            endpoint = tenants_endpoint(service, service.tenants)
            engine = tenants_engine(service.tenants)
            for url in endpoint.url:
                yield _endpoint_check(endpoint, url, engine, environ, service.tenants.label)


def pod_checks(kubernetes: KubernetesConfig | None, host: str) -> Iterator[Check]:
    """Yield a check of the kubelet's API, and of the API server's.

    Args:
        kubernetes: The section [kubernetes]; None without it.
        host: Name of the host, which is the node's by default.
    """
    if kubernetes is None:
        return
    # Imported here, because it is only needed on a Kubernetes node.
    from costprobe.adapters.kubernetes.api_server import ApiServer  # noqa: PLC0415
    from costprobe.adapters.kubernetes.pod_resources import KubernetesError, PodResources  # noqa: PLC0415 - as above

    node = kubernetes.node or host
    fix = "docs/howto/kubernetes.md has the volume and the permissions that it needs"
    try:
        containers = len(PodResources(kubernetes.socket).read().containers)
        detail = f"{counted(containers, 'container')} with devices"
        if kubernetes.api_url:
            detail += f"; {counted(len(ApiServer(kubernetes, node).pods()), 'pod')} on {node}"
    except KubernetesError as error:
        yield Check("kubernetes", "bad", str(error), fix)
    else:
        yield Check("kubernetes", "good", detail, "")


def _endpoint_check(
    service: ServiceConfig, url: str, engine: Engine, environ: Mapping[str, str], tenant: str = ""
) -> Check:
    from costprobe.adapters.engines.exposition import ScrapeError  # noqa: PLC0415 - as above
    from costprobe.adapters.engines.scrape import MetricsFetcher, read_counters  # noqa: PLC0415
    from costprobe.adapters.http.access import credentials_folder  # noqa: PLC0415

    name = f"tenants of {service.name}" if tenant else f"service {service.name}"
    fetch = MetricsFetcher(service, credentials_folder(environ))
    if unread := _unread(fetch, url):
        return Check(name, "note", f"{url}: {unread}", _SLEEPING)
    try:
        body = fetch(url)
        reading = read_counters(body, engine, service.models, service.model or "")
    except ScrapeError as error:
        enable = f"set {engine.option} at the server; " if engine.option else ""
        fix = f"{enable}docs/serving.md has the address and the option of each engine"
        return Check(name, "bad", f"{url}: {error}", fix)
    if not body.strip():
        fix = f"set {engine.option or 'the option that enables its metrics'} at the server"
        return Check(name, "bad", f"{url}: the page of metrics is empty", fix)
    measures = ", ".join(sorted(reading.measures)) or "nothing"
    if reading.missing:
        fix = f'check engine = "{service.engine}", or set engine = "generic" with its counters'
        if tenant:
            fix = "check gateway, or the names of the counters, in [service.tenants]"
        lacks = "; ".join(reading.missing)
        return Check(name, "bad", f"{url}: counts {measures}; missing: {lacks}", fix)
    labels = {
        label
        for measure in reading.measures.values()
        for series in measure.series
        for label, _ in series
    }
    if tenant and labels and tenant not in labels:
        fix = f"set label to one of: {', '.join(sorted(labels))}"
        return Check(name, "bad", f"{url}: no counter has the label {tenant}", fix)
    return _repeated_check(name, service, engine, fetch, url, f"{url}: counts {measures}")


def _repeated_check(
    name: str, service: ServiceConfig, engine: Engine, fetch: MetricsFetcher, url: str, detail: str
) -> Check:
    """Check that several readings of a page are those of one process."""
    from costprobe.serving.meter import ServiceMeter  # noqa: PLC0415 - as above

    one = service.model_copy(update={"url": (url,)})
    meter = ServiceMeter(one, fetch, time.monotonic_ns, time.time_ns, engine=engine)
    problems = [problem for _ in range(_SCRAPES) for problem in meter.scrape().problems]
    if problems:
        return Check(name, "bad", problems[0], "list the address of each replica in url")
    timer = _TIMER * (fetch.look(url) == "kept awake")
    state: Literal["note", "good"] = "note" if timer else "good"
    return Check(name, state, f"{detail}{timer}", _SLEEPING if timer else "")


def _unread(fetch: MetricsFetcher, url: str) -> str:
    """Return why a page is not read, because that would start a server; empty if it is read."""
    if fetch.is_behind_activator(url):
        return "each reading is a request to Knative, which starts the server and keeps it running"
    return "its model is not loaded; a reading would load it" if fetch.look(url) == "asleep" else ""
