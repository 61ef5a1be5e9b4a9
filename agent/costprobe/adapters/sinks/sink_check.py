"""Test of a sink for `costprobe doctor`."""

from __future__ import annotations

from typing import NamedTuple

from costprobe.adapters.net.errors import Misconfigured, Rejected, RetryLater
from costprobe.adapters.sinks.registry import build_sink
from costprobe.adapters.sinks.settings import SinkConfig
from costprobe.core.clock import Clock


class SinkCheck(NamedTuple):
    """Whether a sink accepts points.

    Attributes:
        ok: Whether it does.
        detail: Result of the test.
        fix: What an operator should do; empty if nothing.
    """

    ok: bool
    detail: str
    fix: str


def check_sink(config: SinkConfig, clock: Clock) -> SinkCheck:
    """Test a sink without storing a point."""
    section = "see the sink's section in the configuration"
    sink = build_sink(config, clock)
    try:
        return SinkCheck(True, sink.check(), "")
    except Misconfigured as error:
        return SinkCheck(False, error.reason, section)
    except RetryLater as error:
        return SinkCheck(False, error.reason, "check that the database is running, and url")
    except Rejected as error:
        return SinkCheck(False, error.reason, "check url and its scheme, http or https")
    except Exception as error:  # noqa: BLE001 - an operator needs to see any failure
        return SinkCheck(False, f"unexpected {type(error).__name__}", section)
    finally:
        sink.close()
