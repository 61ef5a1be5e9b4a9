"""ntfy: push notifications by an HTTP request with the text as its body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from costprobe.adapters.http.access import Destination, ExchangeLimits, Token, bearer
from costprobe.adapters.http.client import HttpClient
from costprobe.adapters.http.errors import raise_for_status
from costprobe.core.config.fields import IS_URL
from costprobe.core.incident import Alert
from costprobe.core.records import NS_PER_S
from costprobe.delivery.contract import Notifier, NotifierConfig, text_of, title_of
from pydantic import Field


class NtfyConfig(NotifierConfig):
    """A topic of an ntfy server."""

    kind: Literal["ntfy"] = Field(description="Kind of notifier.", examples=["ntfy"])
    url: Annotated[str, IS_URL] = Field(
        description="URL of the topic.", examples=["https://ntfy.example.com/gpu-cost"]
    )
    token: Token | None = Field(
        None,
        description="Location of an access token.",
        examples=["file:/etc/costprobe/ntfy.token"],
    )


class Ntfy(Notifier):
    """One topic.

    Args:
        config: Its section of the configuration.
    """

    def __init__(self, config: NtfyConfig) -> None:
        self._url = config.url
        self._token = config.token
        self._client = HttpClient(ExchangeLimits(config.timeout_s, config.timeout_s))

    def send(self, alerts: Sequence[Alert], time_ns: int) -> None:
        """Publish each alert as a message."""
        for alert in alerts:
            if alert.state != "pending":
                self._publish(f"{title_of(alert)}\n{text_of(alert)}", time_ns)

    def problems(self) -> list[str]:
        """Why the token cannot be read."""
        return [] if self._token is None else self._token.problems()

    def _publish(self, text: str, time_ns: int) -> None:
        to = Destination.parse(self._url)
        body = text.encode(errors="replace")
        response = self._client.request("POST", to, bearer(self._token), body)
        raise_for_status(
            response,
            now_s=time_ns / NS_PER_S,
            is_tls=to.is_tls,
            name=to.name,
        )
