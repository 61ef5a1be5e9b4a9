"""The kinds of notifier, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from costprobe.adapters.notifiers.alertmanager import Alertmanager, AlertmanagerConfig
from costprobe.adapters.notifiers.apprise import Apprise, AppriseConfig
from costprobe.adapters.notifiers.notifier import Notifier
from costprobe.adapters.notifiers.webhook import Webhook, WebhookConfig
from costprobe.domain.alerting.notifier_settings import NotifierConfig


class NotifierKind(NamedTuple):
    """A kind of notifier.

    Attributes:
        config: Its configuration section, whose `kind` is the name in the table.
        build: Constructs the notifier from that section and the folder of systemd's credentials.
    """

    config: type[NotifierConfig]
    build: Callable[[Any, Path | None], Notifier]


NOTIFIERS: Mapping[str, NotifierKind] = {
    "alertmanager": NotifierKind(AlertmanagerConfig, Alertmanager),
    "webhook": NotifierKind(WebhookConfig, Webhook),
    "apprise": NotifierKind(AppriseConfig, Apprise),
}


def build_notifier(config: NotifierConfig, credentials: Path | None) -> Notifier:
    """Construct the notifier of a section, without reading or connecting to anything.

    Args:
        config: The section.
        credentials: Where systemd stored this process's credentials ($CREDENTIALS_DIRECTORY); None
            without any.
    """
    return NOTIFIERS[config.kind].build(config, credentials)


def check_notifier(config: NotifierConfig, credentials: Path | None = None) -> list[str]:
    """Check a notifier's secrets, certificates and URL without sending.

    Args:
        config: Its section.
        credentials: As for `build_notifier`; without them credentials are not checked, because
            only the service has them.

    Returns:
        A sentence for each problem, without secrets.
    """
    notifier = build_notifier(config, credentials)
    try:
        return notifier.problems()
    finally:
        notifier.close()
