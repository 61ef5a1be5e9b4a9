"""The notifiers there are, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from agent.config_notifier import AlertmanagerConfig, AppriseConfig, NotifierConfig, WebhookConfig
from agent.notifying.sender import Sender


class CheckedSender(Sender, Protocol):
    """A sender that can be looked at before it is used."""

    def problems(self) -> list[str]:
        """What hinders sending, as far as can be told without sending; without secrets."""
        ...


def _alertmanager(config: AlertmanagerConfig, credentials: Path | None) -> CheckedSender:
    from agent.notifying.alertmanager import Alertmanager  # noqa: PLC0415 - only who uses it pays

    return Alertmanager(config, credentials)


def _webhook(config: WebhookConfig, credentials: Path | None) -> CheckedSender:
    from agent.notifying.webhook import Webhook  # noqa: PLC0415 - only who uses it pays

    return Webhook(config, credentials)


def _apprise(config: AppriseConfig, credentials: Path | None) -> CheckedSender:
    from agent.notifying.apprise import Apprise  # noqa: PLC0415 - only who uses it pays

    return Apprise(config, credentials)


_NOTIFIERS: Mapping[str, Callable[[Any, Path | None], CheckedSender]] = {
    "alertmanager": _alertmanager,
    "webhook": _webhook,
    "apprise": _apprise,
}


def build_sender(config: NotifierConfig, credentials: Path | None) -> Sender:
    """The sender of a notifier; nothing is read or connected yet.

    Args:
        config: Its settings.
        credentials: Where systemd put this process's credentials ($CREDENTIALS_DIRECTORY); None
            where it gave none.
    """
    return _NOTIFIERS[config.kind](config, credentials)


def check_notifier(config: NotifierConfig, credentials: Path | None = None) -> list[str]:
    """What is wrong with a notifier's secrets, certificates and address; sends nothing.

    Args:
        config: Its settings.
        credentials: As for `build_sender`; without them, credentials are not looked at, because
            only the service gets them.

    Returns:
        A sentence for each problem, none of which holds a secret; empty if there is none.
    """
    sender = _NOTIFIERS[config.kind](config, credentials)
    try:
        return sender.problems()
    finally:
        sender.close()
