"""The prices and loads of a command's configuration."""

from __future__ import annotations

from costprobe.app.configuration import Config
from costprobe.ui.cli.support.loaded_config import LoadedConfig
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.price_books import StoredPrices
from costprobe.ui.cli.support.savings_history import SavingsSections


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
