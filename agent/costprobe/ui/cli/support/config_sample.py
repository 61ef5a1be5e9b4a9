"""Sample configuration, for `costprobe config init`; and the masked one of `config show`.

Keys, values and comments are those of the typed fields; this module only selects tables and keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from costprobe.adapters.store.settings import StoreConfig
from costprobe.alerts.rules.values import SloRuleConfig
from costprobe.core.config.fields import MONEY_PLACES, HostConfig
from costprobe.core.config.model import SampleTable, render_table
from costprobe.core.records import Device
from costprobe.delivery.alertmanager import AlertmanagerConfig
from costprobe.delivery.influx import InfluxV1Config, InfluxV2Config
from costprobe.pricing.assumed import LIST_PLAN, AssumedPrices
from costprobe.pricing.book import PriceBook
from costprobe.pricing.electricity import CarbonConfig, ElectricityConfig
from costprobe.pricing.plans import OnDemandPlan, OwnedPlan, ReservedPlan, SpotPlan
from costprobe.probing.settings import OpenAiProbeConfig, ProbeConfig, ProbingConfig
from costprobe.serving.settings import ServiceConfig
from costprobe.spend.settings import BudgetConfig

HEAD = """\
# costprobe: cost per inference on this host. A key that is commented out has its default, or is
# optional. After a change: costprobe config check, then systemctl reload costprobe.
# Durations are text such as "5m"; money is exact. All keys: man costprobe, docs/reference/configuration.md
"""
_PROBE_KEYS = ("name", "kind", "module", "devices", "dtype", "batch", "latency_bound", "every")
_PROBE_MORE_KEYS = ("python", "when_busy", "quality")
_PLAN_KEYS = ("plan", "per_hour", "currency", "device", "valid_from")
_ACTIVE_PLAN_KEYS = frozenset({"plan", "per_hour", "currency"})
HOST = SampleTable("[host]", HostConfig, ("name", "labels"))
PROBING = SampleTable("[probing]", ProbingConfig, ("duty",), active=frozenset({"duty"}))
PROBE = SampleTable(
    "[[probe]]",
    ProbeConfig,
    _PROBE_KEYS + _PROBE_MORE_KEYS,
    active=frozenset({"name", "kind", "devices", "dtype", "batch", "every"}),
)
SERVED_PROBE = SampleTable(
    "[[probe]]",
    OpenAiProbeConfig,
    ("name", "kind", "url", "model", "devices", "concurrency"),
    {"name": "chat", "devices": ["gpu0"]},
)
SERVICE = SampleTable("[[service]]", ServiceConfig, ("name", "url", "engine", "devices"))
PRICE = SampleTable("[[price]]", OnDemandPlan, _PLAN_KEYS, active=_ACTIVE_PLAN_KEYS)
OTHER_PLANS = (
    SampleTable(
        "[[price]]",
        ReservedPlan,
        ("plan", "per_hour", "discount", "upfront", "term", "valid_from"),
    ),
    SampleTable("[[price]]", SpotPlan, ("plan", "file")),
    SampleTable(
        "[[price]]",
        OwnedPlan,
        ("plan", "purchase_price", "residual_value", "lifetime", "monthly_costs"),
    ),
    SampleTable("[electricity]", ElectricityConfig, ("tariff_per_kwh", "pue")),
    SampleTable("[carbon]", CarbonConfig, ("g_per_kwh",)),
)
SINK = SampleTable("[[sink]]", InfluxV2Config, ("api", "url", "org", "bucket", "token"))
_V1_SINK = SampleTable(
    "[[sink]]",
    InfluxV1Config,
    ("name", "api", "url", "database", "user", "password"),
    {"name": "influxdb1", "api": "v1"},
)
ALERTING = (
    SampleTable("[[notifier]]", AlertmanagerConfig, ("name", "kind", "url")),
    SampleTable("[[budget]]", BudgetConfig, ("name", "amount", "currency", "period", "timezone")),
    SampleTable("[[rule]]", SloRuleConfig, ("name", "kind", "within_ms", "objective")),
)
STORE = SampleTable(
    "[store]",
    StoreConfig,
    ("path",),
)


def host_sample(
    devices: Sequence[Device], assumed: AssumedPrices, now_ns: int, store: Path | None = None
) -> str:
    """Return a configuration file for the devices of this host.

    Args:
        devices: The devices; the price is the sum of their assumed prices.
        assumed: Those prices.
        now_ns: UTC ns.
        store: The store of a user who cannot write that of the service.
    """
    accelerators = [device for device in devices if not device.is_host]
    book = PriceBook((), None, devices, assumed)
    terms = [book.terms(device.name, now_ns) for device in accelerators or devices]
    rates = [known.rate for known in terms if known is not None]
    total = sum((rate.per_hour for rate in rates), Decimal(0)) or Decimal(1)
    source = "; ".join(sorted({rate.source for rate in rates})) or "no device was found"
    is_listed = bool(rates) and all(rate.plan == LIST_PLAN for rate in rates)
    kind = "" if is_listed else ", an assumption until you enter your own"
    comments = "".join(f"# Found: {device.name}, {device.model}\n" for device in devices)
    probe = PROBE._replace(values={"dtype": "bf16" if accelerators else "fp32"})
    price = PRICE._replace(
        values={"per_hour": round(total, MONEY_PLACES).normalize()},
        note=f"Price of the whole host{kind}. Source: {source}.",
    )
    tables = (HOST, PROBING, probe, SERVED_PROBE, SERVICE, price, *OTHER_PLANS)
    stored = STORE
    if store is not None:
        stored = STORE._replace(values={"path": store}, active=STORE.active | {"path"})
    return joined(HEAD + comments, (*tables, SINK, _V1_SINK, *ALERTING, stored))


def joined(head: str, tables: Sequence[SampleTable]) -> str:
    """Return a file with these tables."""
    return "\n".join(([head] if head else []) + [render_table(table) for table in tables])


MASK: Final = "***"
_USER: Final = re.compile(r"(://)[^/\s@]+@")
# A name and its value, or only a value.
_QUERY_VALUE: Final = re.compile(r"([?&](?:[^=&#\s]+=(?=[^&#\s]))?)[^&#\s]+")
_FRAGMENT: Final = re.compile(r"#\S+$")
_ADDRESS: Final = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_COMMAND: Final = "command"


def shown(value: Any, key: str = "") -> Any:  # noqa: ANN401 - any TOML value
    """Return the tables with users and query values of addresses, and arguments of commands, masked.

    Locations of secrets are shown, because operators need to know them.

    Args:
        value: Tables, lists or a value.
        key: The key of the value.
    """
    if isinstance(value, Mapping):
        return {name: shown(held, name) for name, held in value.items()}
    if isinstance(value, list | tuple):
        if key == _COMMAND:
            return [*value[:1], *(MASK for _ in value[1:])]
        return [shown(held, key) for held in value]
    return _without_secrets(value) if isinstance(value, str) else value


def _without_secrets(text: str) -> str:
    if not _ADDRESS.match(text):
        return text
    text = _USER.sub(rf"\1{MASK}@", text)
    return _FRAGMENT.sub(f"#{MASK}", _QUERY_VALUE.sub(rf"\1{MASK}", text))
