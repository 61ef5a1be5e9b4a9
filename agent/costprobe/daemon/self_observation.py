"""What costprobe stores about itself: the `agent` series, and events for the gaps in its operation."""

from __future__ import annotations

from costprobe import __version__
from costprobe.adapters.storage.writer import Store
from costprobe.app.accounting.documents import cpu_s, rss_bytes
from costprobe.core.clock_step import Gap
from costprobe.core.records import Event, Point
from costprobe.core.schema import make_point
from costprobe.daemon.runtime import Runtime


def agent_point(runtime: Runtime, store: Store, child_restarts: int, time_ns: int) -> Point:
    """Return a row of `agent`.

    Args:
        runtime: The parts of the configuration in force.
        store: The store that this process writes.
        child_restarts: Restarts of the sensor child.
        time_ns: UTC in ns.
    """
    delivered = runtime.delivery.totals()
    fields = {
        "rss_bytes": rss_bytes(),
        "cpu_s": cpu_s(),
        "outbox_points": delivered.outbox_points,
        "outbox_lag_s": delivered.outbox_lag_s,
        "sent_points": delivered.sent_points,
        "dropped_points": store.dropped_points(),
        "late_jobs": runtime.schedule.late_jobs,
        "child_restarts": child_restarts,
    }
    return make_point("agent", {**runtime.tags, "version": __version__}, fields, time_ns)


def gap_event(gap: Gap) -> Event:
    """Return the event of a time in which the daemon did not run."""
    what = "the host was suspended" if gap.is_suspension else "the daemon was stopped"
    return Event(
        kind="fault",
        severity="info",
        title=f"{what} for {gap.length_s:.0f} s",
        time_ns=gap.end_ns,
        detail="Rows of this time may be missing, and results of probes that include it are discarded.",
        cause="gap",
        since_ns=gap.start_ns,
    )
