"""Tags of rows of `software`."""

from collections.abc import Mapping
from typing import Final

# And the fact of the fingerprint that each contains.
SOFTWARE_TAGS: Final[Mapping[str, str]] = {
    "driver": "driver",
    "torch": "torch",
    "cuda": "cuda",
    "dtype": "dtype",
    "weights_hash": "weights",
}
