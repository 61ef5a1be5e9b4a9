"""Fixtures that several folders of tests share: the real databases, one of each per run."""

import gc
import json
import os
import signal
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from costprobe.adapters.host.files import controller_of
from costprobe.adapters.host.redaction import REDACTOR
from costprobe.adapters.store.write import Store
from fakes.clock import FakeClock
from fakes.daemon import DaemonProcess
from fakes.nvml import FakeNvml
from fakes.process_tests import starts_processes
from fakes.programs import require
from fakes.servers import InfluxDB, VictoriaMetrics, running
from fakes.sizes import sized
from hypothesis import HealthCheck, settings

# Waiting threads of torch sleep instead of spinning, and numpy uses one thread, here and in every
# child: a spinning thread would use the core that another test needs.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Daemons of tests that run at the same time have the same scripted devices.
os.environ.setdefault("COSTPROBE_SCOPE", f"tests {os.getpid()}")

# Root's commands take the rights of the user to whom the demo mode's folder belongs: a command in the
# process of the tests would do so for all that follow.
if os.geteuid() == 0 and controller_of(Path.home()) is not None:
    os.environ["HOME"] = "/root"

# A job in the background ignores SIGINT, and its children would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The current speed of the machine is not a property of the code. Each run has other examples.
settings.register_profile(
    "costprobe",
    deadline=None,
    max_examples=sized(30, 500),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("costprobe")

# The files that take longest run first, so that no worker runs one of them at the end.
LONG = (
    "drift/test_production_monitor.py",
    "drift/test_detector.py",
    "daemon/test_wrong_wall_clock.py",
    "drift/test_drift_monitor.py",
    "record/test_month_record.py",
    "service/test_under_systemd.py",
    "daemon/test_serving.py",
    "daemon/test_daemon.py",
    "drift/test_named_causes.py",
    "daemon/test_neighbours.py",
    "ui/cli/test_all_commands.py",
    "faults/test_clocks.py",
    "adapters/sensors/test_supervisor.py",
    "ui/cli/test_readme.py",
)


def pytest_itemcollected(item):
    """Mark the tests that start processes; `pytestmark` marks those where only the product does."""
    if starts_processes(item):
        item.add_marker("processes")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))


@pytest.fixture(autouse=True)
def _no_known_secrets():
    """The secrets of one test may be ordinary words of another."""
    yield
    REDACTOR.forget()


# Seconds to import, in each worker: by the tests that use them, at their first use.
HEAVY = {"apprise", "pandas", "playwright", "pyarrow", "torch", "transformers"}
LOADED = pytest.StashKey[set]()


def pytest_collection_finish(session):
    session.config.stash[LOADED] = HEAVY & sys.modules.keys()
    # Thousands of tests stay until the end: the collector need not traverse them again and again.
    gc.collect()
    gc.freeze()


@pytest.fixture
def loaded_by_collection(request):
    """The heavy packages that the collection of the tests imported."""
    return request.config.stash[LOADED]


@pytest.fixture(scope="session")
def influxdb_server(tmp_path_factory):
    with running(InfluxDB, tmp_path_factory.mktemp("influxdb"), "influxd") as server:
        yield server


@pytest.fixture
def influxdb(influxdb_server, request):
    """A real InfluxDB 1.x with an empty database for the test."""
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


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    """An empty store."""
    with closing(Store.open(tmp_path / "costprobe.db", clock)) as store:
        yield store


@pytest.fixture
def daemon_in(tmp_path):
    """Create daemons with the test's environment, each in the test's folder."""
    with ExitStack() as stack:
        yield lambda wrapper=(), **env: stack.enter_context(DaemonProcess(tmp_path, env, wrapper))


@pytest.fixture
def gpus_of(tmp_path):
    """Create a host with so many GPUs, each of 300 W."""

    def make(count):
        fake = FakeNvml(tmp_path, gpus=count)
        for gpu in fake.gpus:
            gpu.set_power(300.0)
        return fake

    return make


@pytest.fixture
def gpus(gpus_of):
    return gpus_of(2)


def wait_until(condition, timeout_s=60.0):
    """Wait until a condition of another thread or process is true."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.01)
    raise TimeoutError(f"the condition was not true within {timeout_s:g} s")


@pytest.fixture(name="wait_until")
def wait_until_fixture():
    return wait_until


@pytest.fixture
def figures():
    """Record the result of each case as a JSON line, in long runs only."""
    path = os.environ.get("COSTPROBE_SOAK_FIGURES")

    def keep(case, **values):
        if path is not None:
            with Path(path).open("a") as file:
                file.write(json.dumps({"case": case, **values}) + "\n")

    return keep


@pytest.fixture(scope="module")
def browser():
    """Chromium; without one the tests are skipped, and fail where CI=true."""
    found = require("chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield launched
        launched.close()
