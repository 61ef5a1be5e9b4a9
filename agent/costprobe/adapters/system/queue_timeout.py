"""The shortest timeout for a `queue.SimpleQueue`."""

from __future__ import annotations

from typing import Final

# CPython's `SimpleQueue.get` recomputes the remaining time after a spurious wake-up. With a shorter
# timeout the remainder may be negative, which means to wait indefinitely (seen with 3.11).
LEAST_WAIT_S: Final = 0.001
