"""The kinds of sink, in one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from costprobe.adapters.sinks.influx_v1 import InfluxV1, InfluxV1Config
from costprobe.adapters.sinks.influx_v2 import InfluxV2, InfluxV2Config
from costprobe.adapters.sinks.otlp import Otlp, OtlpConfig
from costprobe.adapters.sinks.settings import SinkConfig
from costprobe.adapters.sinks.sink import Sink
from costprobe.core.clock import Clock


class SinkKind(NamedTuple):
    """A kind of sink.

    Attributes:
        config: Its section of the configuration, with `api: Literal["..."]`.
        sink: Its constructor, which takes that section and the host's clocks.
    """

    config: type[SinkConfig]
    sink: Callable[[Any, Clock], Sink]


# By `api`. A module here imports what is large when its sink is constructed.
SINKS: Final = {
    "v1": SinkKind(InfluxV1Config, InfluxV1),
    "v2": SinkKind(InfluxV2Config, InfluxV2),
    "otlp": SinkKind(OtlpConfig, Otlp),
}


def build_sink(config: SinkConfig, clock: Clock) -> Sink:
    """Return the sink of a section; nothing is connected yet."""
    return SINKS[config.api].sink(config, clock)
