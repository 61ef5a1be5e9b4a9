"""The configuration of who is told: Alertmanager, webhooks, and what Apprise reaches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from agent.config_fields import (
    IS_URL,
    Duration,
    Level,
    Match,
    Name,
    Section,
    key,
    kind_of,
    matching,
)


class _NotifierConfig(Section):
    """What every notifier has.

    Attributes:
        name: Rules name it.
        match: Incidents it is told of, by label; a pattern each.
        min_severity: Incidents below it are not told.
        send_resolved: Whether it is told of an incident's end.
        repeat_s: How often a firing incident is told again; never by default.
        timeout_s: Of one attempt.
        rate_per_minute: The most messages in a minute, on average; as many may go at once.
        keep_s: How long a message is tried before it is given up and counted.
    """

    name: Name
    match: Match = Field(default_factory=dict)
    min_severity: Level = "info"
    send_resolved: bool = True
    repeat_s: Duration | None = key("repeat", None)
    timeout_s: Duration = key("timeout", 10.0)
    rate_per_minute: int = Field(30, ge=1, le=6000)
    keep_s: Duration = key("keep", 86400.0)


class AlertmanagerConfig(_NotifierConfig):
    """A Prometheus Alertmanager; told again so that a firing alert does not expire there.

    Attributes:
        url: Address of the Alertmanager, without /api.
        user: User, where it asks for one.
        password_file: File with the user's password.
        password_credential: Name of the systemd credential with that password.
        token_file: File with a bearer token.
        token_credential: Name of the systemd credential with that token.
        ca_file: Certificates of an authority of your own, for https.
        resend_every_s: How often a firing alert is told again; after four times that it ends there.
        generator_url: Link that Alertmanager shows with each alert.
    """

    kind: Literal["alertmanager"]
    url: Annotated[str, IS_URL]
    user: str | None = None
    password_file: Path | None = None
    password_credential: Name | None = None
    token_file: Path | None = None
    token_credential: Name | None = None
    ca_file: Path | None = None
    resend_every_s: Duration = key("resend_every", 60.0)
    generator_url: Annotated[str, matching(r"^https?://\S+$")] | None = None

    @model_validator(mode="after")
    def _one_identity(self) -> AlertmanagerConfig:
        has_password = self.password_file is not None or self.password_credential is not None
        if has_password != (self.user is not None):
            raise ValueError("user goes with password_file or password_credential")
        if has_password and (self.token_file is not None or self.token_credential is not None):
            raise ValueError("give a password or a token, one of them")
        return self


class WebhookConfig(_NotifierConfig):
    """Any HTTP address that takes JSON; signed with HMAC-SHA256 where a key is given.

    Attributes:
        url: Address, where it is no secret.
        url_file: File with the address.
        url_credential: Name of the systemd credential with the address.
        key_file: File with the key that messages are signed with.
        key_credential: Name of the systemd credential with that key.
        token_file: File with a bearer token.
        token_credential: Name of the systemd credential with that token.
        ca_file: Certificates of an authority of your own, for https.
    """

    kind: Literal["webhook"]
    url: Annotated[str, IS_URL] | None = None
    url_file: Path | None = None
    url_credential: Name | None = None
    key_file: Path | None = None
    key_credential: Name | None = None
    token_file: Path | None = None
    token_credential: Name | None = None
    ca_file: Path | None = None

    @model_validator(mode="after")
    def _one_address(self) -> WebhookConfig:
        if sum(x is not None for x in (self.url, self.url_file, self.url_credential)) != 1:
            raise ValueError("give url, or url_file or url_credential where the address is secret")
        return self


class AppriseConfig(_NotifierConfig):
    """Mail, Slack, Teams, PagerDuty, Telegram and a hundred more, by an Apprise URL in a file.

    Attributes:
        url_file: File with the Apprise URL.
        url_credential: Name of the systemd credential with that URL.
        timeout_s: Of one message.
    """

    kind: Literal["apprise"]
    url_file: Path | None = None
    url_credential: Name | None = None
    timeout_s: Duration = key("timeout", 30.0)

    @model_validator(mode="after")
    def _one_address(self) -> AppriseConfig:
        if (self.url_file is None) == (self.url_credential is None):
            raise ValueError("give url_file or url_credential: an Apprise URL holds secrets")
        return self


NotifierConfig = Annotated[
    Annotated[AlertmanagerConfig, Tag("alertmanager")]
    | Annotated[WebhookConfig, Tag("webhook")]
    | Annotated[AppriseConfig, Tag("apprise")],
    Discriminator(kind_of),
]
