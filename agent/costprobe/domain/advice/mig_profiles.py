"""The sizes of MIG instances, from the product names of boards and MIG devices.

Source: NVIDIA's MIG user guide, "Supported MIG Profiles".
"""

from __future__ import annotations

import re

# Product names, and the compute slices of the board.
_BOARDS: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"\bA30\b"), 4),
    (re.compile(r"\b([AH][18]00|H20|G?H200|G?B[23]00)(?!\d)"), 7),
)
_PROFILE = re.compile(r"\bMIG (?:(\d+)c\.)?(\d+)g\.")


def slices_of(model: str) -> int | None:
    """Return the compute slices of a MIG device from its name; None if unknown."""
    match = _PROFILE.search(model)
    return int(match[1] or match[2]) if match else None


def board_slices(model: str) -> int:
    """Return the compute slices of a MIG device's board from its name; 0 if unknown."""
    return next((slices for pattern, slices in _BOARDS if pattern.search(model)), 0)
