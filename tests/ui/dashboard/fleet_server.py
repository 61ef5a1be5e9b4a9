"""A server of the fleet's page over the rows of a made-up fleet."""

import http.client
import json
import threading

from costprobe.ui.dashboard.fleet.page import FleetSetup, PlannedMonth, fleet_page
from costprobe.ui.dashboard.serving import ListenAddress, bound, serve
from fakes import paged_fleet
from fakes.clock import FakeClock
from fakes.fleet_answers import RowsReader

TIMEOUT_S = 60.0
HOST_URL = "http://{host}:9470/"
PLANS = (PlannedMonth(7e5, "USD"), PlannedMonth(1e5, "EUR", "Europe/Berlin", {"rack": "r0"}))


class FleetServer:
    """A running server, its database and its clock, which ends a minute after the last row."""

    def __init__(self, recipe):
        self.clock = FakeClock((paged_fleet.NOW_S + 60) * 10**9)
        self.reader = RowsReader(paged_fleet.rows(recipe))
        self.figures = None
        plan = FleetSetup(300.0, (PlannedMonth(5e5), *PLANS, PlannedMonth(9e5)), HOST_URL)
        made = fleet_page(lambda: self.reader, self.clock, plan)
        self.figures = made.live
        listening, self.address = bound(ListenAddress("127.0.0.1", 0))
        self._servers = []
        started = threading.Event()

        def take(server):
            self._servers.append(server)
            started.set()

        self.thread = threading.Thread(target=serve, args=(made.app, listening, take))
        self.thread.start()
        assert started.wait(TIMEOUT_S)

    def request(self, path):
        """Status, headers and body of the response."""
        connection = http.client.HTTPConnection(*self.address, timeout=TIMEOUT_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def json(self, path):
        status, _, body = self.request(path)
        assert status == 200, (status, body)
        return json.loads(body)

    def stop(self):
        self._servers[0].should_exit = True
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()
        self.figures.close()
