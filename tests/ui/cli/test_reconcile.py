"""`reconcile`: the same charges in every kind of bill, and a difference of which each part is planted."""

import csv
import gzip
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from costprobe.adapters.clouds.bills import BillLine
from costprobe.adapters.databases.kinds import READERS
from costprobe.spend.reconcile import MeasuredHour, reconciled
from fakes import rows
from fakes.cli import Cli, same
from fakes.command import called
from fakes.documents import checked
from fakes.fleet_answers import RowsReader
from hypothesis import given
from hypothesis import strategies as st

START = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())
NS = 10**9
HOURS = 72
# The devices were not read from the 10th to the 15th hour, and read for two hours after the bill ends.
SILENT = range(10, 15)
MEASURED = 74
RATE = 3.0
PAID = Decimal("6.60")


def iso(hour, form="%Y-%m-%dT%H:%M:%SZ"):
    return datetime.fromtimestamp(START + hour * 3600, UTC).strftime(form)


@pytest.fixture(scope="module")
def cli(tmp_path_factory):
    """A host with two devices at $3 an hour each."""
    host = Cli(tmp_path_factory.mktemp("bill"), '[host]\nname = "gpu-01"\n')
    read = [hour for hour in range(MEASURED) if hour not in SILENT]
    host.append(
        [
            rows.device({"host": "gpu-01", "device": name}, end * NS, 300, RATE, 400.0)
            for name in ("gpu0", "gpu1")
            for hour in read
            for end in range(START + hour * 3600 + 300, START + (hour + 1) * 3600 + 1, 300)
        ],
        time_ns=(START + MEASURED * 3600) * NS,
    )
    return host


def written(path, lines, *, packed=False):
    if isinstance(lines[0], list):
        text = io.StringIO()
        csv.writer(text).writerows(lines)
        content = text.getvalue()
    else:
        content = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    return str(path)


def focus(folder):
    heads = (  # noqa: SIM905 - as one reads them
        "BilledCost BillingCurrency ChargeCategory ChargeDescription ChargePeriodEnd ChargePeriodStart"
        " ConsumedQuantity ConsumedUnit EffectiveCost ResourceId ResourceName ServiceCategory Tags"
    ).split()

    def charge(hour, amount, category="Usage", service="Compute", unit="Hours", resource="i-0abc"):
        times = (iso(hour + 1), iso(hour))
        return [
            *(amount, "USD", category, f"{service} of p5", *times, 1, unit, amount),
            *(resource, "", service, '{"Name": "GPU-01"}'),
        ]

    hourly = [charge(hour, PAID) for hour in range(HOURS)]
    others = [
        charge(0, "12.5", service="Storage", unit="GB-Mo", resource="vol-1"),
        charge(0, "4.75", category="Tax", unit="", resource=""),
        [*charge(3, 100)[:-1], '{"Name": "gpu-02"}'],
    ]
    return written(folder / "focus.csv", [heads, *hourly, *others])


def aws(folder, *, legacy):
    names = (
        "lineItem/UsageStartDate lineItem/UsageEndDate lineItem/UnblendedCost lineItem/CurrencyCode"
        " lineItem/LineItemType lineItem/ProductCode lineItem/UsageType lineItem/ResourceId"
        " lineItem/UsageAmount pricing/unit savingsPlan/SavingsPlanEffectiveCost resourceTags/user:Name"
    )
    plain = (
        "line_item_usage_start_date line_item_usage_end_date line_item_unblended_cost"
        " line_item_currency_code line_item_line_item_type line_item_product_code line_item_usage_type"
        " line_item_resource_id line_item_usage_amount pricing_unit"
        " savings_plan_savings_plan_effective_cost resource_tags"
    )
    tag = "gpu-01" if legacy else '{"user_name": "gpu-01"}'

    def charge(hour, amount, kind, use, effective="", resource="i-0abc"):
        return [
            *(iso(hour), iso(hour + 1), amount, "USD", kind, "AmazonEC2", use, resource),
            *(1, "Hrs" if "BoxUsage" in use else "GB", effective, tag),
        ]

    lines = []
    for hour in range(HOURS):
        # A savings plan paid: the list price is set off by the negation.
        lines += [
            charge(hour, "98.32", "SavingsPlanCoveredUsage", "BoxUsage:p5.48xlarge", PAID),
            charge(hour, "-98.32", "SavingsPlanNegation", "BoxUsage:p5.48xlarge"),
        ]
    lines.append(charge(0, "12.5", "Usage", "EBS:VolumeUsage.gp3", "", "vol-1"))
    lines.append(charge(0, "4.75", "Tax", "BoxUsage:p5.48xlarge"))
    heads = (names if legacy else plain).split()
    return written(folder / "cur.csv.gz", [heads, *lines], packed=True)


