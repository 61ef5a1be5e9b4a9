"""`python -m agent.feeds.fetch`: one GET of the URL on standard input, its answer on standard output.

A process of its own, so that whoever asks can end it whatever the server does. The URL is no
argument, for it may hold a key, and arguments are seen by all. Redirects are not followed, and
certificates are checked.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Final

from agent.feeds.bounds import MAX_BYTES

TIMEOUT_S: Final = 10.0


class _Stay(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for the error that it is here."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Follows none."""


def _words(error: Exception) -> str:
    """What went wrong, in the system's own words: a library's may hold the URL and its key."""
    cause = getattr(error, "reason", None) or error
    if isinstance(cause, TimeoutError):
        return f"no whole answer within {TIMEOUT_S:g} s"
    words = cause.strerror if isinstance(cause, OSError) else None
    return f"{type(error).__name__}: {words or type(cause).__name__}"


def main() -> int:
    """Fetches; the exit code says whether it could."""
    url = sys.stdin.readline().strip()
    request = urllib.request.Request(url, headers={"Accept": "application/json, text/*"})  # noqa: S310 - the configuration allows http and https alone
    try:
        with urllib.request.build_opener(_Stay).open(request, timeout=TIMEOUT_S) as answer:
            sys.stdout.buffer.write(answer.read(MAX_BYTES + 1))
    except urllib.error.HTTPError as error:
        sys.stderr.write(f"it answered {error.code}\n")
        return 1
    except (OSError, HTTPException, ValueError) as error:
        sys.stderr.write(f"{_words(error)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
