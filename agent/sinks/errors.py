"""What a sink's failure asks its caller to do: retry, split, or call the operator."""

from __future__ import annotations


class RetryLater(Exception):
    """The database is away or busy; the same bytes may pass later.

    Attributes:
        reason: What happened, for people.
        after_s: Seconds that the server asked us to wait; None if it did not say.
    """

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_s = after_s


class Rejected(Exception):
    """The server refuses something in these lines, or their number: split them.

    Attributes:
        reason: The server's own words.
        too_large: True if it was the size of the request.
        doubtful: True if the answer is not in a database's own form: what stands at the address
            may refuse everything, and then no point is to blame.
    """

    def __init__(self, reason: str, *, too_large: bool = False, doubtful: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.too_large = too_large
        self.doubtful = doubtful


class Misconfigured(Exception):
    """Credentials, database or address are wrong: keep the data, tell the operator.

    Attributes:
        reason: What the server said and what to do.
        unauthorized: True if the credentials were refused: they may have been rotated.
    """

    def __init__(self, reason: str, *, unauthorized: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.unauthorized = unauthorized
