"""What several folders of tests share: the real databases, one of each a run."""

import os
import time
from pathlib import Path

import pytest
from fakes.servers import InfluxDB, VictoriaMetrics, running
from hypothesis import HealthCheck, settings

# Threads of torch that wait for one another sleep, here and in every child, and numpy has but one:
# to spin, as is usual, takes from the tests beside it the core on which another would end the wait.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# How fast this machine is at the moment is no property of the code.
settings.register_profile("infercost", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("infercost")

# Each takes a worker half a minute or more: begun first, so that none is left alone with one at the
# end; those that compute and those that wait by turns, so that two workers seldom want both cores.
LONG = (
    "probing/test_sources.py",
    "daemon/test_daemon.py",
    "service/test_lifecycle.py",
    "daemon/test_serving.py",
    "probing/test_worker.py",
    "service/test_under_systemd.py",
    "grafana/test_real_day.py",
    "faults/test_clocks.py",
    "cli/test_readme.py",
    "daemon/test_alerting.py",
    "docs/test_tutorial.py",
    "security/test_readers_bounded.py",
    "probing/test_ways.py",
    "daemon/test_neighbours.py",
    "cli/test_json.py",
    "telemetry/test_sensor_supervisor.py",
    "docs/test_howto.py",
    "telemetry/test_sensor_gpu.py",
    "dashboard/test_browser.py",
    "daemon/test_http_daemon.py",
    "cli/test_sweep.py",
    "faults/test_disk.py",
    "cli/test_terminal.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))


@pytest.fixture(scope="session")
def influxdb_server(tmp_path_factory):
    with running(InfluxDB, tmp_path_factory.mktemp("influxdb"), "influxd") as server:
        yield server


@pytest.fixture
def influxdb(influxdb_server, request):
    """A real InfluxDB 1.x with an empty database of the test's own."""
    name = f"t{abs(hash(request.node.nodeid))}"
    influxdb_server.query(f'CREATE DATABASE "{name}"')
    influxdb_server.database = name
    yield influxdb_server
    influxdb_server.query(f'DROP DATABASE "{name}"')


@pytest.fixture
def own_influxdb(tmp_path):
    """A real InfluxDB 1.x that the test may stop."""
    with running(InfluxDB, tmp_path / "influxdb", "influxd") as server:
        yield server


@pytest.fixture
def victoria(tmp_path):
    """A real VictoriaMetrics that the test may stop."""
    with running(VictoriaMetrics, tmp_path / "victoria", "victoria-metrics") as server:
        yield server


def wait_until(condition, timeout_s=60.0):
    """Waits for something that another thread or process does."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.01)
    raise TimeoutError("it did not happen")


@pytest.fixture(name="wait_until")
def wait_until_fixture():
    return wait_until
