"""Mail, chat and pagers through Apprise, in a child process for each message."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import IO, Any, ClassVar, Final, Literal, cast

from pydantic import Field

from costprobe.adapters.host.processes import child_environment
from costprobe.adapters.http.access import SecretUrl, is_secret_place, one_form
from costprobe.adapters.http.errors import DeliveryError, Misconfigured, RetryLater
from costprobe.core.config.fields import Duration, key
from costprobe.core.incident import Alert
from costprobe.core.outside import bounded_object
from costprobe.delivery.contract import Notifier, NotifierConfig, text_of, title_of

MAX_ANSWER_BYTES = 4096
MAX_BODY_CHARS = 4000
MAX_REASON_CHARS = 300
KILL_TIMEOUT_S = 5.0
_TYPES = {"critical": "failure", "warning": "warning", "info": "info"}
_PROXIES = {"http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy"}


class AppriseConfig(NotifierConfig):
    """Mail, Slack, Teams, PagerDuty, Telegram and about a hundred more, by an Apprise URL in a file.

    The kinds "slack", "teams", "discord", "pagerduty" and "email" are this one.
    """

    removed: ClassVar = one_form("url")

    kind: Literal["apprise"] = Field(description="Kind of notifier.", examples=["apprise"])
    url: SecretUrl = Field(
        description=(
            "Location of the Apprise URL, or of the webhook of Slack, Teams or Discord, which are"
            " secrets."
        ),
        examples=["file:/etc/costprobe/apprise.url"],
    )
    timeout_s: Duration = key("timeout", 30.0, description="Timeout of one message.")


# What url names, by the kinds that are Apprise's; it reads the webhooks of chats as they are.
CHATS: Final = {
    "slack": "the incoming webhook, https://hooks.slack.com/services/...",
    "teams": "the webhook of a workflow, https://....logic.azure.com:443/workflows/...",
    "discord": "the webhook, https://discord.com/api/webhooks/...",
    "pagerduty": "pagerduty://INTEGRATION_KEY@API_KEY",
    "email": "mailtos://USER:PASSWORD@smtp.example.com?from=FROM&to=TO",
}


def as_apprise(table: Any) -> Any:  # noqa: ANN401 - untyped until it is validated
    """Return a [[notifier]] of a kind of CHATS as one of Apprise, others as they are.

    Raises:
        ValueError: It names no file with its URL.
    """
    kind = str(table.get("kind")).lower() if isinstance(table, dict) else ""
    if kind not in CHATS:
        return table
    if not is_secret_place(table.get("url")):
        raise ValueError(
            f'write url = "file:/etc/costprobe/{kind}.url": a file of mode 0600 with {CHATS[kind]}'
        )
    return {**table, "kind": "apprise"}


class Apprise(Notifier):
    """One Apprise URL.

    Args:
        config: Its section of the configuration.
        python: The interpreter and its options; our own by default.
    """

    def __init__(
        self,
        config: AppriseConfig,
        python: Sequence[str] = (sys.executable,),
    ) -> None:
        self._url = config.url
        self._timeout_s = config.timeout_s
        self._command = (*python, "-P", "-m", "costprobe.delivery.apprise_child")
        self._lock = Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def send(self, alerts: Sequence[Alert], time_ns: int) -> None:  # noqa: ARG002 - the contract's
        """Send alerts in order, one message each; see `Notifier.send`."""
        for alert in alerts:
            if alert.state != "pending":
                self._send_message(alert)

    def problems(self) -> list[str]:
        """Return the problems that can be detected without sending."""
        problems = self._url.problems()
        if problems or not self._url.is_readable:
            return problems
        try:
            self._run_child({"url": self._url.read(), "timeout_s": self._timeout_s})
        except DeliveryError as error:
            return [error.reason]
        return []

    def close(self) -> None:
        """Kill the child process if one is running; its message is then retried later."""
        with self._lock:
            if self._child is not None:
                _kill(self._child)

    def _send_message(self, alert: Alert) -> None:
        message = {
            "url": self._url.read(),
            "title": title_of(alert),
            "body": text_of(alert)[:MAX_BODY_CHARS],
            "type": "success" if alert.state == "resolved" else _TYPES[alert.severity],
            "timeout_s": self._timeout_s,
        }
        self._run_child(message)

    def _run_child(self, message: dict[str, Any]) -> None:
        """Send a message; without a body, check its URL alone.

        Raises:
            RetryLater, Misconfigured: As `Notifier.send`.
        """
        result = self._answer(json.dumps(message).encode())
        if result.get("ok") is True:
            return
        reason = f"{self._url.where}: {str(result.get('reason'))[:MAX_REASON_CHARS]}"
        if result.get("kind") == "misconfigured":
            raise Misconfigured(reason)
        if self._url.credential is None:
            reason = f"{reason}; see why with: apprise -vv -b test --config {self._url.where}"
        raise RetryLater(reason)

    def _answer(self, message: bytes) -> dict[str, Any]:
        child = self._start_child(message)
        line, poll = None, select.poll()
        with cast("IO[bytes]", child.stdout) as answer:
            poll.register(answer, select.POLLIN)
            try:
                if poll.poll(self._timeout_s * 1000):
                    # The child writes one line, at once.
                    line = os.read(answer.fileno(), MAX_ANSWER_BYTES)
            finally:
                with self._lock:
                    _kill(child)
                    self._child = None
        if line is None:
            raise RetryLater(f"{self._url.where}: not delivered within {self._timeout_s:g} s")
        try:
            return bounded_object(line, MAX_ANSWER_BYTES)
        except ValueError:
            text = f"{self._url.where}: the child process ended without a result"
            raise RetryLater(text) from None

    def _start_child(self, message: bytes) -> subprocess.Popen[bytes]:
        environment = {
            name: value
            for name, value in child_environment(os.environ).items()
            if name.lower() not in _PROXIES
        }
        try:
            # A memory file: writing to the pipe of a hung child could block.
            with os.fdopen(os.memfd_create("message"), "w+b") as file, self._lock:
                file.write(message)
                file.seek(0)
                self._child = subprocess.Popen(  # noqa: S603 - our own module, no shell
                    self._command,
                    stdin=file,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                    start_new_session=True,
                )
                return self._child
        except OSError as error:
            words = error.strerror or type(error).__name__
            raise RetryLater(f"no process could be started: {words}") from error


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a child's process group and reap it; once only, because its id may be reused."""
    if child.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            child.wait(KILL_TIMEOUT_S)
