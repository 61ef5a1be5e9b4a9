"""Price plans from a file, and price books of alternative plans."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from costprobe.app.configuration import validated
from costprobe.core.bounded import UnusableInputError, bounded_toml
from costprobe.core.config.load import ConfigError
from costprobe.core.records import Device
from costprobe.domain.pricing.book import PriceBook
from costprobe.domain.pricing.plans.plan import Plan
from costprobe.domain.pricing.spot_prices import Spots
from costprobe.domain.pricing.tariff import ElectricityConfig
from costprobe.ui.cli.support.loaded_config import bad_input

MAX_FILE_BYTES = 1 << 20


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


def _plan(file: Path, number: int, table: object) -> Plan:
    try:
        return validated({"price": [table]}, file).price[0]
    except ConfigError as error:
        raise bad_input(str(error).replace("price[0]", f"price[{number}]")) from error


def book_of_plans(
    plans: Sequence[Plan],
    electricity: ElectricityConfig | None,
    devices: Sequence[Device],
    began: date,
    spots: Spots,
) -> PriceBook:
    """Return a price book in which plans apply from a given day, whatever their valid_from."""
    held = [plan.model_copy(update={"valid_from": began}) for plan in plans]
    return PriceBook(held, electricity, devices, spots=lambda: spots)


def name_of_plan(plan: Plan) -> str:
    """Return a readable name of a plan."""
    began: date = plan.valid_from
    return f"{plan.plan.replace('_', ' ')} of {began}"
