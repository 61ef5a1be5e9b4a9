"""The Retry-After header."""

from __future__ import annotations

from datetime import UTC

MAX_RETRY_AFTER_S = 3600.0


def retry_after_s(value: str | None, now_s: float) -> float | None:
    """Parse a Retry-After header: seconds, or a date (RFC 9110, 10.2.3).

    Args:
        value: The header; None if there was none.
        now_s: UTC in s since 1970.

    Returns:
        Seconds to wait, at most MAX_RETRY_AFTER_S; None if the header is malformed or in the past.
    """
    if value is None:
        return None
    try:
        after_s = float(value)
    except ValueError:
        import email.utils  # noqa: PLC0415 - a large package, for a form that servers rarely use

        try:
            date = email.utils.parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        after_s = aware.timestamp() - now_s
    # NaN compares as false, so it counts as malformed.
    return min(after_s, MAX_RETRY_AFTER_S) if after_s >= 0 else None
