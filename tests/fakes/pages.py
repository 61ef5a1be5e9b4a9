"""The pages of a store, served without a daemon."""

from contextlib import closing, contextmanager

from costprobe.adapters.http.settings import HttpConfig
from costprobe.daemon.pages import HttpPages


class Reported:
    """What a daemon would report; a test modifies it.

    Args:
        store: Its store.
        clock: Its clock.
        row: The row of the agent.
        sections: Of its status.
    """

    annotate = dict

    def __init__(self, store, clock, row=None, **sections):
        self.store, self.clock, self.row = store, clock, row
        self.alive = {"sensors": True, "jobs": True}
        self.document = {
            "version": "1.2.3",
            "config_fault": None,
            "sensor": {"state": "running", "last_fault": "", "devices": {}},
            "store": {"path": str(store.path), "fault": None},
            **{section: {} for section in ("jobs", "sinks", "notifiers")},
            "probes": [],
            **sections,
        }

    def status(self):
        return self.document

    def agent_point(self):
        return self.row


def pages_of(reported):
    """The pages, which are not served yet."""
    return HttpPages(reported, lambda: reported.alive)


@contextmanager
def served(store, clock, **options):
    """Serve /healthz and /metrics of a store; yields host and port."""
    with closing(pages_of(Reported(store, clock))) as pages:
        pages.serve(HttpConfig(listen="127.0.0.1:0", **options))
        yield f"127.0.0.1:{pages.status()['port']}"
