"""The `agent` series: what infercost itself costs and has yet to do."""

from __future__ import annotations

from agent import __version__
from agent.daemon.running import Running
from agent.daemon.status import cpu_s, rss_bytes
from agent.model import Point
from agent.series import make_point
from agent.storage.writer import Store


def agent_point(running: Running, store: Store, child_restarts: int, time_ns: int) -> Point:
    """A row of `agent`.

    Args:
        running: The configuration at work.
        store: The one writer.
        child_restarts: How often the sensor child was started again.
        time_ns: UTC in ns of now.
    """
    pushed = running.pushing.totals()
    fields = {
        "rss_bytes": rss_bytes(),
        "cpu_s": cpu_s(),
        "outbox_points": pushed.outbox_points,
        "outbox_lag_s": pushed.outbox_lag_s,
        "sent_points": pushed.sent_points,
        "dropped_points": store.dropped_points(),
        "late_jobs": running.schedule.late_jobs,
        "child_restarts": child_restarts,
    }
    return make_point("agent", {**running.tags, "version": __version__}, fields, time_ns)
