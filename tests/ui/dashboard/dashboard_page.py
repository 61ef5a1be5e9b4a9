"""A dashboard server in a thread, and requests to it."""

import http.client
import json
import threading

from costprobe.ui.dashboard.app import dashboard
from costprobe.ui.dashboard.serving import LIMITS, ListenAddress, bound, serve

TIMEOUT_S = 30.0


class Page:
    """A running dashboard server on a free port of the loopback interface."""

    def __init__(self, store_path, clock, limits=LIMITS, **options):
        self.made = dashboard(store_path, clock, **options)
        listening, self.address = bound(ListenAddress("127.0.0.1", 0))
        self._server = None
        started = threading.Event()

        def take(server):
            self._server = server
            started.set()

        self.thread = threading.Thread(target=serve, args=(self.made, listening, take, limits))
        self.thread.start()
        assert started.wait(TIMEOUT_S)

    def request(self, path, method="GET", headers=None, body=None):
        """Send one request; return status, headers and body of the response."""
        connection = http.client.HTTPConnection(*self.address, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def json(self, path):
        status, _, body = self.request(path)
        assert status == 200, (status, body)
        return json.loads(body)

    def error(self, path):
        """The error text of a rejected request."""
        status, _, body = self.request(path)
        assert status == 400, (status, body)
        return json.loads(body)["error"]

    def stop(self):
        self._server.should_exit = True
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()
