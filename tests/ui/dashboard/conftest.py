"""A dashboard server with a store of one day, and tabs of Chromium."""

import pytest
from browser_tab import Tab, blank_page
from costprobe.core.clock import SystemClock
from dashboard_samples import DEVICES, device_row, filled, planned, write_status
from fakes.clock import FakeClock
from page_servers import host_server

SIZE = {"width": 1280, "height": 720}


@pytest.fixture
def store(tmp_path, clock):
    store = filled(tmp_path / "costprobe.db", clock)
    yield store
    store.close()


@pytest.fixture
def stopped():
    """Takes servers; stops them at the end."""
    made = []
    yield lambda server: made.append(server) or server
    for server in made:
        server.stop()


@pytest.fixture
def page_on(stopped):
    """Starts servers of a host's page."""
    return lambda *args, **options: stopped(host_server(*args, **options))


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
    page = host_server(kept_store.path, clock, budgets=planned(kept_store, clock))
    yield page
    page.stop()


@pytest.fixture
def today(tmp_path):
    """A store whose day ends at the real time, which the browser's clock shows."""
    store = filled(tmp_path / "today.db", SystemClock())
    yield store
    store.close()


@pytest.fixture(scope="module")
def kept_tab(browser):
    """One tab for many tests: opening another one takes two seconds of computing."""
    return blank_page(browser)


@pytest.fixture
def tab_of(browser, kept_tab):
    """Opens a URL in the kept tab, or in a new one with options of the browser."""
    opened = []

    def start(url, *, is_live=True, **options):
        page = blank_page(browser, **options) if options else kept_tab
        page.set_viewport_size(SIZE)
        page.emulate_media(color_scheme="light")
        opened.append(Tab(page, url, is_live=is_live))
        return opened[-1]

    yield start
    for tab in opened:
        tab.leave()
        if tab.page is not kept_tab:
            tab.page.context.close()


@pytest.fixture
def open_tab(page_on, today, tab_of):
    """Opens the page of a daemon that is running: its status and its readings are new."""
    opened = []
    clock = SystemClock()
    url = page_on(today.path, clock, budgets=planned(today, clock)).address.url

    def start(**options):
        now_ns = clock.time_ns()
        today.append([device_row(device, 1, now_ns) for device in DEVICES])
        write_status(today, now_ns)
        opened.append(tab_of(url, **options))
        return opened[-1]

    yield start
    for tab in opened:
        assert tab.console == []
        assert all(one.startswith(url) for one in tab.requested), tab.requested
