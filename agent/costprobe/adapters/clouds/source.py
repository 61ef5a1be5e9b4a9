"""Reading a source of values over time, with limits on time and size."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Final
from urllib.parse import urlsplit

from costprobe.adapters.clouds.price_lists import PriceListConfig, api_price
from costprobe.adapters.host.processes import kill_marked, new_mark
from costprobe.adapters.host.redaction import outside_text
from costprobe.adapters.http.access import Destination, ExchangeLimits, environment_proxy
from costprobe.adapters.http.client import HttpClient
from costprobe.adapters.http.errors import DeliveryError, raise_for_status
from costprobe.core.config.fields import SourceConfig
from costprobe.core.outside import UnusableInputError, decoded_text, read_regular

MAX_BYTES: Final = 1 << 20
TIMEOUT_S: Final = 20.0
STDERR_BYTES_MAX: Final = 4096
STDERR_CHARS_MAX: Final = 200


class SourceError(Exception):
    """A source could not be read; the text names it and the cause, without secrets."""


def read_source(source: SourceConfig, timeout_s: float = TIMEOUT_S) -> str:
    """Return the current output of a source.

    Args:
        source: A file, a command or an HTTP endpoint.
        timeout_s: Longest time for a command or an endpoint in s.

    Raises:
        SourceError: It cannot be read, takes too long, or is too large.
    """
    if source.file is not None:
        try:
            return _text(read_regular(source.file, MAX_BYTES + 1), source_name(source))
        except OSError as error:
            raise SourceError(f"{source.file}: cannot be read ({error.strerror})") from error
    if source.command is not None:
        return _run(source.command, source_name(source), timeout_s)
    return _get(str(source.url), {}, timeout_s)


def source_name(source: SourceConfig) -> str:
    """Return the name of a source in messages: its file, command or host."""
    if source.command is not None:
        return source.command[0]
    # No path and no query, which may contain a key.
    return str(source.file or urlsplit(source.url or "").netloc)


def read_price_list(query: PriceListConfig, timeout_s: float = TIMEOUT_S) -> str:
    """Return the current price of an instance in a cloud's price list, as text.

    Args:
        query: The price that is wanted.
        timeout_s: Longest time for all requests in s; of the many pages of Google's list a multiple.

    Raises:
        SourceError: The list cannot be read, or has no such price or several.
    """
    try:
        return f"{api_price(query, _get, timeout_s, time.time_ns()):f}"
    except (ValueError, DeliveryError) as error:
        raise SourceError(f"price list {query.api}: {outside_text(str(error))}") from None


def _get(url: str, headers: Mapping[str, str], timeout_s: float) -> str:
    """Return the body of an HTTP endpoint, fetched through the environment's proxy if it has one."""
    from urllib.request import getproxies  # noqa: PLC0415 - loads http.client

    # Messages show no path and no query, which may contain a key.
    host = urlsplit(url).netloc
    limits = ExchangeLimits(timeout_s, timeout_s, max_body_bytes=MAX_BYTES + 1)
    client = HttpClient(limits, proxy=environment_proxy(url, getproxies()))
    try:
        destination = Destination.parse(url, host)
        accepted = {"Accept": "application/json, text/*", **headers}
        response = client.request("GET", destination, accepted)
        raise_for_status(
            response,
            now_s=time.time(),
            is_tls=destination.is_tls,
            name=host,
        )
    except DeliveryError as error:
        raise SourceError(error.reason) from None
    finally:
        client.close()
    return _text(response.body, host)


def _run(command: Sequence[str], name: str, timeout_s: float) -> str:
    """Return the standard output of a command.

    It inherits the whole environment, because tools of cloud providers read credentials there. It
    writes to files, because nothing reads a pipe while it runs.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        mark = new_mark()
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own command, no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **mark},
                start_new_session=True,
            )
        except OSError as error:
            raise SourceError(f"{name}: cannot be started ({error.strerror})") from error
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise SourceError(f"{name}: took longer than {timeout_s:g} s") from None
        finally:
            # Kill the processes that it started, too, inside and outside its process group.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            kill_marked(mark)
            process.wait()
        if code != 0:
            raise SourceError(f"{name}: failed with code {code} ({_stderr(err)})")
        out.seek(0)
        return _text(out.read(MAX_BYTES + 1), name)


def _text(content: bytes, name: str) -> str:
    try:
        # Figures read the same in every encoding of Western office programs.
        return decoded_text(content, MAX_BYTES, "cp1252")
    except UnusableInputError as error:
        raise SourceError(f"{name}: {error}") from None


def _stderr(file: IO[bytes]) -> str:
    file.seek(0)
    text = file.read(STDERR_BYTES_MAX).decode(errors="replace")
    return outside_text(text, STDERR_CHARS_MAX) or "no message on standard error"
