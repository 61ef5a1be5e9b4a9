"""A TCP proxy in front of a database that cuts, delays and garbles what passes it.

    with HostileProxy(port, random.Random(1)) as proxy:
        ... f"http://127.0.0.1:{proxy.port}"

What it forwards to the database is unchanged, as TCP's checksums ensure; a request may end early.
"""

import selectors
import socket
import threading
import time
from collections import Counter

CHUNK_BYTES = 16_384
# The chance of each fault, for every chunk that passes.
CHANCES = {"cut": 0.04, "half": 0.04, "reset": 0.02, "delay": 0.05, "garbage": 0.04}
DELAY_S = (0.05, 2.0)
LINGER_RESET = b"\1\0\0\0\0\0\0\0"


class HostileProxy:
    """The proxy.

    Args:
        target_port: Port of the database on this host.
        rng: Chooses the faults.

    Attributes:
        port: Its own port.
        faults: How often each fault was injected.
        is_hostile: False: pass everything on.
    """

    def __init__(self, target_port, rng):
        self.faults = Counter()
        self.is_hostile = True
        self._target_port = target_port
        self._rng = rng
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client:
            try:
                with socket.create_connection(("127.0.0.1", self._target_port)) as server:
                    self._pump(client, server)
            except OSError:
                return

    def _pump(self, client, server):
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in selector.select():
                    data = key.fileobj.recv(CHUNK_BYTES)
                    if not data:
                        return
                    to_client = key.data is client
                    if not self._passes(data, key.data, to_client=to_client):
                        return

    def _passes(self, data, receiver, *, to_client):
        """Pass a chunk on, with a fault or without; False to close the connection."""
        match self._fault():
            case "cut":
                return False
            case "half":
                receiver.sendall(data[: len(data) // 2])
                return False
            case "reset":
                receiver.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
                return False
            case "garbage" if to_client:
                receiver.sendall(self._garbage(len(data)))
                return False
            case "delay":
                time.sleep(self._uniform(*DELAY_S))
        receiver.sendall(data)
        return True

    def _fault(self):
        if not self.is_hostile:
            return ""
        with self._lock:
            (fault,) = self._rng.choices(
                ["", *CHANCES], [1 - sum(CHANCES.values()), *CHANCES.values()]
            )
            if fault:
                self.faults[fault] += 1
            return fault

    def _garbage(self, length):
        with self._lock:
            return self._rng.randbytes(length)

    def _uniform(self, least, most):
        with self._lock:
            return self._rng.uniform(least, most)
