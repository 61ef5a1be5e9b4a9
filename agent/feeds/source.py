"""Reads the source of a figure that moves: what it gives, within a time and a size."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Final
from urllib.parse import urlsplit

from agent.child_environment import child_environment
from agent.child_mark import kill_marked, new_mark
from agent.config_source import SourceConfig
from agent.feeds.bounds import MAX_BYTES

TIMEOUT_S: Final = 20.0
WORDS_CHARS_MAX: Final = 200
# -P: the folder that a command is run in is nothing to import from.
FETCH_COMMAND: Final = (sys.executable, "-P", "-m", "agent.feeds.fetch")
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})


class SourceError(Exception):
    """A source gave nothing; the text says why."""


def read_source(source: SourceConfig, timeout_s: float = TIMEOUT_S) -> str:
    """What a source gives now.

    Args:
        source: Says where it is.
        timeout_s: Longest time for a command or an endpoint in seconds.

    Raises:
        SourceError: It cannot be read, takes too long, or gives too much.
    """
    if source.file is not None:
        try:
            with source.file.open("rb") as file:
                return _text(file, str(source.file))
        except OSError as error:
            raise SourceError(f"{source.file}: cannot be read ({error.strerror})") from error
    if source.command is not None:
        # With our whole environment: a cloud's own tool finds its credentials there.
        return _output(source.command, source.command[0], timeout_s, os.environ)
    url = str(source.url)
    # Never a query, which may hold a key.
    host = urlsplit(url).netloc
    proxies = {name: value for name, value in os.environ.items() if name.lower() in _PROXIES}
    environ = {**child_environment(os.environ), **proxies}
    return _output(FETCH_COMMAND, host, timeout_s, environ, url)


def _output(
    command: Sequence[str], name: str, timeout_s: float, environ: Mapping[str, str], told: str = ""
) -> str:
    """What a command writes, from a file that it may fill and nobody has to drain."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(told.encode())
        given.seek(0)
        mark = new_mark()
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own command, no shell
                command,
                stdin=given,
                stdout=out,
                stderr=err,
                env={**environ, **mark},
                start_new_session=True,
            )
        except OSError as error:
            raise SourceError(f"{name}: cannot be started ({error.strerror})") from error
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise SourceError(f"{name}: took longer than {timeout_s:g} s") from None
        finally:
            # Also what it left behind, in its group and out of it.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            kill_marked(mark)
            process.wait()
        if code != 0:
            raise SourceError(f"{name}: failed with code {code} ({_words(err)})")
        out.seek(0)
        return _text(out, name)


def _text(file: IO[bytes], name: str) -> str:
    content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise SourceError(f"{name}: gives more than {MAX_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise SourceError(f"{name}: gives no UTF-8 text") from None


def _words(file: IO[bytes]) -> str:
    file.seek(0)
    said = file.read(WORDS_CHARS_MAX).decode(errors="replace")
    # A terminal obeys what is not printable.
    shown = " ".join("".join(c if c.isprintable() else " " for c in said).split())
    return shown or "it said nothing"
