"""The three databases of a simulated fleet, each a real server."""

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


def wait_until_readable(server, name, lines, wait_until):
    """Wait until the index of each day has all samples of a database, which it gets some seconds after a flush."""
    times_s = [int(line.rsplit(b" ", 1)[1]) // NS_PER_S for line in lines]
    days = {"start": min(times_s, default=0) - 1, "end": max(times_s, default=0) + 1}

    def found(**span):
        return get(f"{server.url}/api/v1/export", **{"match[]": f'{{db="{name}"}}'}, **span)

    def is_readable():
        get(f"{server.url}/internal/force_flush")
        return len(found(**days)) == len(found()) > 0

    wait_until(is_readable)


@pytest.fixture
def section(request, tmp_path, wait_until):
    """The section [fleet] of a database of its own, with the lines that hosts push or the samples of a scrape."""
    with ExitStack() as stack:

        def filled(kind, name, lines=(), scraped=()):
            lines = list(lines)
            if kind == "prometheus":
                server = stack.enter_context(scraping(tmp_path / "prometheus", scraped))
                return f'[fleet]\nkind = "{kind}"\nurl = "{server.url}"\n'
            server = request.getfixturevalue({"influxql": "influxdb"}.get(kind, kind))
            if kind == "influxql":
                server.query(f'CREATE DATABASE "{name}"')
            fleet.write(server, lines, db=name)
            if kind == "victoriametrics":
                wait_until_readable(server, name, lines, wait_until)
            return f'[fleet]\nkind = "{kind}"\nurl = "{server.url}"\ndatabase = "{name}"\n'

        yield filled


@pytest.fixture(params=["influxql", "victoriametrics", "prometheus"])
def config(request):
    """The section [fleet] of each kind of database with the simulated fleet."""
    server = request.getfixturevalue({"influxql": "influxdb"}.get(request.param, request.param))
    database = {} if request.param == "prometheus" else {"database": DATABASE}
    return FleetConfig.model_validate({"kind": request.param, "url": server.url, **database})
