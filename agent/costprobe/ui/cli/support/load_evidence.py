"""Stored load curves of the servers of services, for savings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from costprobe.adapters.probing.served_settings import ServedProbeConfig
from costprobe.adapters.probing.settings import AnyProbeConfig
from costprobe.adapters.serving.settings import ServiceConfig
from costprobe.adapters.storage.reader import StoreReader
from costprobe.core.records import NS_PER_S
from costprobe.core.row_values import number
from costprobe.domain.advice.load_evidence import LoadEvidence
from costprobe.domain.costing.load.curve import LoadCurve
from costprobe.domain.costing.load.rows import curves_from_rows
from costprobe.domain.costing.serving.production_load import production_load

_WEEK_NS: Final = 7 * 86_400 * NS_PER_S
_PORTS: Final = {"http": 80, "https": 443}


def load_evidence(
    reader: StoreReader,
    services: Sequence[ServiceConfig],
    probes: Sequence[AnyProbeConfig],
    now_ns: int,
) -> dict[str, LoadEvidence]:
    """Return the newest load curve of a server of each service, with the service's requests.

    Args:
        reader: The store.
        services: The configured services.
        probes: The configured probes.
        now_ns: UTC in ns.
    """
    found = {}
    for service in services:
        curves = [
            curve
            for probe in probes_of(probes, service)
            if (curve := newest_curve(reader, probe, now_ns)) is not None
        ]
        if curves:
            curve = max(curves, key=lambda each: each.time_ns)
            found[service.name] = _evidence(reader, service, curve, now_ns)
    return found


def probes_of(probes: Sequence[AnyProbeConfig], service: ServiceConfig) -> list[ServedProbeConfig]:
    """Return the probes of the servers of a service: those with one of its addresses."""
    addresses = {address(url) for url in service.url}
    return [
        probe
        for probe in probes
        if isinstance(probe, ServedProbeConfig) and address(probe.url) in addresses
    ]


def address(url: str) -> tuple[str, int | None]:
    """Return host and port of an address."""
    parts = urlsplit(url)
    return (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme)


def newest_curve(reader: StoreReader, probe: ServedProbeConfig, now_ns: int) -> LoadCurve | None:
    """Return the newest load curve of a probe; None without one."""
    bounds_ms = probe.slo.bounds_ms if probe.slo else {}
    rows = reader.points("sweep", 0, now_ns, {"probe": probe.name})
    curves = curves_from_rows(rows, bounds_ms)
    return curves[-1] if curves else None


def _evidence(
    reader: StoreReader, service: ServiceConfig, curve: LoadCurve, now_ns: int
) -> LoadEvidence:
    since_ns = now_ns - _WEEK_NS
    rows, models = [], set()
    for row in reader.points("serving", since_ns, now_ns, {"service": service.name}):
        model = row.tags.get("served_model")
        if model is None:
            rows.append(row)
        elif number(row, "requests") or number(row, "tokens_out"):
            models.add(model)
    replicas = len(service.url)
    return LoadEvidence(
        curve,
        replicas,
        production_load(rows, replicas).mix,
        max(1, len(models)),
        _fingerprint(reader, curve, curve.time_ns),
        _fingerprint(reader, curve, now_ns),
    )


def _fingerprint(reader: StoreReader, curve: LoadCurve, until_ns: int) -> str | None:
    """Return the fingerprint of the probe's newest run until an instant; None without one."""
    tags: Mapping[str, str] = {"probe": curve.probe, "device": curve.device}
    newest = max(reader.last("probe", until_ns, tags), key=lambda row: row.time_ns, default=None)
    found = None if newest is None else newest.fields.get("fingerprint")
    return found if isinstance(found, str) else None
