"""The prices of a host without a configured price, from the catalogue and the instance it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from costprobe.adapters.catalogue.files import CatalogueFolder
from costprobe.adapters.cloud.detect import InstanceDetector
from costprobe.app.accounting.ledger import Ledger
from costprobe.core.clock import Clock
from costprobe.core.host import HostConfig
from costprobe.core.records import NS_PER_S, Event
from costprobe.domain.pricing.assumed import AssumedPrices
from costprobe.domain.pricing.plans.plan import Plan

# Beside the store, which the service's user may write.
FOLDER: Final = "catalogue"
CATALOGUE_EVERY_S: Final = 86_400.0
INSTANCE_EVERY_S: Final = 600.0
_AGE_STATE: Final = "price catalogue"


def catalogue_folder(store_path: Path) -> CatalogueFolder:
    """Return the installed price tables of a store's user."""
    return CatalogueFolder(store_path.parent / FOLDER)


def assumed_prices(
    plans: Sequence[Plan], host: HostConfig, store_path: Path, detector: InstanceDetector
) -> AssumedPrices:
    """Return the prices of this host; the catalogue is read when the first is needed.

    Args:
        plans: The configured prices; with one the instance is not detected.
        host: Whether the instance may be detected.
        store_path: The store, beside which newer price tables are installed.
        detector: Detects the instance.
    """
    wanted = not plans and host.detect == "auto"
    instance = detector.instance() if wanted else None
    return AssumedPrices(catalogue_folder(store_path).at, os.cpu_count() or 1, instance)


class HostPricing:
    """The prices of a host in a running daemon: they follow the instance, and report their age.

    Args:
        plans: The configured prices.
        host: Whether the instance may be detected.
        store_path: The store, beside which newer price tables are installed.
        detector: Detects the instance.
        ledger: Keeps which version of the catalogue was reported as old.
        clock: The host's clocks.
        on_event: Receives the event of an old catalogue.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        host: HostConfig,
        store_path: Path,
        detector: InstanceDetector,
        ledger: Ledger,
        clock: Clock,
        *,
        on_event: Callable[[Event], None],
    ) -> None:
        self.assumed = assumed_prices(plans, host, store_path, detector)
        self._is_assumed = not plans
        self._detector = detector
        self._ledger = ledger
        self._clock = clock
        self._on_event = on_event

    def jobs(self) -> Iterator[tuple[str, float, Callable[[], None]]]:
        """Yield name, period in s and function of each job; none with a configured price."""
        if self._is_assumed:
            yield "price catalogue", CATALOGUE_EVERY_S, self.report_age
        if self.assumed.instance is not None and not self.assumed.instance.is_complete:
            # The metadata service may not answer while the network starts.
            yield "cloud instance", INSTANCE_EVERY_S, self._locate

    def report_age(self) -> None:
        """Report once that this version of the catalogue is older than six months, if it is."""
        now_ns = self._clock.time_ns()
        catalogue = self.assumed.catalogue(now_ns)
        version = catalogue.version.isoformat()
        day = datetime.fromtimestamp(now_ns // NS_PER_S, tz=UTC).date()
        if not catalogue.is_old(day) or self._ledger.state(_AGE_STATE) == {"reported": version}:
            return
        self._ledger.put_state(_AGE_STATE, {"reported": version})
        detail = (
            "list prices may have changed since: set [[price]], or install a newer catalogue with"
            " costprobe price update"
        )
        title = f"price catalogue of {version} is older than six months"
        self._on_event(
            Event("price", "warning", title, now_ns, detail=detail, cause="old catalogue")
        )

    def _locate(self) -> None:
        self.assumed.locate(self._detector.instance())
