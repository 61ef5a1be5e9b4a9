"""Days, months, quarters and years of a time zone: their lengths over clock changes, without gaps."""

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from costprobe.core.periods import HOUR_NS, PERIOD_HOURS, hour_phase_ns, period_at
from hypothesis import given
from hypothesis import strategies as st

S = 1_000_000_000
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/Havana", "Asia/Kolkata",
    "Asia/Kathmandu", "Asia/Beirut", "Australia/Lord_Howe", "Pacific/Apia",
)  # fmt: skip


def ns(text, zone="UTC"):
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * S


def utc(time_ns):
    return datetime.fromtimestamp(time_ns // S, UTC).isoformat(timespec="minutes")[:16]


PERIODS = Path(__file__).with_name("periods.txt")


def test_period_starts_and_ends_at_local_midnight():
    wrong = []
    for line in PERIODS.read_text().splitlines():
        if line.startswith("#"):
            continue
        kind, zone, at, *expected = line.split()
        period = period_at(kind, zone, ns(at))
        found = [utc(period.start_ns), utc(period.end_ns)]
        found.append(str((period.end_ns - period.start_ns) // HOUR_NS))
        wrong += [(line, found)] if found != expected else []
    assert wrong == []


@given(
    st.sampled_from(["day", "month", "quarter", "year"]),
    st.sampled_from(ZONES),
    st.integers(ns("2010-01-01T00:00"), ns("2036-01-01T00:00")),
)
def test_periods_are_contiguous_and_disjoint(kind, zone, at_ns):
    period = period_at(kind, zone, at_ns)
    assert period.start_ns <= at_ns < period.end_ns
    assert period_at(kind, zone, period.start_ns) == period
    assert period_at(kind, zone, period.end_ns - S) == period
    after = period_at(kind, zone, period.end_ns)
    assert after.start_ns == period.end_ns
    # The last ns of a year are the whole of it, as a float.
    assert 0 <= period.elapsed_share(at_ns) <= 1
    assert (period.end_ns - period.start_ns) / HOUR_NS + 1 <= PERIOD_HOURS[kind]


def test_local_full_hours_may_differ_from_utc_full_hours():
    at_ns = ns("2026-05-01T12:00")
    minutes = {"UTC": 0, "Europe/Berlin": 0, "Asia/Kolkata": 30, "Asia/Kathmandu": 15}
    for zone, after in minutes.items():
        assert hour_phase_ns(zone, at_ns) == after * 60 * S, zone
        start_ns = period_at("day", zone, at_ns).start_ns
        assert (start_ns - hour_phase_ns(zone, at_ns)) % HOUR_NS == 0
