"""Panels of services over several hosts, with prices by hand, on a real InfluxDB and a real Prometheus."""

import math
from functools import partial

import pytest
from costprobe.core.line_protocol import render
from costprobe.core.records import NS_PER_S
from costprobe.ui.grafana.provisioning import INFLUXDB
from fakes import fleet
from fakes.fleet_groups import START_S, disaggregated, member
from fakes.known import END_NS
from fakes.servers import Prometheus, running
from fakes.shown import panels_of, shown_from_influxdb, shown_from_prometheus

NAME = "fleet: Services of several hosts: "
PRICE, ROLES, HOSTS = (
    f"{NAME}{rest}"
    for rest in (
        "cost per million tokens ($currency)",
        "cost per hour by role ($currency)",
        "hosts that report",
    )
)
SERVED = {"requests": 100.0, "tokens_in": 1e6, "tokens_out": 1e5}
LEVEL = "production: Requests within the service level"
REQUESTS, NOW = "production: Requests", "home: Services: cost now ($currency)"
# Of 8 an hour each 4 M tokens in and 0.5 M out; of 5 an hour two fifths for 1 M in, the rest for 0.1 M out.
COLUMNS = ("per M in", "cost in", "M tokens in", "per M out", "cost out", "M tokens out")
WANTED = {
    PRICE: {"big": (2, 8, 4, 16, 8, 0.5), "tp": (2, 2, 1, 30, 3, 0.1)},
    ROLES: {"big prefill": 8.0, "big decode": 8.0, "tp worker": 5.0},
    HOSTS: {"big prefill": 2, "big decode": 2, "tp worker": 2},
    LEVEL: {"llm big prefill ttft_p90": 75.0, "llm big decode ttft_p90": 75.0},
}


def rows(hours):
    """Two pools, an engine over two hosts, and one that serves nothing; each row a minute before a full window."""
    assert START_S * NS_PER_S == END_NS
    at = {"ahead_s": -60}
    engine = {"group": "tp", **at}
    yield from disaggregated(hours, slo={"ttft_p90": (1200.0, 900.0)}, **at)
    yield from member("w1", "worker", hours, cost=3.0, counts=SERVED, split=0.4, **engine)
    yield from member("w2", "worker", hours, cost=2.0, **engine)


def idle():
    """An hour of an engine that serves nothing, and one paid in another currency."""
    counts = dict.fromkeys(SERVED, 0.0)
    none = {"ttft_p90": (0.0, 0.0)}
    idle = {"counts": counts, "split": 0.0, "slo": none}
    yield from member("i1", "worker", (-1,), group="idle", ahead_s=-60, **idle)
    yield from member("e1", "decode", (-1,), counts=SERVED, currency="EUR", group="euro")


def beside():
    """A complete replica with the name of the pools, each of whose requests both of them count."""
    yield from disaggregated((-2, -1), ahead_s=-60)
    yield from member("x", "all", (-2, -1), cost=3.0, counts=SERVED, split=0.4, ahead_s=-60)


def shown(edition, shown_from, query):
    panels = panels_of(edition)
    found = {title: shown_from(panels[title], title, query) for title in WANTED}
    rows = {row.pop("service_group"): row for row in found[PRICE]}
    return found | {PRICE: {name: tuple(map(row.get, COLUMNS)) for name, row in rows.items()}}


def wanted(title):
    found = WANTED[title].items()
    return {name: pytest.approx(value) for name, value in found}


def test_panels_of_groups_in_influxql(influxdb):
    influxdb.query('CREATE DATABASE "grouped"')
    fleet.write(influxdb, [render(row).encode() for row in (*rows((-1,)), *idle())], db="grouped")
    found = shown(INFLUXDB, shown_from_influxdb, partial(influxdb.query, db="grouped"))
    # A group without tokens has a cost, and no price.
    assert found[PRICE] == wanted(PRICE)
    assert found[ROLES] == wanted(ROLES) | {"idle worker": pytest.approx(1)}
    assert found[HOSTS] == wanted(HOSTS) | {"idle worker": 1}
    # Nothing is divided by no requests.
    assert found[LEVEL] == wanted(LEVEL)


def test_no_figure_counts_a_request_in_both_pools(influxdb, tmp_path):
    class Scraped(Prometheus):
        def __init__(self, folder):
            super().__init__(folder)
            self.backfill("\n".join([*fleet.scraped_of(beside()), ""]))

    influxdb.query('CREATE DATABASE "beside"')
    lines = [render(row).encode() for row in beside() if row.time_ns > END_NS - 3600 * NS_PER_S]
    fleet.write(influxdb, lines, db="beside")
    with running(Scraped, tmp_path / "prometheus", "prometheus") as server:
        for edition, shown_from, query in (
            (INFLUXDB, shown_from_influxdb, partial(influxdb.query, db="beside")),
            (
                "prometheus",
                shown_from_prometheus,
                partial(server.query, time_s=END_NS // NS_PER_S - 60),
            ),
        ):
            panels = panels_of(edition)
            assert shown_from(panels[REQUESTS], REQUESTS, query) == pytest.approx(1100)
            (now,) = shown_from(panels[NOW], NOW, query)
            prices = {"per million output tokens": 18, "per 1,000 requests": 30}
            assert now == {"service": "llm", **{key: pytest.approx(v) for key, v in prices.items()}}


def test_panels_of_groups_in_promql(tmp_path):
    class Scraped(Prometheus):
        def __init__(self, folder):
            super().__init__(folder)
            self.backfill("\n".join([*fleet.scraped_of(rows((-2, -1))), ""]))

    with running(Scraped, tmp_path / "prometheus", "prometheus") as server:
        found, later = (
            shown("prometheus", shown_from_prometheus, partial(server.query, time_s=time_s))
            for time_s in (END_NS // NS_PER_S - 60, END_NS // NS_PER_S + 3500)
        )
    assert found == {title: wanted(title) for title in WANTED}
    # Since then no counter has grown: nothing is divided by 0.
    assert not [value for row in later[PRICE].values() for value in row if value in (0, math.inf)]
