"""The shortest wait at a `queue.SimpleQueue`."""

from __future__ import annotations

from typing import Final

# CPython's `SimpleQueue.get` takes what is left of its time anew whenever it was woken for nothing,
# and what is left of less than this may be negative by then, which means for ever (seen with 3.11).
LEAST_WAIT_S: Final = 0.001
