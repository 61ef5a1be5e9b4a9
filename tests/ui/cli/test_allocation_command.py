"""`costprobe spend` on stored rows whose sums are known."""

import csv
import json
import time
from dataclasses import replace

import pytest
from costprobe.core.schema import make_point
from fakes.cli import same
from fakes.command import called

S = 1_000_000_000
HOST = {"host": "h", "currency": "EUR"}
HOURS = 10
CHAT = {"service": "chat"}
# Cost of an hour: 6 of gpu0 and 4 of gpu1.
ALLOCATED = (
    ("gpu0", {**CHAT, "part": "busy", "namespace": "prod"}, 3.0),
    ("gpu0", {**CHAT, "part": "idle", "namespace": "prod"}, 2.0),
    ("gpu0", {"part": "probing"}, 1.0),
    ("gpu1", {"service": "train", "part": "held", "namespace": "lab"}, 1.5),
    ("gpu1", {"part": "unallocated"}, 2.5),
)
SERVING = ({}, 5.0, 2.0), ({"served_model": "a"}, 3.0, 1.0), ({"served_model": "b"}, 1.5, 0.5)
# Tokens in, cached ones of them, and what these saved.
CACHE = {
    "service": (1000.0, 600.0, 0.5),
    "a": (600.0, 600.0, None),
    "search": (800.0, 600.0, 0.5),
    "other": (200.0, 0.0, 0.0),
}
TENANTS = {"search": 2.0, "other": 1.0, "unattributed": 2.0}


def rows(now_ns):
    for hour in range(HOURS):
        time_ns = now_ns - hour * 3600 * S
        for device, cost in (("gpu0", 6.0), ("gpu1", 4.0)):
            for minute in range(0, 60, 10):
                tags = {**HOST, "device": device}
                yield make_point("device", tags, {"cost": cost / 6}, time_ns - minute * 60 * S)
        for device, tags, cost in ALLOCATED:
            yield make_point(
                "allocation", {**HOST, "device": device, **tags}, {"cost": cost}, time_ns
            )
        for tags, cost, idle in SERVING:
            place = {**HOST, **CHAT, **tags, "device": "gpu0", "basis": "serving"}
            fields = {"cost_total": cost, "cost_idle": idle}
            fields |= cache_fields(tags.get("served_model", "service"))
            yield make_point("cost", place, fields, time_ns)
        for tenant, cost in TENANTS.items():
            fields = {"cost": cost, **cache_fields(tenant)}
            yield make_point("tenant", {**HOST, **CHAT, "tenant": tenant}, fields, time_ns)


def cache_fields(name):
    fields = ("tokens_in", "cached_tokens", "cost_cache_saved")
    return dict(zip(fields, CACHE.get(name, ()), strict=False))


@pytest.fixture
def stored(costprobe, request):
    """A store whose costs have the sign that a test requests."""
    now_ns, sign = time.time_ns(), getattr(request, "param", 1)
    signed = [
        replace(row, fields={name: sign * cost for name, cost in row.fields.items()})
        for row in rows(now_ns)
    ]
    costprobe.append(sorted(signed, key=lambda row: row.time_ns))
    return sign


def parts_of(document):
    return {
        part["name"]: (part["cost"], part["cost_idle"], part["rest"]) for part in document["parts"]
    }


def test_lines_state_what_a_cache_answered_and_saved(costprobe, stored):
    expected = {
        "service": {"chat": (0.6, 5.0)},
        # Only the saving of the model is unknown.
        "model": {"a": (1.0, None), "chat": (0.6, 5.0)},
        "tenant": {"search": (0.75, 5.0), "other": (0.0, 0.0)},
        "namespace": {},
    }
    found = {}
    for key in expected:
        (document,) = json.loads(costprobe("spend", "--by", key, "--since", "1d", "--json"))
        named = {p["name"]: (p["cached_share"], p["cost_cache_saved"]) for p in document["parts"]}
        found[key] = {name: cache for name, cache in named.items() if cache[0] is not None}
    assert found == expected
    tables = [costprobe("spend", "--by", key, "--since", "1d").splitlines() for key in expected]
    same("spend", "\n".join(line for table in tables for line in table[1:]) + "\n")


