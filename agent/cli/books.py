"""The books of a configuration: prices and carbon, with what is known of those that move."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import click

from agent.cli.settings import Settings
from agent.config_price import SpotPlanConfig
from agent.config_source import SourceConfig
from agent.daemon.carbon_feed import KIND as CARBON
from agent.daemon.spot_feeds import kind_of
from agent.daemon.timed_feed import FeedKind
from agent.feeds.source import SourceError, read_source
from agent.model import Device
from agent.pricing.book import PriceBook
from agent.pricing.carbon import CarbonBook
from agent.pricing.spot import Spots
from agent.pricing.timed import TimedValues
from agent.storage.errors import StoreError
from agent.storage.reader import StoreReader


def book_of(settings: Settings, devices: Sequence[Device]) -> PriceBook:
    """The price book of a configuration, with the spot prices that are known or can be had."""
    config, cpus = settings.config, os.cpu_count() or 1
    spots = known_spots(settings)
    return PriceBook(config.price, config.electricity, devices, cpus, lambda: spots)


def carbon_of(settings: Settings, devices: Sequence[Device]) -> CarbonBook:
    """The carbon intensities of a configuration, as they are known or can be had."""
    config, carbon = settings.config, settings.config.carbon
    known = TimedValues()
    if carbon is not None and carbon.sources:
        known = _known(CARBON, carbon, _states(settings))
    return CarbonBook(carbon, config.electricity, devices, lambda: known)


def known_spots(settings: Settings) -> Spots:
    """The prices that the daemon remembers; of a plan that it never had, what its source gives."""
    plans = [plan for plan in settings.config.price if isinstance(plan, SpotPlanConfig)]
    states = _states(settings) if plans else {}
    return {plan.name: _known(kind_of(plan.name), plan, states) for plan in plans}


def _states(settings: Settings) -> dict[str, tuple[Any, int]]:
    try:
        with closing(StoreReader.open(settings.store_path)) as reader:
            return reader.states()
    except StoreError:
        return {}  # no daemon has run here yet


def _known(kind: FeedKind, source: SourceConfig, states: dict[str, tuple[Any, int]]) -> TimedValues:
    document, _ = states.get(kind.state, (None, 0))
    if document:
        try:
            return TimedValues.from_document(document)
        except (ArithmeticError, KeyError, TypeError, ValueError):
            click.echo(f"{kind.title}: what is remembered of it is damaged", err=True)
    now_ns = time.time_ns()
    try:
        news = kind.parse(read_source(source), now_ns)
    except (SourceError, ValueError) as error:
        click.echo(f"{kind.title}: {error}", err=True)
        return TimedValues()
    return TimedValues().with_news(news, kind.vouched_ns(news, now_ns))
