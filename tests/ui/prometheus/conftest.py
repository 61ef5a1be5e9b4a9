"""A real Prometheus with the history of the hosts' /metrics."""

from functools import partial
from itertools import groupby

import pytest
from costprobe.adapters.store.write import Store
from costprobe.core.records import NS_PER_S
from costprobe.daemon.metrics import AgentNow, Metrics
from fakes.clock import FakeClock
from fakes.servers import Prometheus, running
from history import END_NS, RULES, SCRAPE_S, points

STATUS = {"version": "0.1.0"}
FIRING = {
    "state": "firing",
    "name": "drift",
    "severity": "warning",
    "cause": "drift cause",
    "summary": "cost of ranker rose",
    "labels": {"host": "a", "device": "gpu0", "probe": "ranker"},
}


def pages(store, host):
    """The rows of a host, stored step by step, and the page after each of them."""
    clock = FakeClock(points()[0].time_ns)
    opened = Store.open(store, clock)
    agent = {}
    now = AgentNow(None, {"jobs": True}, [], STATUS, {}, 0)
    page = Metrics(store, clock, SCRAPE_S, 5000, lambda: now._replace(row=agent["row"]))
    opened.put_state("alerts", {"alerts": [FIRING, {**FIRING, "state": "pending"}] * (host == "a")})
    rows = [point for point in points() if point.tags["host"] == host]
    scrapes = groupby(rows, key=lambda p: -(-p.time_ns // (SCRAPE_S * NS_PER_S)))
    last = END_NS // (SCRAPE_S * NS_PER_S)
    # Between two windows: scrapes without new rows.
    for time_ns, together in [*((t, [*r]) for t, r in scrapes), (last + 1, []), (last + 2, [])]:
        opened.append(taken := list(together))
        newest = next((p for p in taken if p.measurement == "agent"), None)
        agent["row"] = newest if taken else agent["row"]
        clock.step(time_ns * SCRAPE_S - clock.time_ns() / NS_PER_S)
        for line in page.openmetrics().decode().splitlines():
            if not line.startswith("#"):
                yield f"{scraped(line, host)} {time_ns * SCRAPE_S}"
    opened.close()


def scraped(line, host):
    """A sample with the labels that Prometheus adds to those of the page."""
    name, brace, labels = line.partition("{")
    if not brace:
        name, _, value = line.partition(" ")
        labels = f"}} {value}"
    comma = "," if brace else ""
    return f'{name}{{instance="{host}:9101",job="costprobe"{comma}{labels}'


def history(folder):
    """The lines of all pages."""
    for host in sorted({point.tags["host"] for point in points()}):
        yield from pages(folder / host / "costprobe.db", host)


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory):
    """A Prometheus that scraped the pages every five minutes."""
    folder = tmp_path_factory.mktemp("prometheus")
    lines = "\n".join([*history(folder / "hosts"), "# EOF\n"])
    with running(partial(Started, lines), folder, "prometheus") as server:
        yield server


class Started(Prometheus):
    """A Prometheus whose history is stored before it starts."""

    def __init__(self, history, folder):
        super().__init__(folder, rules=[RULES])
        self.backfill(history)
