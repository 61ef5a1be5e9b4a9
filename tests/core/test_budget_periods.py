"""Days, months, quarters and years of a time zone: their lengths over clock changes, without gaps."""

from datetime import UTC, datetime
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


# A period of a time zone at a UTC time, its start and end in UTC, and its hours. Berlin sets its clocks
# forward on 29 March and back on 25 October 2026; in Sao Paulo midnight of 4 November 2018 was skipped,
# and that of 18 February 2018 came twice.
PERIODS = """
day     UTC               2026-03-29T12:00 2026-03-29T00:00 2026-03-30T00:00   24
day     Europe/Berlin     2026-03-29T12:00 2026-03-28T23:00 2026-03-29T22:00   23
day     Europe/Berlin     2026-10-25T12:00 2026-10-24T22:00 2026-10-25T23:00   25
month   Europe/Berlin     2026-03-31T22:30 2026-03-31T22:00 2026-04-30T22:00  720
month   Europe/Berlin     2026-03-31T21:30 2026-02-28T23:00 2026-03-31T22:00  743
month   UTC               2028-02-29T23:59 2028-02-01T00:00 2028-03-01T00:00  696
month   UTC               2026-12-31T23:59 2026-12-01T00:00 2027-01-01T00:00  744
quarter Europe/Berlin     2026-03-31T21:59 2025-12-31T23:00 2026-03-31T22:00 2159
quarter UTC               2026-12-31T23:59 2026-10-01T00:00 2027-01-01T00:00 2208
year    UTC               2028-02-29T12:00 2028-01-01T00:00 2029-01-01T00:00 8784
day     Asia/Kolkata      2026-05-01T18:29 2026-04-30T18:30 2026-05-01T18:30   24
day     America/Sao_Paulo 2018-11-04T12:00 2018-11-04T03:00 2018-11-05T02:00   23
day     America/Sao_Paulo 2018-02-18T02:30 2018-02-17T02:00 2018-02-18T03:00   25
"""


def test_period_starts_and_ends_at_local_midnight():
    wrong = []
    for line in PERIODS.strip().splitlines():
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
    assert 0 <= period.elapsed_share(at_ns) < 1
    assert (period.end_ns - period.start_ns) / HOUR_NS + 1 <= PERIOD_HOURS[kind]


def test_local_full_hours_may_differ_from_utc_full_hours():
    at_ns = ns("2026-05-01T12:00")
    minutes = {"UTC": 0, "Europe/Berlin": 0, "Asia/Kolkata": 30, "Asia/Kathmandu": 15}
    for zone, after in minutes.items():
        assert hour_phase_ns(zone, at_ns) == after * 60 * S, zone
        start_ns = period_at("day", zone, at_ns).start_ns
        assert (start_ns - hour_phase_ns(zone, at_ns)) % HOUR_NS == 0