def azure(folder, *, is_agreement=False):
    heads = (  # noqa: SIM905 - as one reads them
        "date costInBillingCurrency billingCurrency chargeType meterCategory meterName resourceId"
        " quantity unitOfMeasure tags"
    ).split()
    machine = "/subscriptions/x/resourceGroups/y/providers/Microsoft.Compute/virtualMachines/GPU-01"

    def charge(day, amount, kind, category, unit):
        return [
            *(iso(day * 24, "%m/%d/%Y"), amount, "USD", kind, category, f"{category} v5", machine),
            *(0.24 if is_agreement else 24, unit, '"team": "search"'),
        ]

    unit = "100 Hours" if is_agreement else "1 Hour"
    lines = [charge(day, PAID * 24, "Usage", "Virtual Machines", unit) for day in range(3)]
    lines.append(charge(0, "12.5", "Usage", "Storage", "1/Month"))
    lines.append(charge(0, "4.75", "Tax", "Virtual Machines", ""))
    if is_agreement:
        other = {"costInBillingCurrency": "Cost", "billingCurrency": "BillingCurrencyCode"}
        heads = [other.get(head, head) for head in heads]
    return written(folder / "azure.csv", [heads, *lines])


def google(folder):
    def charge(hour, amount, sku, kind="regular", credit="0"):
        return {
            "usage_start_time": iso(hour, "%Y-%m-%d %H:%M:%S UTC"),
            "usage_end_time": iso(hour + 1, "%Y-%m-%d %H:%M:%S UTC"),
            "cost": float(amount),
            "currency": "USD",
            "cost_type": kind,
            "service": {"description": "Compute Engine"},
            "sku": {"description": sku},
            "resource": {"name": "gpu-01", "global_name": "//compute.googleapis.com/x/1"},
            "credits": [{"name": "Sustained use", "amount": float(credit)}],
            "labels": [{"key": "team", "value": "search"}],
        }

    lines = []
    for hour in range(HOURS):
        lines += [
            charge(hour, "5", "Nvidia H100 80GB GPU running in Americas"),
            charge(hour, "2", "A3 Instance Core", credit="-0.4"),
        ]
    lines.append(charge(0, "12.5", "SSD backed PD Capacity"))
    lines.append(charge(0, "4.75", "Tax", kind="tax"))
    return written(folder / "google.json", lines)


BILLS = {
    "FOCUS": focus,
    "AWS legacy": lambda folder: aws(folder, legacy=True),
    "AWS CUR 2.0": lambda folder: aws(folder, legacy=False),
    "Azure": azure,
    "Azure EA": lambda folder: azure(folder, is_agreement=True),
    "Google": google,
}


def test_planted_gaps_are_found_in_every_kind_of_bill(cli, tmp_path):
    found, wanted = {}, {}
    for name, write in BILLS.items():
        document = checked("reconcile", cli("reconcile", write(tmp_path), "--json"))
        amounts = {gap["name"]: Decimal(gap["amount"]) for gap in document["gaps"]}
        difference = Decimal(document["cost_billed"]) - Decimal(document["cost_measured"])
        assert sum(amounts.values()) == difference, name
        found[name] = {gap: round(float(amount), 9) for gap, amount in amounts.items()}
        found[name]["billed"] = round(float(document["cost_billed"]), 9)
        covered = HOURS - len(SILENT)
        wanted[name] = {
            "storage": 12.5,
            "taxes": 4.75,
            "hours without data": float(PAID) * len(SILENT),
            "price": round((float(PAID) - 2 * RATE) * covered, 9),
            "measured, but not billed": -2 * RATE * (MEASURED - HOURS),
            "remainder": 0.0,
            "billed": round(float(PAID) * HOURS + 17.25, 9),
        }
        if name.startswith("AWS"):
            # The savings plan's own fee is no charge of the host.
            wanted[name]["commitments, paid elsewhere"] = -float(PAID) * HOURS
            wanted[name]["billed"] = 17.25
    assert found == wanted


