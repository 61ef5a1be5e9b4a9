"""When a server asks to be called again."""

from __future__ import annotations

import email.utils
from datetime import UTC

MAX_RETRY_AFTER_S = 3600.0


def retry_after_s(value: str | None, now_s: float) -> float | None:
    """Seconds of a Retry-After header, which holds seconds or a date (RFC 9110, 10.2.3).

    Args:
        value: The header; None if there was none.
        now_s: UTC in s since 1970.

    Returns:
        At most MAX_RETRY_AFTER_S; None where the header says nothing of use.
    """
    if value is None:
        return None
    try:
        after_s = float(value)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        after_s = aware.timestamp() - now_s
    # A NaN compares as false and so is no answer.
    return min(after_s, MAX_RETRY_AFTER_S) if after_s >= 0 else None
