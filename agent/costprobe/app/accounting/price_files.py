"""Writing the measured cost of tokens to price files of gateways, once a day."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from costprobe.adapters.storage.reader import StoreReader
from costprobe.adapters.system.safe_write import replace_file
from costprobe.app.schedule import JobError
from costprobe.core.clock import Clock
from costprobe.core.moments import iso
from costprobe.core.records import NS_PER_S
from costprobe.domain.costing.comparison.read_fields import SERVICE_FIELDS
from costprobe.domain.costing.serving.gateway_prices import PRICE_FILES, model_prices
from costprobe.domain.costing.serving.price_file_settings import PriceFileConfig
from costprobe.domain.costing.serving.token_prices import token_prices

logger = logging.getLogger(__name__)

EVERY_S: Final = 86_400.0
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class PriceFile:
    """A price file of a gateway.

    Args:
        settings: The configuration section.
        models: Name of the model of services whose engine reports none, by service.
        store_path: The store that costs are read from.
        clock: The host's clocks.
    """

    def __init__(
        self, settings: PriceFileConfig, models: Mapping[str, str], store_path: Path, clock: Clock
    ) -> None:
        self.name = f"price file {settings.file}"
        self._settings = settings
        self._models = models
        self._store_path = store_path
        self._clock = clock

    def write(self) -> None:
        """Replace the file in one step; without a cost of tokens the file stays as it is.

        Raises:
            JobError: The prices cannot be stated in US dollars, or the file cannot be written.
        """
        settings, until_ns = self._settings, self._clock.time_ns()
        since_ns = until_ns - int(settings.window_s * NS_PER_S)
        with closing(StoreReader.open(self._store_path)) as reader:
            tags = {"basis": "serving"}
            rows = reader.columns("cost", since_ns, until_ns, tags, fields=SERVICE_FIELDS)
            found = token_prices(rows, settings.window_s)
        until = iso(until_ns)
        span = {"since": iso(since_ns), "until": until}
        try:
            prices = model_prices(found, settings.usd, self._models, span)
            if not prices:
                logger.info("%s: no tokens with a cost; nothing is written", self.name)
                return
            text = PRICE_FILES[settings.program](prices, settings.provider, until)
            _check_folder(settings.file.parent)
            replace_file(settings.file, f"{text}\n".encode(), int(settings.mode, 8))
            # Whatever the umask is.
            settings.file.chmod(int(settings.mode, 8))
        except OSError as error:
            raise JobError(f"cannot be written ({error.strerror})") from error
        except ValueError as error:
            raise JobError(str(error)) from error


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which another user could replace the file.

    Raises:
        OSError: It is absent, another user's, or others may write in it.
    """
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & _WRITABLE_BY_OTHERS:
        words = "its folder belongs to another user, or others may write in it"
        raise OSError(errno.EPERM, words, str(folder))
