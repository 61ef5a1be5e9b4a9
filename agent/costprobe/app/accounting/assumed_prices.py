"""The prices of a host without a configured price, from the catalogue and the instance it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from costprobe.adapters.catalogue.files import CatalogueFolder
from costprobe.domain.pricing.assumed import AssumedPrices
from costprobe.domain.pricing.instance import Instance

# Beside the store, which the service's user may write.
FOLDER: Final = "catalogue"


def catalogue_folder(store_path: Path) -> CatalogueFolder:
    """Return the installed price tables of a store's user."""
    return CatalogueFolder(store_path.parent / FOLDER)


def assumed_prices(store_path: Path, instance: Instance | None = None) -> AssumedPrices:
    """Return the prices of this host; the catalogue is read when the first is needed.

    Args:
        store_path: The store, beside which newer price tables are installed.
        instance: What the host is; None if unknown.
    """
    return AssumedPrices(catalogue_folder(store_path).at, os.cpu_count() or 1, instance)
