"""A dashboard server with a store of one day."""

import pytest
from browser_tab import Tab
from costprobe.core.clock import SystemClock
from dashboard_page import Page
from dashboard_samples import DEVICES, device_row, filled, planned, write_status
from fakes.clock import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    store = filled(tmp_path / "costprobe.db", clock)
    yield store
    store.close()


@pytest.fixture
def page_on():
    """Starts dashboard servers; stops them at the end."""
    made = []

    def start(store_path, clock, **options):
        page = Page(store_path, clock, **options)
        made.append(page)
        return page

    yield start
    for page in made:
        page.stop()


@pytest.fixture
def page(page_on, store, clock):
    return page_on(store.path, clock, budgets=planned(store, clock))


@pytest.fixture(scope="module")
def kept_store(tmp_path_factory):
    """A store of one day that no test changes."""
    store = filled(tmp_path_factory.mktemp("day") / "costprobe.db", FakeClock())
    yield store
    store.close()


@pytest.fixture(scope="module")
def kept_page(kept_store):
    """The server of that store."""
    clock = FakeClock()
    page = Page(kept_store.path, clock, budgets=planned(kept_store, clock))
    yield page
    page.stop()


@pytest.fixture
def today(tmp_path):
    """A store whose day ends at the real time, which the browser's clock shows."""
    store = filled(tmp_path / "today.db", SystemClock())
    yield store
    store.close()


@pytest.fixture
def open_tab(browser, page_on, today):
    opened = []
    clock = SystemClock()
    server = page_on(today.path, clock, budgets=planned(today, clock))

    def start(query="", **options):
        # A daemon that is running: its status and its readings are new.
        now_ns = clock.time_ns()
        today.append([device_row(device, 1, now_ns) for device in DEVICES])
        write_status(today, now_ns)
        opened.append(Tab(browser, f"{server.address.url.rstrip('/')}/{query}", **options))
        return opened[-1]

    yield start
    for tab in opened:
        tab.close()
        assert tab.console == []
        assert all(url.startswith(server.address.url) for url in tab.requested), tab.requested
