"""The kinds of sink and the kinds of notifier, in one table each.

`costprobe doctor` tests a sink by the check here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final, NamedTuple

from costprobe.adapters.http.errors import Misconfigured, Rejected, RetryLater
from costprobe.core.clock import Clock
from costprobe.delivery.alertmanager import Alertmanager, AlertmanagerConfig
from costprobe.delivery.apprise import Apprise, AppriseConfig
from costprobe.delivery.contract import Notifier, NotifierConfig, Sink, SinkConfig
from costprobe.delivery.influx import InfluxV1, InfluxV1Config, InfluxV2, InfluxV2Config
from costprobe.delivery.otlp import Otlp, OtlpConfig
from costprobe.delivery.webhook import Webhook, WebhookConfig


class NotifierKind(NamedTuple):
    """A kind of notifier.

    Attributes:
        config: Its configuration section, whose `kind` is the name in the table.
        build: Constructs the notifier from that section.
    """

    config: type[NotifierConfig]
    build: Callable[[Any], Notifier]


NOTIFIERS: Mapping[str, NotifierKind] = {
    "alertmanager": NotifierKind(AlertmanagerConfig, Alertmanager),
    "webhook": NotifierKind(WebhookConfig, Webhook),
    "apprise": NotifierKind(AppriseConfig, Apprise),
}


def build_notifier(config: NotifierConfig) -> Notifier:
    """Construct the notifier of a section, without reading or connecting to anything."""
    return NOTIFIERS[config.kind].build(config)


def check_notifier(config: NotifierConfig) -> list[str]:
    """Check a notifier's secrets, certificates and URL without sending.

    Systemd's credentials are checked in the service alone, which has them.

    Returns:
        A sentence for each problem, without secrets.
    """
    with closing(build_notifier(config)) as notifier:
        return notifier.problems()


class SinkKind(NamedTuple):
    """A kind of sink.

    Attributes:
        config: Its section of the configuration, with `api: Literal["..."]`.
        sink: Its constructor, which takes that section and the host's clocks.
    """

    config: type[SinkConfig]
    sink: Callable[[Any, Clock], Sink]


# By `api`. What is large is imported when a sink is constructed.
SINKS: Final = {
    "v1": SinkKind(InfluxV1Config, InfluxV1),
    "v2": SinkKind(InfluxV2Config, InfluxV2),
    "otlp": SinkKind(OtlpConfig, Otlp),
}


def build_sink(config: SinkConfig, clock: Clock) -> Sink:
    """Return the sink of a section; nothing is connected yet."""
    return SINKS[config.api].sink(config, clock)


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
    with closing(build_sink(config, clock)) as sink:
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
