"""The pages of a store, served without a daemon."""

from contextlib import contextmanager
from types import SimpleNamespace

from costprobe.adapters.http.settings import HttpConfig
from costprobe.daemon.pages import HttpPages


@contextmanager
def served(store, clock, **options):
    """Serve /healthz and /metrics of a store; yields host and port."""
    status = {
        "version": "1",
        "config_fault": None,
        "sensor": {"state": "running", "last_fault": "", "devices": {}},
        "store": {"path": str(store.path), "fault": None},
        **{section: {} for section in ("jobs", "sinks", "notifiers")},
        "probes": [],
    }
    parts = SimpleNamespace(
        store=store, clock=clock, status=lambda: status, agent_point=lambda: None, annotate=dict
    )
    pages = HttpPages(parts, lambda: {"jobs": True})
    pages.serve(HttpConfig(listen="127.0.0.1:0", **options))
    try:
        yield f"127.0.0.1:{pages.status()['port']}"
    finally:
        pages.close()
