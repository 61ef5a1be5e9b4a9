"""The three databases of a simulated fleet, each a real server."""

import time
from contextlib import ExitStack, contextmanager

import pytest
from costprobe.adapters.databases.question import FleetConfig
from costprobe.core.records import NS_PER_S
from costprobe.ui.influx_setup.steps import ROLLED
from costprobe.ui.influx_setup.v1 import create_query
from fakes import fleet
from fakes.servers import InfluxDB, Prometheus, VictoriaMetrics, get, running

DATABASE = "costprobe"
HOURLY = "costprobe_hourly"


@pytest.fixture(scope="session")
def influxdb(tmp_path_factory):
    with running(InfluxDB, tmp_path_factory.mktemp("influxdb"), "influxd") as server:
        server.query(f'CREATE DATABASE "{DATABASE}"')
        fleet.write(server, db=DATABASE)
        roll_up(server)
        yield server


def roll_up(server):
    """Compute the hourly rows with the statements of the continuous queries of `influx setup`."""
    server.query(f'CREATE DATABASE "{HOURLY}"')
    span = f"time >= {fleet.START_S * NS_PER_S} AND time <= {fleet.END_S * NS_PER_S}"
    for rolled in ROLLED:
        text = create_query(rolled, (DATABASE, "autogen"), (HOURLY, "autogen"))
        select = text.partition("BEGIN ")[2].removesuffix(" END")
        where = f"WHERE {span} AND" if rolled.basis else f"WHERE {span} GROUP"
        server.query(select.replace("WHERE" if rolled.basis else "GROUP", where, 1))


@pytest.fixture(scope="session")
def victoriametrics(tmp_path_factory):
    folder = tmp_path_factory.mktemp("victoria")
    with running(VictoriaMetrics, folder, "victoria-metrics") as server:
        fleet.write(server, db=DATABASE)
        get(f"{server.url}/internal/force_flush")
        yield server


@contextmanager
def scraping(folder, samples):
    """A Prometheus with these samples."""

    class Scraped(Prometheus):
        def __init__(self, folder):
            super().__init__(folder)
            self.backfill("\n".join([*samples, ""]))

    with running(Scraped, folder, "prometheus") as server:
        yield server


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory):
    with scraping(tmp_path_factory.mktemp("prometheus"), fleet.scraped()) as server:
        yield server


def wait_until_readable(server, name):
    """Wait until no more samples of a database become readable, which they do with a delay, also after a flush."""
    before, found = -1, 0
    while found != before:
        before = found
        time.sleep(0.3)
        get(f"{server.url}/internal/force_flush")
        found = len(get(f"{server.url}/api/v1/export", **{"match[]": f'{{db="{name}"}}'}))


@pytest.fixture
def section(request, tmp_path):
    """The section [fleet] of a database of its own, with the lines that hosts push or the samples of a scrape."""
    with ExitStack() as stack:

        def filled(kind, name, lines=(), scraped=()):
            if kind == "prometheus":
                server = stack.enter_context(scraping(tmp_path / "prometheus", scraped))
                return f'[fleet]\nkind = "{kind}"\nurl = "{server.url}"\n'
            server = request.getfixturevalue({"influxql": "influxdb"}.get(kind, kind))
            if kind == "influxql":
                server.query(f'CREATE DATABASE "{name}"')
            fleet.write(server, lines, db=name)
            if kind == "victoriametrics":
                wait_until_readable(server, name)
            return f'[fleet]\nkind = "{kind}"\nurl = "{server.url}"\ndatabase = "{name}"\n'

        yield filled


@pytest.fixture(params=["influxql", "victoriametrics", "prometheus"])
def config(request):
    """The section [fleet] of each kind of database with the simulated fleet."""
    server = request.getfixturevalue({"influxql": "influxdb"}.get(request.param, request.param))
    database = {} if request.param == "prometheus" else {"database": DATABASE}
    return FleetConfig.model_validate({"kind": request.param, "url": server.url, **database})
