"""The prices of a host without a configured price, from the catalogue and the instance it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from costprobe.adapters.catalogue.files import CatalogueFolder
from costprobe.adapters.cloud.detect import InstanceDetector
from costprobe.app.configuration import Config
from costprobe.domain.pricing.assumed import AssumedPrices

# Beside the store, which the service's user may write.
FOLDER: Final = "catalogue"


def catalogue_folder(store_path: Path) -> CatalogueFolder:
    """Return the installed price tables of a store's user."""
    return CatalogueFolder(store_path.parent / FOLDER)


def assumed_prices(config: Config, store_path: Path, detector: InstanceDetector) -> AssumedPrices:
    """Return the prices of this host; the catalogue is read when the first is needed.

    Args:
        config: With a configured price, or detection off, the instance is not detected.
        store_path: The store, beside which newer price tables are installed.
        detector: Detects the instance.
    """
    wanted = not config.price and config.host.detect == "auto"
    instance = detector.instance() if wanted else None
    return AssumedPrices(catalogue_folder(store_path).at, os.cpu_count() or 1, instance)