def test_printed(cli, tmp_path):
    same("reconcile", cli("reconcile", focus(tmp_path)))


def test_hosts_of_a_fleet_are_found_in_one_bill(cli, tmp_path, monkeypatch):
    stored = [
        rows.device({"host": host, "device": "gpu0"}, end * NS, 300, RATE, 400.0)
        for host in ("gpu-01", "gpu-03")
        for end in range(START + 300, START + HOURS * 3600 + 1, 300)
        if host == "gpu-01" or end > START + 3600
    ]
    monkeypatch.setitem(READERS, "prometheus", lambda *_: RowsReader(stored))
    path = tmp_path / "fleet.toml"
    path.write_text('[fleet]\nkind = "prometheus"\nurl = "http://127.0.0.1:9"\n')
    asked = ("reconcile", "--fleet", focus(tmp_path), "--month", "2026-11")
    same("reconcile_fleet", called(path, *asked).output)
    document = checked("reconcile --fleet", called(path, *asked, "--json").output)
    (one,) = document["hosts"]
    assert one["host"] == "gpu-01"
    assert document["hosts_without_charges"] == ["gpu-03"]
    amounts = {gap["name"]: float(gap["amount"]) for gap in one["gaps"]}
    assert amounts["price"] == pytest.approx((float(PAID) - RATE) * HOURS)
    assert "hours without data" not in amounts


def test_unusable_bills_are_refused(cli, tmp_path):
    bill = focus(tmp_path)
    text = Path(bill).read_text()
    december = text.split("\n", 1)[1].replace("2026-11-0", "2026-12-0")
    texts = {
        "two.csv": text + december,
        "not.csv": "a,b\n1,2\n",
        "empty.csv": "",
        "amount.csv": "BilledCost,ChargePeriodStart,ChargePeriodEnd\nmany,2026-11-01,2026-11-02\n",
        "time.csv": "BilledCost,ChargePeriodStart,ChargePeriodEnd\n1,soon,2026-11-02\n",
        "euro.csv": text.replace("USD", "EUR"),
        "excel.csv": text.replace(",", ";"),
        "short.csv": text + "1,USD\n",
        "list.json": "[{}]\n",
    }
    for name, content in texts.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "utf16.csv").write_bytes(text.encode("utf-16"))
    (tmp_path / "parquet").write_bytes(b"PAR1\xff\xfe\x00\x15")
    asked = [
        *([name] for name in (*texts, "utf16.csv", "parquet", "absent.csv")),
        ["focus.csv", "--resource", "i-0other"],
        ["focus.csv", "--month", "2026-10"],
        ["focus.csv", "--month", "November"],
    ]
    printed = [
        cli("reconcile", str(tmp_path / name), *more, code=2).replace(f"{tmp_path}/", "")
        for name, *more in asked
    ]
    same("reconcile_refused", "\n".join(printed))


def amounts_of(document):
    return {gap["name"]: round(float(gap["amount"]), 6) for gap in document["gaps"]}


