"""Servers of the pages of a host and of a fleet in threads, and requests to them."""

import http.client
import json
import threading

from costprobe.ui.dashboard.app import dashboard
from costprobe.ui.dashboard.fleet.page import FleetSetup, PlannedMonth, fleet_page
from costprobe.ui.dashboard.serving import LIMITS, ListenAddress, bound, serve
from fakes import paged_fleet
from fakes.clock import FakeClock
from fakes.fleet_answers import RowsReader

TIMEOUT_S = 60.0
HOST_URL = "http://{host}:9470/"
# Of several for the same hosts and currency the first counts.
PLANS = (
    PlannedMonth(5e5),
    PlannedMonth(7e5, "USD"),
    PlannedMonth(1e5, "EUR", "Europe/Berlin", {"rack": "r0"}),
    PlannedMonth(9e5),
)


class PageServer:
    """A running server on a free port of the loopback interface."""

    def __init__(self, app, limits=LIMITS):
        listening, self.address = bound(ListenAddress("127.0.0.1", 0))
        self._servers = []
        started = threading.Event()

        def take(server):
            self._servers.append(server)
            started.set()

        self.thread = threading.Thread(target=serve, args=(app, listening, take, limits))
        self.thread.start()
        assert started.wait(TIMEOUT_S)

    def request(self, path, method="GET", headers=None):
        """Send one request; return status, headers and body of the response."""
        connection = http.client.HTTPConnection(*self.address, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def json(self, path, status=200):
        answered, _, body = self.request(path)
        assert answered == status, (answered, body)
        return json.loads(body)

    def error(self, path):
        """The error text of a rejected request."""
        return self.json(path, 400)["error"]

    def stop(self):
        self._servers[0].should_exit = True
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()


def host_server(store_path, clock, limits=LIMITS, **options):
    """The page of a host, from its store."""
    return PageServer(dashboard(store_path, clock, **options), limits)


class FleetServer(PageServer):
    """The page of a made-up fleet, its database and its clock, which ends a minute after the last row."""

    def __init__(self, recipe):
        self.clock = FakeClock((paged_fleet.NOW_S + 60) * 10**9)
        self.reader = RowsReader(paged_fleet.rows(recipe))
        made = fleet_page(lambda: self.reader, self.clock, FleetSetup(300.0, PLANS, HOST_URL))
        self.figures = made.live
        super().__init__(made.app)

    def stop(self):
        super().stop()
        self.figures.close()
