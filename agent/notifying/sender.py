"""What a notifier is, and the errors with which it says what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent.alert import Alert


class Sender(Protocol):
    """One way to tell somebody of alerts.

    `send` is called by one thread, with what is to be told, the oldest first. It returns once
    the other side has taken all of it, within its timeout, and raises one of the errors below
    otherwise; the caller keeps what was not taken. Telling twice must do no harm beyond a
    second message, for a process may die between the answer and its record.
    """

    def send(self, alerts: Sequence[Alert], time_ns: int) -> None:
        """Tells of alerts, firing or resolved.

        Args:
            alerts: One or more, in the order in which they happened.
            time_ns: UTC in ns of now.

        Raises:
            RetryLater: The other side is away, overloaded or slow: the same again later.
            Refused: The other side will never take this message.
            Misconfigured: Address or credentials are wrong: keep the message, tell the operator.
        """
        ...

    def close(self) -> None:
        """Lets go of connections and child processes; callable twice."""
        ...


class RetryLater(Exception):  # noqa: N818 - named for what it asks of its caller
    """The other side is away, overloaded or slow.

    Attributes:
        reason: What happened, without secrets.
        after_s: When it asked to be called again, in s; None where it said nothing.
    """

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_s = after_s


class Refused(Exception):  # noqa: N818 - named for what it asks of its caller
    """The other side will never take this message.

    Attributes:
        reason: Its own words, without secrets.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Misconfigured(Exception):  # noqa: N818 - named for what it asks of its caller
    """Address or credentials are wrong: an operator must act.

    Attributes:
        reason: What is wrong and how to mend it, without secrets.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