def test_discounts_of_aws_lower_the_price_and_count_no_hours(cli, tmp_path):
    path = Path(aws(tmp_path, legacy=False))
    (heads, line), *_ = [
        list(csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode())))[:2]
    ]

    def charge(day, amount, kind):
        # The instance ran in half of a day, and the export is a daily one.
        changed = {"start_date": iso(day * 24), "end_date": iso(day * 24 + 24), "amount": 12}
        changed |= {"cost": amount, "item_type": kind, "effective_cost": ""}
        ends = {
            head: next((c for end, c in changed.items() if head.endswith(end)), None)
            for head in heads
        }
        return [
            old if ends[head] is None else ends[head] for head, old in zip(heads, line, strict=True)
        ]

    lines = [
        charge(day, *each) for day in range(3) for each in ((96, "Usage"), (-12, "EdpDiscount"))
    ]
    document = cli.json("reconcile", written(path, [heads, *lines]))
    assert document["instance_h"] == 36
    assert document["billed_per_h"] == 7
    # The devices were read for longer than the instance was billed.
    assert amounts_of(document) == {
        "price": 36.0,
        "measured, but not billed": -2 * RATE * (MEASURED - len(SILENT) - 36),
        "remainder": 0.0,
    }


def test_unused_commitments_and_corrections_are_not_in_the_price(cli, tmp_path):
    heads, *lines = list(csv.reader(Path(focus(tmp_path)).read_text().splitlines()))
    heads += ["CommitmentDiscountStatus", "ChargeClass"]
    place = {head: n for n, head in enumerate(heads)}

    def charge(**cells):
        cells = {"ChargePeriodStart": iso(80), "ChargePeriodEnd": iso(83), **cells}
        line = [*lines[0], "", ""]
        for head, cell in cells.items():
            line[place[head]] = cell
        return line

    more = [
        charge(BilledCost=0, EffectiveCost=50, CommitmentDiscountStatus="Unused"),
        charge(BilledCost=-20, EffectiveCost=-20, ConsumedQuantity=-3, ChargeClass="Correction"),
    ]
    bill = written(tmp_path / "f.csv", [heads, *([*line, "NULL", ""] for line in lines), *more])
    document = cli.json("reconcile", bill)
    assert document["instance_h"] == HOURS
    assert document["billed_per_h"] == float(PAID)
    assert amounts_of(document)["credits"] == -20


def test_commitments_of_google_are_paid_elsewhere(cli, tmp_path):
    lines = [json.loads(line) for line in Path(google(tmp_path)).read_text().splitlines()]
    for line in lines[:-2:2]:
        line["credits"] = [{"amount": -5, "type": "COMMITTED_USAGE_DISCOUNT"}]
    document = cli.json("reconcile", written(tmp_path / "committed.json", lines))
    assert document["billed_per_h"] == float(PAID)
    assert amounts_of(document)["commitments, paid elsewhere"] == -5 * HOURS


def test_a_file_with_lines_twice_suggests_no_price(cli, tmp_path):
    heads, *lines = list(csv.reader(Path(focus(tmp_path)).read_text().splitlines()))
    printed = cli("reconcile", written(tmp_path / "twice.csv", [heads, *lines, *lines]))
    assert "the charges count 144.0 h in a time of 72.0 h" in printed
    assert "[[price]]" not in printed


def test_slices_that_come_and_go_are_read_all_the_time(tmp_path):
    host = Cli(tmp_path, '[host]\nname = "gpu-01"\n')
    parts = [("gpu0", range(72), 0), *((f"gpu0.mig{n}", range(36), 1) for n in range(6))]
    parts += [(f"gpu0.mig{n}", range(36, 72), 3) for n in (7, 8)]
    host.append(
        [
            rows.device({"host": "gpu-01", "device": name}, end * NS, 300, rate, 400.0)
            for name, hours, rate in parts
            for hour in hours
            for end in range(START + hour * 3600 + 300, START + (hour + 1) * 3600 + 1, 300)
        ],
        time_ns=(START + MEASURED * 3600) * NS,
    )
    document = host.json("reconcile", focus(tmp_path))
    assert (document["covered_h"], document["measured_per_h"]) == (
        pytest.approx(72),
        pytest.approx(6),
    )


amounts = st.decimals(-1000, 1000, allow_nan=False, places=7)
lines = st.builds(
    lambda hour, length, billed, effective, kind, used: BillLine(
        hour * 3600 * NS,
        (hour + length) * 3600 * NS,
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