# Electricity below zero may make every cost negative.
@pytest.mark.parametrize("stored", [1, -1], indirect=True)
def test_each_key_has_its_cost_and_the_lines_add_up_to_the_devices(costprobe, stored):
    probing = (10, None, "probing")
    expected = {
        "service": {
            "chat": (50, 20, None),
            "train": (15, None, None),
            "probing": probing,
            "unallocated": (25, None, "unallocated"),
        },
        "namespace": {
            "prod": (50, 20, None),
            "lab": (15, None, None),
            "probing": probing,
            "unallocated": (25, None, "unallocated"),
        },
        # 0.5 an hour of the service is of no model.
        "model": {
            "a": (30, 10, None),
            "b": (15, 5, None),
            "chat": (5, 5, None),
            "probing": probing,
            "unallocated": (40, None, "unallocated"),
        },
        "tenant": {
            "search": (20, None, None),
            "other": (10, None, None),
            "unattributed": (20, None, "unattributed"),
            "probing": probing,
            "unallocated": (40, None, "unallocated"),
        },
    }
    wrong = []
    for key, known in expected.items():
        (document,) = json.loads(costprobe("spend", "--by", key, "--since", "1d", "--json"))
        found = parts_of(document)
        close = found.keys() == known.keys() and all(
            found[name]
            == (pytest.approx(stored * cost), idle and pytest.approx(stored * idle), rest)
            for name, (cost, idle, rest) in known.items()
        )
        total = sum(part["cost"] for part in document["parts"])
        if not close or total != pytest.approx(document["cost_total"], rel=1e-12):
            wrong.append((key, found))
        assert (document["by"], document["currency"]) == (key, "EUR")
        assert document["cost_total"] == pytest.approx(stored * 100)
    assert wrong == []


def test_parts_at_the_edge_of_the_period_are_reduced_to_the_devices_cost(costprobe, stored):
    # The windows of the last hour, of which the period contains 30 minutes of the devices.
    (document,) = json.loads(costprobe("spend", "--by", "service", "--since", "30m", "--json"))
    assert document["cost_total"] < 10
    assert sum(part["cost"] for part in document["parts"]) == pytest.approx(document["cost_total"])
    chat = parts_of(document)["chat"]
    assert chat[1] == pytest.approx(chat[0] * 2 / 5)


def test_without_rows_of_the_key_the_section_to_add_is_named(costprobe):
    costprobe.append(row for row in rows(time.time_ns()) if row.measurement == "device")
    lines = costprobe("spend", "--by", "tenant").splitlines()
    assert "no tenant has a cost: tenants need [service.tenants]" in lines[-1]


def test_invalid_period_ends_with_exit_code_2(costprobe, stored):
    assert "must be before" in costprobe("spend", "--since", "1h", "--until", "2h", code=2)


def test_report_has_the_same_cost_of_tenants_in_every_format(costprobe, stored):
    (asked,) = json.loads(costprobe("spend", "--by", "tenant", "--since", "1d", "--json"))
    texts = {
        form: called(costprobe.config, "report", "--since", "1d", "--format", form).stdout
        for form in ("json", "md", "csv", "html")
    }
    (document,) = json.loads(texts["json"])["tenants"]
    assert parts_of(document) == {
        name: (pytest.approx(cost), idle, rest)
        for name, (cost, idle, rest) in parts_of(asked).items()
    }
    assert "## Cost of tenants\n" in texts["md"]
    assert "| search | 20.0 % | €20.00 | - |" in texts["md"]
    assert (
        '<th scope="row">search</th><td class="n">20.0 %</td><td class="n">€20.00' in texts["html"]
    )
    found = [line for line in csv.reader(texts["csv"].splitlines()) if line[0] == "tenant"]
    (saved,) = [row[4:] for row in found if row[2:4] == ["search", "cost_cache_saved"]]
    assert saved == ["5.0", "EUR"]
    costs = [row for row in found if row[3] == "cost"]
    assert {name: float(value) for _, _, name, _, value, _ in costs} == {
        "search": pytest.approx(20),
        "other": pytest.approx(10),
        "(unattributed)": pytest.approx(20),
        "(probing)": pytest.approx(10),
        "(unallocated)": pytest.approx(40),
    }
