"""Instants as people and sources write them: a duration before now ("24h"), or ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from costprobe.core.units import DurationRangeError, parse_duration_s, quoted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END = datetime(2100, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def iso(time_ns: int) -> str:
    """Format UTC ns as ISO 8601 with milliseconds."""
    moment = datetime.fromtimestamp(time_ns / 1e9, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_moment_ns(text: str, now_ns: int) -> int:
    """Parse a duration before now ("24h") or ISO 8601, local time if without a zone, to UTC ns.

    Args:
        text: The text.
        now_ns: UTC in ns since 1970.

    Raises:
        ValueError: It is neither, or not between 1970 and 2100; the message says which.
    """
    try:
        ago_s = parse_duration_s(text)
    except DurationRangeError:
        raise
    except ValueError:
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            raise ValueError(
                f'{quoted(text)} is not a duration ("24h") or a date and time'
            ) from None
        return moment_ns(moment)
    then_ns = now_ns - int(ago_s * 1e9)
    if then_ns < 0:
        raise ValueError(f"{quoted(text)} before now is before 1970")
    return then_ns


def parse_date_ns(text: str, zone: tzinfo | None = None) -> int:
    """Parse ISO 8601 to UTC ns.

    Args:
        text: The text.
        zone: Time zone of a text without one; by default the local time of this host.

    Raises:
        ValueError: It is no date and time, or not between 1970 and 2100; the message says which.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f'{quoted(text)} is not a time such as "2026-01-31T14:00"') from None
    return moment_ns(moment, zone)


def moment_ns(moment: datetime, zone: tzinfo | None = None) -> int:
    """Return the UTC ns of a date and time; arguments and errors as in `parse_date_ns`."""
    try:
        if moment.tzinfo is None:
            moment = moment.astimezone() if zone is None else moment.replace(tzinfo=zone)
        is_in_range = _EPOCH <= moment <= _END
    except (OverflowError, OSError, ValueError):
        # Near the years 1 and 9999 the conversion between time zones fails.
        is_in_range = False
    if not is_in_range:
        raise ValueError(f"{moment.replace(tzinfo=None)} is not between 1970 and 2100")
    return (moment - _EPOCH) // _MICROSECOND * 1000
