"""The configurations in the repository: the example of the systemd unit, and the excerpt in the README."""

from __future__ import annotations

from costprobe.core.config.model import SampleTable
from costprobe.ui.cli.support.config_sample import (
    ALERTING,
    HEAD,
    HOST,
    OTHER_PLANS,
    PRICE,
    PROBE,
    PROBING,
    SERVED_PROBE,
    SERVICE,
    SINK,
    STORE,
    joined,
)

_SERVICE_SINK = SINK._replace(values={"token": "credential:influxdb-token"})


def service_sample() -> str:
    """Return the example for the systemd unit: for any device, with secrets as credentials."""
    probe = PROBE._replace(active=PROBE.active - {"dtype"})
    price = PRICE._replace(
        active=frozenset(), note="Price of the whole host; without it a list price is assumed."
    )
    tables = (HOST, PROBING, probe, SERVED_PROBE, SERVICE, price, *OTHER_PLANS)
    hint = "# `costprobe config init FILE` writes one for the hardware of the host.\n"
    return joined(HEAD + hint, (*tables, _SERVICE_SINK, *ALERTING, STORE))


def readme_sample() -> str:
    """Return the excerpt in the README: a probe, a price and a sink."""
    module = PROBE._replace(values={"name": "ranker", "kind": "module"})
    probe = _table(module, ("name", "kind", "module", "batch", "latency_bound"))
    price = _table(PRICE, ("plan", "per_hour", "currency"))
    return joined("", (probe, price, _table(SERVICE), _table(SINK)))


def _table(sample: SampleTable, keys: tuple[str, ...] = ()) -> SampleTable:
    """Return a table with these keys, by default its own, all active, and without a note."""
    shown = keys or sample.keys
    return sample._replace(keys=shown, active=frozenset(shown), note="")
