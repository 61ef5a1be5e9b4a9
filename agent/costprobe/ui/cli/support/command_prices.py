"""The prices and loads of a command's configuration, and alternative price plans of a file or option."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

from pydantic import ValidationError

from costprobe.configuration import Config, validated
from costprobe.core.config.fields import MONEY_PLACES
from costprobe.core.config.load import ConfigError
from costprobe.core.outside import UnusableInputError, bounded_toml
from costprobe.core.records import Device
from costprobe.core.units import parse_duration_s
from costprobe.pricing.assumed import AssumedPrices
from costprobe.pricing.book import PriceBook
from costprobe.pricing.catalogue import Catalogue, Offer
from costprobe.pricing.plans import OnDemandPlan, OwnedPlan, Plan, ReservedPlan
from costprobe.pricing.prices import StoredPrices
from costprobe.savings.gather import SavingsSections
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.place import Settings, bad_input


def stored_prices(settings: Settings) -> StoredPrices:
    """Return the prices of a configuration."""
    config = settings.config
    return StoredPrices(
        config.price, config.electricity, config.carbon, config.host, settings.store_path
    )


def echo_notes(prices: StoredPrices) -> None:
    """Print what could not be read since the last call."""
    for note in prices.notes:
        echo(note, err=True)
    prices.notes.clear()


def savings_sections(config: Config) -> SavingsSections:
    """Return what savings use of a configuration."""
    return SavingsSections(
        config.probe, config.service, config.workload, config.telemetry.aggregate_s
    )


MAX_FILE_BYTES = 1 << 20
_PERCENT = 100


def plans_of(file: Path) -> list[Plan]:
    """Return the [[price]] tables of a file.

    Raises:
        click.ClickException: It has no valid one.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
        tables = bounded_toml(content, MAX_FILE_BYTES).get("price", [])
    except UnusableInputError as error:
        raise bad_input(f"{file}: {error}") from error
    if not isinstance(tables, list):
        raise bad_input(f"{file}: price: write [[price]], a table for each plan")
    # Each on its own: alternatives may apply from the same day to the same device.
    return [_plan(file, number, table) for number, table in enumerate(tables)]


def reservations_of(
    text: str, plans: Sequence[Plan], devices: Sequence[Device], assumed: AssumedPrices
) -> list[Plan]:
    """Return reservations of the on-demand plans; of the assumed list price if there are none.

    Args:
        text: Term and discount, such as "1y=35%".
        plans: The configured plans.
        devices: Every device of the host.
        assumed: The prices without plans.

    Raises:
        click.ClickException: The text is not valid.
    """
    term, _, share = text.partition("=")
    try:
        discount = Decimal(share.strip().removesuffix("%"))
    except ArithmeticError as error:
        raise bad_input(f"--reserved {text}: write TERM=DISCOUNT, such as 1y=35%") from error
    if share.strip().endswith("%"):
        discount /= _PERCENT
    rented = {
        (plan.device, plan.unit): plan.model_dump(exclude={"plan", "valid_from", "name"})
        for plan in sorted(plans, key=lambda plan: plan.valid_from)
        if isinstance(plan, OnDemandPlan)
    }
    book, now_ns = PriceBook((), None, devices, assumed), time.time_ns()
    listed = [
        {"device": device.name, "per_hour": _money(terms.rate.per_hour)}
        for device in devices
        if (terms := book.terms(device.name, now_ns)) is not None
    ]
    name = f"reserved-{term.replace(' ', '')}-{(discount * _PERCENT).normalize():f}"
    keys = {"plan": "reserved", "term": term.strip(), "discount": discount, "name": name}
    return [
        _validated(ReservedPlan, "--reserved", {**own, **keys}) for own in rented.values() or listed
    ]


def commitments_of(offer: Offer, devices: Sequence[Device]) -> list[Plan]:
    """Return the commitments of an instance at the catalogue's prices; empty if it lists none.

    Args:
        offer: The instance.
        devices: Every device of the host.
    """
    boards = sum(device.is_board for device in devices)
    terms = (("1y", offer.reserved_1y_per_h), ("3y", offer.reserved_3y_per_h))
    return [
        _validated(
            ReservedPlan,
            "--reserved",
            {
                "plan": "reserved",
                "per": "device" if boards else "host",
                "per_hour": _money((offer.on_demand_per_h or price) / offer.devices(boards)),
                "effective_per_hour": _money(price / offer.devices(boards)),
                "currency": offer.currency,
                "term": term,
                "name": f"{offer.cloud}-{term}",
            },
        )
        for term, price in terms
        if price is not None
    ]


def owned_of(text: str, catalogue: Catalogue, devices: Sequence[Device]) -> Plan:
    """Return the plan of a server of one's own.

    Args:
        text: Purchase price and lifetime, such as "15000=3y"; or the lifetime alone, for the mean
            of the catalogue's purchase prices of the devices' boards.
        catalogue: The purchase prices.
        devices: Every device of the host.

    Raises:
        click.ClickException: The text is not valid, or the catalogue has no price of a board.
    """
    price, _, lifetime = text.rpartition("=")
    form = "write PRICE=LIFETIME, such as 15000=3y"
    try:
        parse_duration_s(lifetime.strip())
    except ValueError:
        raise bad_input(f"--owned {text}: {lifetime!r} is not a duration; {form}") from None
    try:
        paid = Decimal(price) if price else _boards_price(catalogue, devices)
        name = f"owned-{paid:f}"
    except ArithmeticError as error:
        raise bad_input(f"--owned {text}: {form}") from error
    keys = {"plan": "owned", "lifetime": lifetime.strip(), "purchase_price": paid, "name": name}
    return _validated(OwnedPlan, "--owned", keys)


def _boards_price(catalogue: Catalogue, devices: Sequence[Device]) -> Decimal:
    total = Decimal(0)
    for device in devices:
        if device.is_board:
            found = catalogue.purchase_range(device.model, device.memory_bytes)
            if found is None:
                raise bad_input(
                    f"--owned: the catalogue has no purchase price of {device.model}; write"
                    " PRICE=LIFETIME, such as 15000=3y"
                )
            total += round(sum(found) / 2)
    if not total:
        raise bad_input("--owned: this host has no GPU; write PRICE=LIFETIME, such as 15000=3y")
    return total


def _money(amount: Decimal) -> Decimal:
    return round(amount, MONEY_PLACES)


def _validated(
    plan: type[OwnedPlan | ReservedPlan], option: str, keys: Mapping[str, object]
) -> Plan:
    try:
        return plan.model_validate({**keys, "valid_from": _today()})
    except ValidationError as error:
        detail = error.errors()[0]
        where = ".".join(str(part) for part in detail["loc"])
        raise bad_input(f"{option}: {where}: {detail['msg']}") from error


def _today() -> date:
    return datetime.now(tz=UTC).date()


def _plan(file: Path, number: int, table: object) -> Plan:
    if isinstance(table, dict):
        table.setdefault("valid_from", _today())
    try:
        return validated({"price": [table]}, file).price[0]
    except ConfigError as error:
        raise bad_input(str(error).replace("price[0]", f"price[{number}]")) from error
