"""The prices and loads of a command's configuration."""

from __future__ import annotations

from costprobe.configuration import Config
from costprobe.pricing.prices import StoredPrices
from costprobe.savings.gather import SavingsSections
from costprobe.ui.cli.support.loaded_config import LoadedConfig
from costprobe.ui.cli.support.output import echo


def stored_prices(settings: LoadedConfig) -> StoredPrices:
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
