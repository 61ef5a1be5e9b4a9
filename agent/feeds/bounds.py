"""How much a source may give: known to who fetches and to who reads, neither of which loads the other."""

from __future__ import annotations

from typing import Final

MAX_BYTES: Final = 1 << 20
