"""The page's real server, in a thread of the test's own."""

import http.client
import json
import threading

from agent.dashboard.app import dashboard
from agent.dashboard.serving import Address, bound, serve

TIMEOUT_S = 30.0


class Page:
    """A running server, and what one may ask of it."""

    def __init__(self, store_path, clock, **options):
        self.made = dashboard(store_path, clock, **options)
        listening, self.address = bound(Address("127.0.0.1", 0))
        self._server = None
        started = threading.Event()

        def take(server):
            self._server = server
            started.set()

        self.thread = threading.Thread(target=serve, args=(self.made, listening, take))
        self.thread.start()
        assert started.wait(TIMEOUT_S)

    def ask(self, path, method="GET", headers=None, body=None):
        """Status, headers and body of one answer."""
        connection = http.client.HTTPConnection(*self.address, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def json(self, path):
        status, _, body = self.ask(path)
        assert status == 200, (status, body)
        return json.loads(body)

    def error(self, path):
        """The words of a refusal."""
        status, _, body = self.ask(path)
        assert status == 400, (status, body)
        return json.loads(body)["error"]

    def stop(self):
        self._server.should_exit = True
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()
