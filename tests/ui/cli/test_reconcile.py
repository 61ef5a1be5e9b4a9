"""`reconcile`: the same charges in every kind of bill, and a difference of which each part is planted."""

import gzip
from datetime import UTC, datetime
from pathlib import Path

import pytest
from costprobe.adapters.clouds.bills import BillLine
from costprobe.adapters.databases.kinds import READERS
from costprobe.spend.reconcile import MeasuredHour, reconciled
from fakes import rows
from fakes.cli import Cli, session, stopped_clock
from fakes.fleet_answers import RowsReader
from hypothesis import given
from hypothesis import strategies as st

# Of gpu-01: three days at $6.60 an hour, a volume of $12.50, and taxes of $4.75.
BILLS = Path(__file__).parent / "bills"
START = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())
NS = 10**9
HOUR_S = 3600
# The devices were not read from the 10th to the 15th hour, and read for two hours after the bill ends.
READ = [hour for hour in range(74) if hour not in range(10, 15)]


def read(host, device, hours, rate=3.0, start_s=0):
    """Readings of a device in these hours of the month, at a price an hour."""
    return [
        rows.device({"host": host, "device": device}, (START + end_s) * NS, 300, rate, 400.0)
        for hour in hours
        for end_s in range(hour * HOUR_S + 300, (hour + 1) * HOUR_S + 1, 300)
        if end_s > start_s
    ]


@pytest.fixture
def host(tmp_path):
    """A host with readings; its clock is at the end of the 74th hour."""
    cli = Cli(tmp_path, '[host]\nname = "gpu-01"\n')

    def filled(*readings):
        cli.append(*readings, time_ns=(START + 74 * HOUR_S) * NS)
        return cli

    return filled


def test_planted_gaps_are_found_in_every_kind_of_bill_and_unusable_bills_are_refused(host):
    """Two devices at $3 an hour each; in the session each bill is reconciled with them."""
    cli = host(read("gpu-01", "gpu0", READ), read("gpu-01", "gpu1", READ))
    legacy = (BILLS / "cur_legacy.csv").read_bytes()
    (cli.folder / "cur.csv.gz").write_bytes(gzip.compress(legacy))
    (cli.folder / "utf16.csv").write_bytes(legacy.decode().encode("utf-16"))
    (cli.folder / "parquet").write_bytes(b"PAR1\xff\xfe\x00\x15")
    session("reconcile", cli.config, (BILLS, "/bills"))


def test_hosts_of_a_fleet_are_found_in_one_bill(tmp_path, monkeypatch):
    stored = [*read("gpu-01", "gpu0", range(72)), *read("gpu-03", "gpu0", range(1, 72))]
    monkeypatch.setitem(READERS, "prometheus", lambda *_: RowsReader(stored))
    path = tmp_path / "fleet.toml"
    path.write_text('[fleet]\nkind = "prometheus"\nurl = "http://127.0.0.1:9"\n')
    with stopped_clock(START + 74 * HOUR_S):
        session("reconcile_fleet", path, (BILLS, "/bills"))


def test_slices_that_come_and_go_are_read_all_the_time(host):
    early = [read("gpu-01", f"gpu0.mig{n}", range(36), 1) for n in range(6)]
    late = [read("gpu-01", f"gpu0.mig{n}", range(36, 72), 3) for n in (7, 8)]
    cli = host(read("gpu-01", "gpu0", range(72), 0), *early, *late)
    document = cli.json("reconcile", str(BILLS / "focus.csv"))
    found = document["covered_h"], document["measured_per_h"]
    assert found == pytest.approx((72, 6))


amounts = st.decimals(-1000, 1000, allow_nan=False, places=7)
lines = st.builds(
    lambda hour, length, billed, effective, kind, used: BillLine(
        hour * HOUR_S * NS,
        (hour + length) * HOUR_S * NS,
        kind,
        billed,
        effective,
        "USD",
        used,
        frozenset(),
        "i-1",
    ),
    st.integers(0, 30),
    st.integers(1, 24),
    amounts,
    amounts,
    st.sampled_from(["compute", "storage", "taxes"]),
    st.none() | st.decimals(-24, 24, allow_nan=False, places=3),
)
measured = st.dictionaries(
    st.integers(0, 60),
    st.builds(MeasuredHour, st.floats(-100, 100), st.floats(0, 3600)),
    max_size=30,
)


@given(st.lists(lines, min_size=1, max_size=20), measured)
def test_gaps_add_up_to_the_difference(bill, hours):
    found = reconciled(bill, hours)
    assert sum(gap.amount for gap in found.gaps) == found.cost_billed - found.cost_measured
