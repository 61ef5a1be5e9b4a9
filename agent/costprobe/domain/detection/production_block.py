"""Windows of a service added up to blocks of about the same length, as input of detection."""

from __future__ import annotations

import base64
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costprobe.core.records import NS_PER_S, Point
from costprobe.core.row_values import number
from costprobe.domain.costing.comparison.production_sums import (
    ModelSums,
    ProductionSums,
    production_sums,
)

# A block that windows with a known cost cover less has no value.
COVERED_SHARE = 0.8
# A block with less traffic continues until it is MOST_BLOCKS long.
LEAST_REQUESTS = 50.0
# Where requests are not counted.
LEAST_TOKENS = 20_000.0
MOST_BLOCKS = 4
# A block with a smaller busy share measures background activity.
LEAST_BUSY_SHARE = 0.005
_SUMS = (
    "window_s",
    "hardware",
    "electricity",
    "idle_cost",
    "device_s",
    "busy_s",
    "energy_j",
)
# Rows of a block that are kept.
MAX_ROWS = 1000


@dataclass(frozen=True, slots=True)
class ProductionBlock:
    """Sums over consecutive windows of a service.

    Attributes:
        end_s: UTC in s of its end.
        sums: Its sums.
        has_traffic: Whether the traffic suffices for ratios.
    """

    end_s: float
    sums: ProductionSums
    has_traffic: bool

    @property
    def hours(self) -> float:
        """Length of its windows in hours."""
        return self.sums.window_s / 3600

    @property
    def has_tokens(self) -> bool:
        """Whether tokens are counted."""
        return self.sums.total.tokens > 0

    @property
    def mix(self) -> tuple[float, float]:
        """Logarithms of output per input, and of requests per token; 0 where they are not counted."""
        total = self.sums.total
        if not total.tokens:
            return 0.0, 0.0
        per_input = math.log((total.tokens_out + 1) / (total.computed + 1))
        return per_input, math.log(total.requests / total.tokens) if total.requests else 0.0

    @property
    def busy_share(self) -> float:
        """Busy share of the devices; 0 if unknown."""
        return (self.sums.busy_s or 0.0) / self.sums.device_s if self.sums.device_s else 0.0


class BlockBuilder:
    """Add up the rows of one service.

    Args:
        block_s: Length of a block in s; windows longer than that are a block each.
    """

    def __init__(self, block_s: float) -> None:
        self._block_ns = round(block_s * NS_PER_S)
        self._rows: list[Point] = []
        self._last_ns = 0
        self.ended_ns = 0

    def add(self, rows: Sequence[Point]) -> list[ProductionBlock]:
        """Add the rows of the next window; return the blocks that it completes.

        Args:
            rows: The service's row, and those of its models. A window that was added is skipped.
        """
        row = rows[0]
        if row.time_ns <= max(self.ended_ns, self._rows[-1].time_ns if self._rows else 0):
            return []
        blocks = []
        middle_ns = row.time_ns - _window_ns(row) // 2
        if self._rows and self._number(middle_ns) != self._number(self._last_ns):
            blocks += self._ended(is_last=row.time_ns - self._first_ns > self._longest_ns)
        self._rows.extend(rows)
        self._last_ns = middle_ns
        del self._rows[:-MAX_ROWS]
        if self._number(row.time_ns) != self._number(self._last_ns):
            blocks += self._ended(is_last=row.time_ns - self._first_ns >= self._longest_ns)
        return blocks

    @property
    def _longest_ns(self) -> int:
        return MOST_BLOCKS * self._block_ns

    @property
    def _first_ns(self) -> int:
        return self._rows[0].time_ns - _window_ns(self._rows[0])

    def _number(self, time_ns: int) -> int:
        return time_ns // self._block_ns

    def _ended(self, *, is_last: bool) -> list[ProductionBlock]:
        """Return the block of the rows; none while it continues, and for one without coverage."""
        block = _block(self._rows)
        if block is None or not (block.has_traffic or is_last):
            return []
        end_ns, length_ns = self._rows[-1].time_ns, self._rows[-1].time_ns - self._first_ns
        self._rows.clear()
        self.ended_ns = end_ns
        least_s = COVERED_SHARE * max(length_ns, self._block_ns) / NS_PER_S
        return [block] if block.sums.window_s >= least_s else []


def pack_blocks(blocks: Iterable[ProductionBlock]) -> dict[str, Any]:
    """Return blocks as JSON, without the division among models."""
    all_blocks = list(blocks)
    numbers = array("f")
    for block in all_blocks:
        sums = block.sums
        known = [math.nan if (value := getattr(sums, name)) is None else value for name in _SUMS]
        total = sums.total
        numbers.extend([*known, *(getattr(total, name) for name in ModelSums.__slots__)])
    newest = all_blocks[-1].sums if all_blocks else None
    return {
        "ends_s": [block.end_s for block in all_blocks],
        "sums": base64.b64encode(numbers.tobytes()).decode(),
        "devices": list(newest.devices) if newest else [],
        "currency": newest.currency if newest else "",
    }


def unpack_blocks(document: Mapping[str, Any]) -> list[ProductionBlock]:
    """Return the blocks of a document.

    Raises:
        KeyError, TypeError, ValueError: It is damaged.
    """
    numbers = array("f")
    numbers.frombytes(base64.b64decode(document["sums"], validate=True))
    width = len(_SUMS) + len(ModelSums.__slots__)
    blocks = []
    for index, end_s in enumerate(document["ends_s"]):
        values = numbers[index * width : (index + 1) * width]
        if len(values) != width:
            raise ValueError("the blocks are truncated")
        window_s, hardware, electricity, idle_cost, device_s, busy_s, energy_j, *total = values
        sums = ProductionSums(
            window_s=window_s,
            hardware=hardware,
            electricity=electricity,
            idle_cost=_known(idle_cost),
            device_s=device_s,
            busy_s=_known(busy_s),
            energy_j=_known(energy_j),
            models={"": ModelSums(*total)},
            devices=tuple(document["devices"]),
            currency=str(document["currency"]),
        )
        blocks.append(ProductionBlock(float(end_s), sums, has_traffic=True))
    return blocks


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _window_ns(row: Point) -> int:
    return round((number(row, "window_s") or 0.0) * NS_PER_S)


def _block(rows: Sequence[Point]) -> ProductionBlock | None:
    sums = production_sums(rows)
    if sums is None:
        return None
    total = sums.total
    requests = total.requests or total.inferences
    is_enough = requests >= LEAST_REQUESTS if requests else total.tokens >= LEAST_TOKENS
    return ProductionBlock(rows[-1].time_ns / NS_PER_S, sums, is_enough)
