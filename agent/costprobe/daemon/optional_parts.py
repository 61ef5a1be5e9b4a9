"""Parts that only some configurations need; a daemon without them does not load their modules."""

# ruff: noqa: PLC0415 - the imports within the functions are the purpose of this module

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING

from costprobe.adapters.system.host_name import host_tags
from costprobe.app.accounting.probe_runs import ProbeRuns
from costprobe.app.accounting.remembered_prices import RememberedPrices
from costprobe.app.accounting.stored_history import StoredHistory
from costprobe.app.accounting.surroundings import Surroundings
from costprobe.app.configuration import Config
from costprobe.core.clock import Clock
from costprobe.core.records import Device, Event
from costprobe.daemon.shared_parts import SharedParts

if TYPE_CHECKING:
    from costprobe.app.accounting.serving import Serving
    from costprobe.app.budgeting.budgets import BudgetTracker
    from costprobe.app.measuring.host_probes import HostProbes


def budget_tracker(
    config: Config,
    parts: SharedParts,
    tags: Mapping[str, str],
    on_event: Callable[[Event], None],
    stop: Flag,
) -> BudgetTracker | None:
    """Return the tracker of the budgets; None without a budget.

    Args:
        config: The configuration.
        parts: The parts that are kept across reloads.
        tags: Host and static labels.
        on_event: Stores events.
        stop: Ends a computation.
    """
    if not config.budget:
        return None
    from costprobe.app.budgeting.budgets import BudgetTracker
    from costprobe.app.budgeting.spend_reading import Usual

    return BudgetTracker(
        config.budget,
        Usual(config.telemetry.aggregate_s),
        parts.ledger,
        parts.store.path,
        parts.clock,
        tags,
        on_event=on_event,
        stop=stop,
    )


def host_probes(  # noqa: PLR0913 - the parts that it combines
    config: Config,
    devices: Sequence[Device],
    parts: SharedParts,
    prices: RememberedPrices,
    *,
    history: StoredHistory,
    runs: ProbeRuns,
    lock_folder: Path,
    stop: Flag,
) -> HostProbes | None:
    """Return the probes; None without a probe.

    Args:
        config: The configuration.
        devices: The discovered devices.
        parts: The parts that are kept across reloads.
        prices: The prices of the runs.
        history: The runs in the store.
        runs: Receives when the probes used the devices.
        lock_folder: Folder of the devices' lock files.
        stop: Ends running probes.
    """
    if not config.probe:
        return None
    from costprobe.app.measuring.host_probes import HostProbes
    from costprobe.app.measuring.probe_accounts import ProbeAccounts

    tags = host_tags(config.host)
    accounts = ProbeAccounts(prices, parts.ledger, parts.clock, tags, history.costs)
    return HostProbes(
        config.probing,
        config.probe,
        devices,
        parts.sensor,
        accounts,
        parts.ledger,
        clock=parts.clock,
        listeners=parts.listeners,
        runs=runs,
        lock_folder=lock_folder,
        stop=stop,
    )


def serving(config: Config, devices: Sequence[Device], around: Surroundings) -> Serving | None:
    """Return the services and containers; None without a service and Kubernetes.

    Args:
        config: The configuration.
        devices: The discovered devices.
        around: The inputs of their cost.
    """
    if not config.service and config.kubernetes is None:
        return None
    from costprobe.app.accounting.serving import Serving

    return Serving(
        config.service,
        config.kubernetes,
        config.telemetry,
        devices,
        around,
        window_s=config.longest_window_s,
    )


def price_file_jobs(
    config: Config, store_path: Path, clock: Clock
) -> Sequence[tuple[str, float, Callable[[], None]]]:
    """Return name, period in s and function of the job of each price file; empty without services.

    Args:
        config: The configuration.
        store_path: The store that costs are read from.
        clock: The host's clocks.
    """
    if not config.price_file or not (config.service or config.kubernetes):
        return ()
    from costprobe.app.accounting.price_files import EVERY_S, PriceFile

    models = {service.name: service.model for service in config.service if service.model}
    files = [PriceFile(settings, models, store_path, clock) for settings in config.price_file]
    return [(file.name, EVERY_S, file.write) for file in files]
