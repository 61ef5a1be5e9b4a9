"""A child process that sends one message through Apprise and ends, which frees its memory.

It reads one JSON document from standard input, {"url", "title", "body", "type", "timeout_s"}, of which
"url" and "timeout_s" alone check the URL, and writes one line: {"ok": true}, or {"ok": false, "kind": "retry" or "misconfigured", "reason": ...}.
The URL contains secrets and Apprise writes it into logs and exceptions, so none of Apprise's own
messages leaves this process.
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

from costprobe.core.outside import bounded_object

# Many times the memory that the process needs.
MAX_MEMORY_BYTES = 256 << 20
_STATUS = re.compile(r"\berror=([1-5]\d\d)\b")
_NOT_INSTALLED = (
    "the apprise package is not installed where costprobe runs; fix it with:"
    f" {sys.executable} -m pip install apprise"
)


class _StatusOfLog(logging.Handler):
    """Records the last HTTP status that Apprise logs."""

    def __init__(self) -> None:
        super().__init__()
        self.status: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Record the status of a message, if it has one."""
        match = _STATUS.search(record.getMessage())
        if match is not None:
            self.status = match[1]


def send(message: dict[str, Any]) -> dict[str, Any]:
    """Send one message; return the result as defined in the module's docstring."""
    try:
        import apprise  # noqa: PLC0415 - what this process is for
    except ImportError:
        return _failed("misconfigured", _NOT_INSTALLED)
    logger, log = logging.getLogger("apprise"), _StatusOfLog()
    logger.handlers, logger.propagate = [log], False
    url = message["url"]
    # A redirect would send the URL's headers and the message to another server.
    asset = apprise.AppriseAsset(storage_mode="memory", http_redirects=False)
    service = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if service is None:
        return _failed(
            "misconfigured", "Apprise has no service for this URL, or the URL is incomplete"
        )
    weakened = [
        option
        for option, is_set in (
            ("verify=no", not service.verify_certificate),
            ("redirect=yes", service.redirects),
        )
        if is_set
    ]
    if weakened:
        return _failed("misconfigured", f"the URL has {' and '.join(weakened)}: remove it")
    if "overflow=" not in url.lower():
        # A service rejects a message that exceeds its limit, at each attempt.
        service.overflow_mode = apprise.OverflowMode.TRUNCATE
    services = apprise.Apprise(asset=asset)
    services.add(service)
    if "body" not in message or services.notify(
        body=message["body"],
        title=message["title"],
        notify_type=message["type"],
        body_format=apprise.NotifyFormat.TEXT,
    ):
        return {"ok": True}
    status = f" (HTTP {log.status})" if log.status else ""
    if (log.status or "").startswith("3"):
        return _failed("misconfigured", f"the service redirects{status}, which is not followed")
    return _failed("retry", f"the service did not accept the message{status}")


def _failed(kind: str, reason: str) -> dict[str, Any]:
    return {"ok": False, "kind": kind, "reason": reason}


def main() -> None:
    """Send the message on standard input; libraries have no standard output or error."""
    # A core dump would contain the URL.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Apprise reads a response of any size.
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    result_fd, null_fd = os.dup(1), os.open(os.devnull, os.O_RDWR)
    os.dup2(null_fd, 1)
    os.dup2(null_fd, 2)
    message = bounded_object(sys.stdin.read())
    # If the daemon dies, the kernel kills its child.
    signal.alarm(math.ceil(message["timeout_s"]) + 1)
    try:
        result = send(message)
    except Exception as error:  # noqa: BLE001 - a library's errors may contain the URL
        result = _failed("retry", f"Apprise failed with {type(error).__name__}")
    os.write(result_fd, json.dumps(result).encode() + b"\n")


if __name__ == "__main__":
    main()
