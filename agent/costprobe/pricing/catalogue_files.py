"""Reading the catalogue of the package, and installing newer price tables beside it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from costprobe.adapters.host.files import replace_file
from costprobe.core.outside import decoded_text, read_regular
from costprobe.core.periods import utc_day
from costprobe.core.records import NS_PER_S
from costprobe.pricing.catalogue import (
    Catalogue,
    GpuNames,
    HostedPrice,
    OffersOf,
    parse_gpus,
    parse_hosted,
    parse_offers,
    parse_purchases,
    version_of,
)

logger = logging.getLogger(__name__)

MAX_BYTES: Final = 1 << 20
# Installed tables that are read, the newest first.
MAX_INSTALLED: Final = 50
_PACKAGED: Final = Path(__file__).parent / "data"
_PATTERN: Final = "prices-*.csv"


@cache
def packaged() -> Catalogue:
    """Return the catalogue of this version of costprobe."""
    table = _read(_PACKAGED / "prices.csv")
    purchases = parse_purchases(_read(_PACKAGED / "purchases.csv"))
    return Catalogue(version_of(table), OffersOf(table), purchases, gpu_names())


@cache
def gpu_names() -> GpuNames:
    """Return the GPU models that this version of costprobe knows."""
    return GpuNames(parse_gpus(_read(_PACKAGED / "gpus.csv")))


def hosted_models() -> dict[str, HostedPrice]:
    """Return the list prices of hosted models of this version of costprobe, by model."""
    return parse_hosted(_read(_PACKAGED / "hosted.csv"))


def parsed(text: str) -> Catalogue:
    """Return the catalogue with the prices of another table.

    Args:
        text: A table as in the package.

    Raises:
        ValueError: It is not one, or names a GPU that this version of costprobe does not know.
    """
    version, offers = parse_offers(text)
    base = packaged()
    known = {gpu.model for gpu in base.gpus.gpus} | {""}
    unknown = sorted({offer.gpu_model for offer in offers} - known)
    if unknown:
        raise ValueError(f"gpu_model {unknown[0]!r} is no name of a GPU that NVML reports")
    return Catalogue(version, OffersOf(text), base.purchases, base.gpus)


class CatalogueFolder:
    """The price tables that were installed on a host; none is ever removed.

    Args:
        folder: Their folder, which need not exist. It is read at the first question.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tables: list[tuple[int, Catalogue]] | None = None

    def at(self, time_ns: int) -> Catalogue:
        """Return the catalogue in force: the newest of those installed until then and the package's.

        Args:
            time_ns: UTC ns since 1970.
        """
        if self._tables is None:
            self._tables = list(self._installed())
        found = [catalogue for since_ns, catalogue in self._tables if since_ns <= time_ns]
        return max([packaged(), *found], key=lambda catalogue: catalogue.version)

    def install(self, content: bytes, now_ns: int) -> Catalogue:
        """Check a price table and install it.

        Args:
            content: The file.
            now_ns: UTC ns; the table applies from now on.

        Raises:
            ValueError: The content is not a valid table, or not newer than the one in force.
            OSError: It cannot be written.
        """
        text = decoded_text(content, MAX_BYTES)
        catalogue = parsed(text)
        if catalogue.version > utc_day(now_ns):
            raise ValueError(f"its version {catalogue.version} is in the future")
        current = self.at(now_ns).version
        if catalogue.version <= current:
            raise ValueError(
                f"its version {catalogue.version} is not newer than {current}, in force"
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"prices-{now_ns // NS_PER_S}.csv"
        replace_file(path, text.encode())
        # The daemon's user reads what root installed, whatever the umask was.
        path.chmod(0o644)
        self._tables = None
        return catalogue

    def _installed(self) -> Iterator[tuple[int, Catalogue]]:
        """Yield UTC ns of installation and content of each table; one that is damaged is skipped."""
        for path in sorted(self._folder.glob(_PATTERN), reverse=True)[:MAX_INSTALLED]:
            seconds = path.stem.partition("-")[2]
            if seconds.isascii() and seconds.isdigit():
                try:
                    yield int(seconds) * NS_PER_S, parsed(_read(path))
                except (OSError, ValueError) as error:
                    logger.warning("%s: not a price table (%s); it is skipped", path, error)


def _read(path: Path) -> str:
    return decoded_text(read_regular(path, MAX_BYTES + 1), MAX_BYTES)
