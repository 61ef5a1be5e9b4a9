"""The price book of a configuration, with the spot prices that are known."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import click

from agent.cli.settings import Settings
from agent.config_price import SpotPlanConfig
from agent.feeds.spot import SourceError, read_source
from agent.model import Device
from agent.pricing.book import PriceBook
from agent.pricing.spot import SpotPrices, Spots, parse_spot
from agent.storage.errors import StoreError
from agent.storage.reader import StoreReader


def book_of(settings: Settings, devices: Sequence[Device]) -> PriceBook:
    """The price book of a configuration, with the spot prices that are known or can be had."""
    config, cpus = settings.config, os.cpu_count() or 1
    spots = known_spots(settings)
    return PriceBook(config.price, config.electricity, devices, cpus, lambda: spots)


def known_spots(settings: Settings) -> Spots:
    """The prices that the daemon remembers; of a plan that it never had, what its source gives."""
    plans = [plan for plan in settings.config.price if isinstance(plan, SpotPlanConfig)]
    states: dict[str, tuple[Any, int]] = {}
    if plans:
        try:
            with closing(StoreReader.open(settings.store_path)) as reader:
                states = reader.states()
        except StoreError:
            states = {}  # no daemon has run here yet
    found: dict[str, SpotPrices] = {}
    for plan in plans:
        document, _ = states.get(f"spot {plan.name}", (None, 0))
        found[plan.name] = SpotPrices.from_document(document) if document else _asked(plan)
    return found


def _asked(plan: SpotPlanConfig) -> SpotPrices:
    now_ns = time.time_ns()
    try:
        return SpotPrices().with_news(parse_spot(read_source(plan), now_ns), now_ns)
    except (SourceError, ValueError) as error:
        click.echo(f"spot price {plan.name}: {error}", err=True)
        return SpotPrices()
