"""Servers with an endless part in their response."""

import time

PIECE = 64 * 1024


class Flood:
    """Send one part of a response endlessly; for `Talking`.

    Args:
        head: The bytes before the endless part.
        piece: The repeated bytes.
        pause_s: Pause between two pieces.
        is_kept: False for data that readers discard, whose size is limited only by time.

    Attributes:
        received: Requests that arrived.
        sent: Bytes that were sent to each ended connection.
    """

    def __init__(self, head, piece, pause_s=0.0, *, is_kept=True):
        self.received = 0
        self.sent = []
        self.is_kept = is_kept
        self._head, self._piece, self._pause_s = head, piece, pause_s

    def __call__(self, connection):
        connection.settimeout(60)
        connection.recv(PIECE)
        self.received += 1
        sent = 0
        try:
            connection.sendall(self._head)
            while True:
                connection.sendall(self._piece)
                sent += len(self._piece)
                time.sleep(self._pause_s)
        finally:
            # The loop ends only when the client closes the connection.
            self.sent.append(sent)


OK = b"HTTP/1.1 200 OK\r\n"
BAD = b"HTTP/1.1 500 Broken\r\n"
CHUNK = b"%x\r\n%b\r\n" % (PIECE, b"x" * PIECE)
FLOODS = {
    "a body without an end": lambda: Flood(OK + b"\r\n", b"x" * PIECE),
    "a body with an excessive length": lambda: Flood(
        OK + b"Content-Length: 99999999999999\r\n\r\n", b"x" * PIECE
    ),
    "chunks without an end": lambda: Flood(OK + b"Transfer-Encoding: chunked\r\n\r\n", CHUNK),
    "an error's body without an end": lambda: Flood(BAD + b"\r\n", b"x" * PIECE),
    "headers without an end": lambda: Flood(OK, b"X-More: " + b"x" * 1000 + b"\r\n"),
    "a header without an end": lambda: Flood(OK + b"X-More: ", b"x" * PIECE),
    "a status line without an end": lambda: Flood(b"HTTP/1.1 200 ", b"x" * PIECE),
    "trailers without an end": lambda: Flood(
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-More: 1\r\n" * 100, is_kept=False
    ),
    # Ends by timeout; the pause leaves the processor to other tests.
    "100 Continue without an end": lambda: Flood(
        b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 0.05, is_kept=False
    ),
    "a slow body": lambda: Flood(OK + b"Content-Length: 50000\r\n\r\n", b"x", 0.02),
    "a slow body of an error": lambda: Flood(BAD + b"Content-Length: 50000\r\n\r\n", b"x", 0.02),
    "slow chunks": lambda: Flood(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 0.02),
    "slow headers": lambda: Flood(OK + b"X-More: ", b"x", 0.02),
    "a slow status line": lambda: Flood(b"", b"H", 0.02),
}
