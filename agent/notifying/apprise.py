"""Mail, chat and pagers through Apprise, in a process of its own for each message."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from agent.alert import Alert
from agent.child_environment import child_environment
from agent.config_notifier import AppriseConfig
from agent.notifying.secrets import Secret
from agent.notifying.sender import Misconfigured, RetryLater
from agent.notifying.wording import text_of, title_of

MAX_ANSWER_BYTES = 4096
MAX_BODY_CHARS = 4000
MAX_REASON_CHARS = 300
KILL_TIMEOUT_S = 5.0
_TYPES = {"critical": "failure", "warning": "warning", "info": "info"}
_PROXIES = {"http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy"}


class Apprise:
    """One Apprise address.

    Args:
        config: Where the address is.
        credentials: Where systemd put this process's credentials; None where it gave none.
        python: The interpreter and its options; our own by default.
    """

    def __init__(
        self,
        config: AppriseConfig,
        credentials: Path | None,
        python: Sequence[str] = (sys.executable,),
    ) -> None:
        self._url = Secret("address", config.url_file, config.url_credential, credentials)
        self._timeout_s = config.timeout_s
        self._command = (*python, "-P", "-m", "agent.notifying.apprise_child")
        self._lock = Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def send(self, alerts: Sequence[Alert], time_ns: int) -> None:  # noqa: ARG002 - of the protocol
        """Tells of alerts, a message each, in order; those that are pending are left out.

        Args:
            alerts: In the order in which they happened.
            time_ns: UTC in ns of now.

        Raises:
            RetryLater: The service is away or did not take it; those before may have been taken.
            Misconfigured: The address is wrong, or Apprise is not installed.
        """
        for alert in alerts:
            if alert.state != "pending":
                self._tell(alert)

    def problems(self) -> list[str]:
        """What hinders sending, as far as can be told without sending."""
        found = self._url.problems()
        if importlib.util.find_spec("apprise") is None:
            found.append("the apprise package is not installed; mend it with: pip install apprise")
        return found

    def close(self) -> None:
        """Ends the child, if one runs; its message is then told again later."""
        with self._lock:
            if self._child is not None:
                _kill(self._child)

    def _tell(self, alert: Alert) -> None:
        message = {
            "url": self._url.read(),
            "title": title_of(alert),
            "body": text_of(alert)[:MAX_BODY_CHARS],
            "type": "success" if alert.state == "resolved" else _TYPES[alert.severity],
            "timeout_s": self._timeout_s,
        }
        answer = self._ask(json.dumps(message).encode())
        if answer.get("ok") is True:
            return
        reason = f"{self._url.where}: {str(answer.get('reason'))[:MAX_REASON_CHARS]}"
        if answer.get("kind") == "misconfigured":
            raise Misconfigured(reason)
        if self._url.credential is None:
            reason = f"{reason}; see why with: apprise -vv -b test --config {self._url.where}"
        raise RetryLater(reason)

    def _ask(self, question: bytes) -> dict[str, Any]:
        ends_s = time.monotonic() + self._timeout_s
        child = self._started(question)
        try:
            answer = _heard(child, ends_s)
        finally:
            with self._lock:
                _kill(child)
                self._child = None
            if child.stdout is not None:
                child.stdout.close()
        try:
            document = json.loads(answer)
        except ValueError:
            document = None
        if isinstance(document, dict):
            return document
        if time.monotonic() >= ends_s:
            raise RetryLater(f"{self._url.where}: not told within {self._timeout_s:g} s")
        raise RetryLater(f"{self._url.where}: the process that tells it ended without an answer")

    def _started(self, question: bytes) -> subprocess.Popen[bytes]:
        environment = {
            name: value
            for name, value in child_environment(os.environ).items()
            if name.lower() not in _PROXIES
        }
        try:
            # In memory and not in a pipe, which may be full before a child that hangs reads it.
            with os.fdopen(os.memfd_create("message"), "w+b") as message, self._lock:
                message.write(question)
                message.seek(0)
                self._child = subprocess.Popen(  # noqa: S603 - our own module, no shell
                    self._command,
                    stdin=message,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                    start_new_session=True,
                )
                return self._child
        except OSError as error:
            words = error.strerror or type(error).__name__
            raise RetryLater(f"no process could be started: {words}") from error


def _heard(child: subprocess.Popen[bytes], ends_s: float) -> bytes:
    """A line of answer, or as much as came in time."""
    if child.stdout is None:
        return b""
    answer, listening = b"", select.poll()
    listening.register(child.stdout, select.POLLIN)
    while b"\n" not in answer and len(answer) < MAX_ANSWER_BYTES:
        left_s = ends_s - time.monotonic()
        if left_s <= 0 or not listening.poll(left_s * 1000):
            break
        piece = os.read(child.stdout.fileno(), MAX_ANSWER_BYTES)
        if not piece:
            break
        answer += piece
    return answer


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kills a child with all that it started, and reaps it; not again, its id may be another's."""
    if child.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            child.wait(KILL_TIMEOUT_S)
