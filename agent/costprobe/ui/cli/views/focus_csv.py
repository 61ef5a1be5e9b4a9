"""Charges as a dataset of FOCUS 1.2, the FinOps Open Cost and Usage Specification.

Source: https://focus.finops.org, version 1.2. Columns whose condition a host does not meet, such as
those of price lists, regions and commitments, are absent. All four costs are the allocated cost:
there is no invoice, and the price in force contains every discount.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from costprobe.core.outside import csv_cell
from costprobe.core.records import NS_PER_S
from costprobe.spend.charges import PeriodCharge

# Provider, publisher and issuer of the charges: costprobe derives them from the host's prices.
ISSUER: Final = "costprobe"
UNALLOCATED: Final = "unallocated"
_KINDS: Final = {"gpu": "GPU", "mig": "MIG", "cpu": "CPU"}


def focus_row(charge: PeriodCharge) -> dict[str, object]:
    """Return the cells of a charge, by column; an empty cell is null."""
    return {name: csv_cell(write(charge)) for name, write in COLUMNS.items()}


def _number(amount: Decimal) -> str:
    return f"{amount.normalize():f}" if amount else "0"


def _cost(charge: PeriodCharge) -> str:
    return _number(charge.cost)


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // NS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _month(charge: PeriodCharge, later: int) -> str:
    """Return the start of the calendar month of a charge, or of a later one."""
    start = datetime.fromtimestamp(charge.span.start_ns // NS_PER_S, UTC)
    years, month = divmod(start.month - 1 + later, 12)
    return f"{start.year + years:04}-{month + 1:02}-01T00:00:00Z"


def _unit(charge: PeriodCharge) -> str:
    return f"{_KINDS.get(charge.kind, 'Device')}-Hours"


def _consumed(charge: PeriodCharge) -> tuple[str, str]:
    if charge.tokens is None:
        return _number(charge.device_hours), _unit(charge)
    return _number(charge.tokens), "Tokens"


def _description(charge: PeriodCharge) -> str:
    model = f" ({charge.model})" if charge.model else ""
    service = charge.service or UNALLOCATED
    user = f"{charge.tenant} of {service}" if charge.tenant else service
    return f"{user} on {charge.device} of {charge.host}{model}"


def _tags(charge: PeriodCharge) -> str:
    tags = {**charge.labels, **({"tenant": charge.tenant} if charge.tenant else {})}
    return json.dumps(tags, ensure_ascii=False) if tags else ""


COLUMNS: Final[Mapping[str, Callable[[PeriodCharge], str]]] = {
    "BilledCost": _cost,
    "BillingAccountId": lambda charge: charge.host,
    "BillingAccountName": lambda charge: charge.host,
    "BillingCurrency": lambda charge: charge.currency,
    "BillingPeriodEnd": lambda charge: _month(charge, 1),
    "BillingPeriodStart": lambda charge: _month(charge, 0),
    "ChargeCategory": lambda _: "Usage",
    "ChargeClass": lambda _: "",
    "ChargeDescription": _description,
    "ChargeFrequency": lambda _: "Usage-Based",
    "ChargePeriodEnd": lambda charge: _time(charge.span.end_ns),
    "ChargePeriodStart": lambda charge: _time(charge.span.start_ns),
    # Null: no charge is a commitment's. Rules on consumed quantities refer to the column.
    "CommitmentDiscountStatus": lambda _: "",
    "ConsumedQuantity": lambda charge: _consumed(charge)[0],
    "ConsumedUnit": lambda charge: _consumed(charge)[1],
    "ContractedCost": _cost,
    "EffectiveCost": _cost,
    # Null: there is no invoice.
    "InvoiceId": lambda _: "",
    "InvoiceIssuerName": lambda _: ISSUER,
    "ListCost": _cost,
    "PricingQuantity": lambda charge: _number(charge.device_hours),
    "PricingUnit": _unit,
    "ProviderName": lambda _: ISSUER,
    "PublisherName": lambda _: ISSUER,
    "ResourceId": lambda charge: f"{charge.host}/{charge.device}",
    "ResourceName": lambda charge: charge.device,
    "ResourceType": lambda charge: _KINDS.get(charge.kind, "Device"),
    "ServiceCategory": lambda _: "AI and Machine Learning",
    "ServiceName": lambda charge: charge.service or UNALLOCATED,
    "ServiceSubcategory": lambda charge: (
        "Machine Learning" if charge.tokens is None else "Generative AI"
    ),
    "Tags": _tags,
    "x_IdleCost": lambda charge: _number(charge.idle_cost),
}
