"""A process that tells one message through Apprise and ends, which gives its memory back.

It reads one JSON document from its standard input, {"url", "title", "body", "type",
"timeout_s"}, and answers with one line: {"ok": true}, or {"ok": false, "kind": "retry" or
"misconfigured", "reason": ...}. The address holds secrets, and Apprise writes it into logs and
exceptions: nothing that Apprise says leaves this process.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import resource
import signal
import sys
from typing import Any

# Many times what it needs itself.
MAX_MEMORY_BYTES = 256 << 20
_STATUS = re.compile(r"\berror=([1-5]\d\d)\b")
_NOT_INSTALLED = (
    "the apprise package is not installed where infercost runs; mend it with: pip install apprise"
)


class _StatusOfLog(logging.Handler):
    """Keeps the last HTTP status that Apprise logs, and nothing else of it."""

    def __init__(self) -> None:
        super().__init__()
        self.status: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Looks for a status."""
        found = _STATUS.search(record.getMessage())
        if found is not None:
            self.status = found[1]


def tell(message: dict[str, Any]) -> dict[str, Any]:
    """Tells one message; returns the answer."""
    try:
        import apprise  # noqa: PLC0415 - what this process is for
    except ImportError:
        return _failed("misconfigured", _NOT_INSTALLED)
    logger, heard = logging.getLogger("apprise"), _StatusOfLog()
    logger.handlers, logger.propagate = [heard], False
    url = message["url"]
    asset = apprise.AppriseAsset(storage_mode="memory")
    service = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if service is None:
        return _failed(
            "misconfigured", "Apprise knows no service by this address, or it lacks a part"
        )
    if "overflow=" not in url.lower():
        # A service would refuse for ever what is longer than it takes.
        service.overflow_mode = apprise.OverflowMode.TRUNCATE
    told = apprise.Apprise(asset=asset)
    told.add(service)
    taken = told.notify(
        body=message["body"],
        title=message["title"],
        notify_type=message["type"],
        body_format=apprise.NotifyFormat.TEXT,
    )
    if taken:
        return {"ok": True}
    said = f" (HTTP {heard.status})" if heard.status else ""
    return _failed("retry", f"the service did not take the message{said}")


def _failed(kind: str, reason: str) -> dict[str, Any]:
    return {"ok": False, "kind": kind, "reason": reason}


def main() -> None:
    """Answers on what was the standard output; libraries write into nothing."""
    # A crash must not leave the address on a disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Apprise reads all that a server answers, for as long as it answers.
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    answer_fd, nothing_fd = os.dup(1), os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing_fd, 1)
    os.dup2(nothing_fd, 2)
    message = json.load(sys.stdin)
    # Should the daemon die, its child ends by itself.
    signal.alarm(math.ceil(message["timeout_s"]) + 1)
    try:
        answer = tell(message)
    except Exception as error:  # noqa: BLE001 - a library's errors may hold the address
        answer = _failed("retry", f"Apprise failed with {type(error).__name__}")
    os.write(answer_fd, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
