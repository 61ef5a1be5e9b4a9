"""`costprobe export --format focus`: charges in the columns of FOCUS 1.2."""

import csv
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from fakes import known
from fakes.cli import session
from fakes.made_once import made_once

# 2026-05-29 00:00 UTC.
END_NS = known.END_NS
HOUR_NS = 3600 * NS_PER_S
# Names, levels and forms of the columns of version 1.2.
SPECIFIED = Path(__file__).with_name("focus_1.2.csv")
# Of focus-validator 2.2.1: rule InvoiceId-C-003-C passes if InvoiceId-C-004-C (null) or InvoiceId-C-005-C
# (not null) does, and each alternative is reported as a rule of its own. No dataset passes both.
ALTERNATIVE = {"InvoiceId-C-005-C"}
CRITERIA = (
    "ACCOUNT_NAMING_SUPPORTED,USAGE_MEASUREMENT_SUPPORTED,TAGGING_SUPPORTED,"
    "BILLING_BASED_ON_PROVISIONED_RESOURCES_SUPPORTED,RESOURCE_TYPE_ASSIGNMENT_SUPPORTED"
)


def recorded(period):
    """The charges of a month, which tests/record keeps."""
    return Path(__file__).parents[2] / f"record/fixtures/month_focus_{period}.csv"


def charges(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("period", ["hour", "day"])
def test_recorded_charges_have_the_specified_columns(period):
    found = charges(recorded(period).read_text())
    columns = charges(SPECIFIED.read_text())
    names = [column["name"] for column in columns]
    assert [name for name in found[0] if not name.startswith("x_")] == names
    wrong = [
        (column["name"], row[column["name"]])
        for row in found
        for column in columns
        if not re.fullmatch(column["form"], row[column["name"]])
        and (row[column["name"]] or column["nulls_allowed"] == "no")
    ]
    assert wrong == []
    for row in found:
        assert len({row[f"{kind}Cost"] for kind in ("Billed", "Effective", "Contracted")}) == 1


def test_charges_by_hand(costprobe):
    """Of the first hour: 12 x 0.07 for chat, of which 0.24 idle and 12 x 150 tokens; 12 x 0.03 for embed, all
    of its tenant ads; the devices' hour is divided as their costs are.
    """
    host, device = {"host": "h", "team": "search"}, {"device": "gpu0", "currency": "EUR"}

    def at(minutes):
        return END_NS - 24 * HOUR_NS + minutes * 60 * NS_PER_S

    rows = []
    for minute in range(65, 185, 5):
        kind = {"kind": "gpu", "model": "=H100"}
        rows.append(make_point("device", {**host, **device, **kind}, {"cost": 0.1}, at(minute)))
        parts = (("chat", "busy", 0.05), ("chat", "idle", 0.02), ("embed", "busy", 0.03))
        for service, part, cost in parts:
            tags = {**host, **device, "service": service, "part": part}
            rows.append(make_point("allocation", tags, {"cost": cost}, at(minute)))
        served = {**host, "service": "chat"}
        counts = {"tokens_in": 100.0, "tokens_out": 50.0}
        rows.append(make_point("serving", served, counts, at(minute)))
        # What a model served is part of it.
        rows.append(make_point("serving", {**served, "served_model": "m"}, counts, at(minute)))
        tenant = {**host, "service": "embed", "tenant": "ads", "currency": "EUR"}
        rows.append(make_point("tenant", tenant, {"cost": 0.03}, at(minute)))
    costprobe.append(rows, time_ns=END_NS)
    session("focus", costprobe.config)


def install(folder):
    """Install focus-validator, which needs Python 3.12."""
    subprocess.run([shutil.which("python3.12"), "-m", "venv", folder], check=True)
    packages = ["focus-validator==2.2.1", "numpy<2", "pyarrow<17"]
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", *packages], check=True)


@pytest.mark.soak
@pytest.mark.skipif(
    subprocess.run(["sh", "-c", "python3.12 -V"], check=False, capture_output=True).returncode != 0,
    reason="python3.12 is not installed",
)
def test_focus_validator_accepts_the_charges():
    validator = made_once("focus-validator", install, "focus-validator==2.2.1")
    done = subprocess.run(
        [
            validator / "bin" / "focus-validator", "--block-download",
            "--data-file", recorded("hour"), "--validate-version", "1.2",
            "--applicability-criteria", CRITERIA,
        ],
        # It opens its rules by a path relative to its package.
        cwd=next(validator.glob("lib/python3*/site-packages")),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    failed = set(re.findall(r"(\S+): FAIL", done.stdout + done.stderr))
    passed = set(re.findall(r"(\S+): PASS", done.stdout + done.stderr))
    assert failed == ALTERNATIVE
    assert {"InvoiceId-C-000-O", "InvoiceId-C-003-C", "InvoiceId-C-004-C"} <= passed
    assert len(passed) > 150
