"""The sinks there are, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from agent.sinks.answers import words_of
from agent.sinks.errors import Misconfigured, Rejected, RetryLater
from agent.sinks.settings import SinkSettings


class Sink(Protocol):
    """Something that takes lines.

    It is made once, posts from as many threads as it says, and is closed at the end. It connects at
    the first post, and again after a failure; it keeps nothing: what it raises for is posted again.

    Attributes:
        at_once: Requests that it may be given at once, of a backlog: 1 or 2.
    """

    at_once: int

    def pack(self, lines: bytes) -> bytes:
        """What `post` sends for lines, which line ends separate; any thread may ask."""
        ...

    def post(self, body: bytes) -> None:
        """Hands over what `pack` made; returns when it is acknowledged.

        Raises:
            RetryLater: The same bytes may pass later.
            Rejected: Something in them is refused.
            Misconfigured: Only an operator can mend it.
        """
        ...

    def check(self) -> str:
        """Says what was reached, or raises as `post` does; writes nothing."""
        ...

    def close(self) -> None:
        """Ends the connection."""
        ...


class CheckResult(NamedTuple):
    """Whether a sink can be written to, what was found, and how to mend it."""

    ok: bool
    detail: str
    fix: str


def _influx_v1(settings: SinkSettings) -> Sink:
    from agent.sinks.influx_v1 import InfluxV1  # noqa: PLC0415 - only who uses it pays for it

    return InfluxV1(settings)


def _influx_v2(settings: SinkSettings) -> Sink:
    from agent.sinks.influx_v2 import InfluxV2  # noqa: PLC0415 - only who uses it pays for it

    return InfluxV2(settings)


_SINKS: Mapping[str, Callable[[SinkSettings], Sink]] = {"v1": _influx_v1, "v2": _influx_v2}


def build_sink(settings: SinkSettings) -> Sink:
    """The sink that settings ask for; nothing is connected yet."""
    return _SINKS[settings.api](settings)


def check_sink(settings: SinkSettings) -> CheckResult:
    """Tries a sink without leaving a point behind."""
    sink = build_sink(settings)
    try:
        return CheckResult(True, sink.check() + _said(settings), "")
    except Misconfigured as error:
        return CheckResult(
            False, error.reason + _said(settings), "see the sink's section in the configuration"
        )
    except RetryLater as error:
        return CheckResult(False, error.reason, f"is the database at {settings.url} up?")
    except Rejected as error:
        return CheckResult(False, error.reason, "is url, http or https, that of a database?")
    except Exception as error:  # noqa: BLE001 - whatever it is, the operator has to hear of it
        return CheckResult(False, words_of(error), "see the sink's section in the configuration")
    finally:
        sink.close()


def _said(settings: SinkSettings) -> str:
    """What a v2 server says that it is: InfluxDB 1.6 answers there too, and takes no such write."""
    if settings.api != "v2":
        return ""
    from agent.sinks.server_version import server_version  # noqa: PLC0415 - only who asks pays for it

    version = server_version(settings)
    return f" (the server says it is InfluxDB {version})" if version else ""
