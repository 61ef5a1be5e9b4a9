"""The instants of samples and of the ends of rows: fixed grids, so that a late one delays no other."""

from __future__ import annotations


def next_on_grid(start_ns: int, every_ns: int, now_ns: int) -> int:
    """Return the first instant after now on a grid; a late sample is skipped and delays no other."""
    return start_ns + ((now_ns - start_ns) // every_ns + 1) * every_ns


class SampleGrid:
    """When a device is sampled, and which samples end a row.

    Args:
        start_ns: Origin of both grids, in CLOCK_MONOTONIC ns.
        every_ns: Interval of samples.
        row_ns: Length of rows.

    Attributes:
        sample_ns: When the next sample is due.
    """

    def __init__(self, start_ns: int, every_ns: int, row_ns: int) -> None:
        self._start_ns = start_ns
        self._every_ns = every_ns
        self._row_ns = row_ns
        self.sample_ns = start_ns
        self._row_end_ns = start_ns + row_ns

    @property
    def closes_row(self) -> bool:
        """Whether the next sample ends a row."""
        return self.sample_ns >= self._row_end_ns

    def begin(self, now_ns: int) -> None:
        """Skip what was due before now."""
        if now_ns > self._start_ns:
            self.sample_ns = next_on_grid(self._start_ns, self._every_ns, now_ns)
            # A row holds two samples at least, between which something can be counted.
            self._row_end_ns = next_on_grid(self._start_ns, self._row_ns, self.sample_ns)

    def advance(self, now_ns: int) -> None:
        """Move on from the sample that was due and has been taken."""
        if self.closes_row:
            self._row_end_ns = next_on_grid(self._start_ns, self._row_ns, self.sample_ns)
        self.sample_ns = next_on_grid(self._start_ns, self._every_ns, max(self.sample_ns, now_ns))
