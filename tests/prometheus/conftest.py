"""A real Prometheus with the history of two hosts' /metrics."""

from functools import partial
from itertools import groupby
from operator import attrgetter

import pytest
from costprobe.adapters.storage.writer import Store
from costprobe.core.records import NS_PER_S
from costprobe.daemon.http.metrics import AgentNow, Metrics
from fakes.clock import FakeClock
from fakes.servers import Prometheus, running
from history import END_NS, HISTORY_S, RULES, SCRAPE_S, points

STATUS = {"version": "0.1.0"}


def pages(store):
    """The rows of the last hours, stored step by step, and the page after each of them."""
    start_ns = END_NS - HISTORY_S * NS_PER_S
    clock = FakeClock(start_ns)
    opened = Store.open(store, clock)
    agent = {}
    now = AgentNow(None, {"jobs": True}, [], STATUS, {}, 0)
    page = Metrics(store, clock, SCRAPE_S, 5000, lambda: now._replace(row=agent.get("row")))
    rows = sorted(points(), key=attrgetter("time_ns"))
    for time_ns, together in groupby(rows, key=lambda p: -(-p.time_ns // (SCRAPE_S * NS_PER_S))):
        opened.append(taken := list(together))
        agent["row"] = next(p for p in taken if p.measurement == "agent")
        clock.step(time_ns * SCRAPE_S - clock.time_ns() / NS_PER_S)
        for line in page.openmetrics().decode().splitlines():
            if not line.startswith("#"):
                yield f"{line} {time_ns * SCRAPE_S}"
    opened.close()


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory):
    """A Prometheus that scraped the pages every five minutes."""
    folder = tmp_path_factory.mktemp("prometheus")
    history = "\n".join([*pages(folder / "host" / "costprobe.db"), "# EOF\n"])
    with running(partial(Started, history), folder, "prometheus") as server:
        yield server


class Started(Prometheus):
    """A Prometheus whose history is stored before it starts."""

    def __init__(self, history, folder):
        super().__init__(folder, rules=[RULES])
        self.backfill(history)
