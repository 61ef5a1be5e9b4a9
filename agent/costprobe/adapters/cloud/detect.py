"""Detecting the instance of a cloud that this host is."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final

from costprobe.adapters.cloud.dmi import cloud_of, read_dmi
from costprobe.adapters.cloud.metadata import ADDRESS, SERVICES, MetadataClient, MetadataError
from costprobe.adapters.system.outside_text import outside_text
from costprobe.domain.pricing.instance import Instance

logger = logging.getLogger(__name__)

# Time limit of all requests to a metadata service together.
LIMIT_S: Final = 1.0


class InstanceDetector:
    """Detects the instance: by DMI, then by the metadata service of the cloud that DMI names.

    Nothing is requested on a host that is no cloud's. A complete result is kept for the process.

    Args:
        root: Root folder of the host's /sys.
        address: URL of the metadata services, without a path.
        limit_s: Time limit of all requests together in s.
        monotonic_s: The monotonic clock in s.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        address: str = ADDRESS,
        limit_s: float = LIMIT_S,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._address = address
        self._limit_s = limit_s
        self._monotonic_s = monotonic_s
        self._lock = Lock()
        self._known: Instance | None = None

    def instance(self) -> Instance | None:
        """Return the instance; None if the host is no cloud's.

        Without an answer of the metadata service it has what DMI has, and the next call asks again.
        """
        with self._lock:
            if self._known is None:
                found = self._detected()
                if found is None or found.is_complete or found.cloud not in SERVICES:
                    self._known = found
                return found
            return self._known

    def _detected(self) -> Instance | None:
        by_dmi = cloud_of(read_dmi(self._root))
        if by_dmi is None or by_dmi.cloud not in SERVICES:
            return by_dmi
        client = MetadataClient(self._address, self._limit_s, self._monotonic_s)
        try:
            return SERVICES[by_dmi.cloud](client)
        except MetadataError as error:
            reason = outside_text(str(error))
            logger.info("metadata service of %s: %s", by_dmi.cloud, reason)
            return by_dmi
