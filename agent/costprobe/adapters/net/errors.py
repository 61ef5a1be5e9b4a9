"""Errors of deliveries and requests, by the reaction of the caller: retry, drop or stop."""

from __future__ import annotations

from costprobe.core.outside_error import OutsideError


class DeliveryError(OutsideError):
    """A request failed.

    Attributes:
        reason: Problem and fix, in one line and without secrets.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RetryLater(DeliveryError):  # noqa: N818 - named for what the caller has to do
    """The server is unreachable, slow or overloaded: send the same request again later.

    Attributes:
        after_s: Seconds that the server requested (Retry-After); None if it did not.
    """

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


class Rejected(DeliveryError):  # noqa: N818 - named for what the caller has to do
    """The server will never accept this body: split it, or drop it.

    Attributes:
        too_large: True if the body was rejected because of its size.
        doubtful: True if the response is not a JSON object: it may be that of a proxy or of another
            kind of server, which rejects everything.
    """

    def __init__(self, reason: str, *, too_large: bool = False, doubtful: bool = False) -> None:
        super().__init__(reason)
        self.too_large = too_large
        self.doubtful = doubtful


class Misconfigured(DeliveryError):  # noqa: N818 - named for what the caller has to do
    """URL, certificates or credentials are wrong: keep the data and wait for an operator.

    Attributes:
        unauthorized: True if the server rejected the credentials, which may have been rotated.
    """

    def __init__(self, reason: str, *, unauthorized: bool = False) -> None:
        super().__init__(reason)
        self.unauthorized = unauthorized
