"""Progress of each sink, as JSON."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported only by the type checker: the command must be fast
    from costprobe.adapters.store.cursors import SinkStatus


def outbox_document(sink: SinkStatus) -> dict[str, Any]:
    """Return a sink's progress as JSON; `outbox_lag_s` is the age of the oldest queued point."""
    oldest_ns = sink.backlog.oldest_time_ns
    return {
        "acked_seq": sink.acked_seq,
        "outbox_points": sink.backlog.points,
        "outbox_lag_s": 0.0 if oldest_ns is None else max(0.0, time.time() - oldest_ns / 1e9),
        "sent_points_total": sink.sent_points,
        "rejected_points_total": sink.rejected_points,
        "dropped_points_total": sink.dropped_points,
    }
