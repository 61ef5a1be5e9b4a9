"""The contract of a notifier."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from costprobe.core.incident import Alert


class Notifier(ABC):
    """One way to send alerts to people or to a paging service.

    It is constructed from its configuration section and the folder of systemd's credentials (None
    without one), without reading or connecting to anything. One thread at a time calls `send`; its
    worker retries, paces and records, so `send` is one attempt.

    Attributes:
        alerts_per_send: Maximum number of alerts of one `send`.
        resend_every_s: How often alerts that still fire are sent again, in s, for a receiver that
            expires them; None for never.
    """

    alerts_per_send: int = 1
    resend_every_s: float | None = None

    @abstractmethod
    def send(self, alerts: Sequence[Alert], time_ns: int) -> None:
        """Deliver alerts; return once the receiver has accepted all of them.

        It returns within the configured timeout. An alert may be sent twice, because a process can
        die between the delivery and its record: this must have no effect beyond a second message.
        Pending alerts are skipped.

        Args:
            alerts: Oldest first.
            time_ns: UTC in ns.

        Raises:
            RetryLater: The receiver is unreachable, overloaded or slow: retry later.
            Rejected: It will never accept this message.
            Misconfigured: URL or credentials are wrong: the message is kept for an operator.
        """

    def problems(self) -> list[str]:
        """Return the problems that can be detected without sending; without secrets."""
        return []

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close connections and end child processes; may be called twice, and while `send` runs."""
