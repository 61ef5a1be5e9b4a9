"""`costprobe spend` on stored rows whose sums are known."""

import json
import time
from dataclasses import replace
from typing import get_args

import pytest
from costprobe.core.schema import make_point
from costprobe.spend.query import Key
from fakes.cli import same

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


def test_lines_of_each_key_with_what_a_cache_answered_and_saved(costprobe, stored):
    tables = [
        costprobe("spend", "--by", key, "--since", "1d").splitlines() for key in get_args(Key)
    ]
    same("spend", "\n".join(line for table in tables for line in table[1:]) + "\n")


# Electricity below zero may make every cost negative.
@pytest.mark.parametrize("stored", [1, -1], indirect=True)
def test_lines_of_each_key_add_up_to_the_devices(costprobe, stored):
    """The lines themselves are recorded."""
    for key in get_args(Key):
        (document,) = costprobe.json("spend", "--by", key, "--since", "1d")
        parts = document["parts"]
        total = sum(part["cost"] for part in parts)
        assert total == pytest.approx(document["cost_total"], rel=1e-12)
        assert total == pytest.approx(stored * 100)
        assert all(part["cost"] * stored > 0 for part in parts), (key, parts)
        assert (document["by"], document["currency"]) == (key, "EUR")


def test_parts_at_the_edge_of_the_period_are_reduced_to_the_devices_cost(costprobe, stored):
    # The windows of the last hour, of which the period contains 30 minutes of the devices.
    (document,) = json.loads(costprobe("spend", "--by", "service", "--since", "30m", "--json"))
    assert document["cost_total"] < 10
    assert sum(part["cost"] for part in document["parts"]) == pytest.approx(document["cost_total"])
    (chat,) = [part for part in document["parts"] if part["name"] == "chat"]
    assert chat["cost_idle"] == pytest.approx(chat["cost"] * 2 / 5)


def test_rest_of_the_server_is_shown_apart(costprobe, stored):
    """36 kJ a minute at 0.36 a kWh, in half of the minutes of the last two hours."""
    now_ns = time.time_ns()
    known = {"others_energy_j": 36_000.0, "others_window_s": 60.0, "cost_others": 0.0036}
    costprobe.append(
        make_point("server", HOST, {"energy_j": 72_000.0, **(known if minute % 2 else {})}, at_ns)
        for minute, at_ns in enumerate(range(now_ns - 7199 * S, now_ns, 60 * S))
    )
    line = costprobe("spend", "--since", "2h").splitlines()[-1]
    assert line == (
        "server besides its devices, in none of the lines above: 0.6 kWh, €0.216 of electricity;"
        " 50 % of the time covered"
    )
    report = costprobe("report", "--since", "2h", "--format", "md")
    assert line.partition(";")[0] in report
    (document,) = costprobe.json("spend", "--since", "2h")
    others = document["server_others"]
    assert others["energy_j"] == pytest.approx(60 * 36_000)
    assert (others["coverage"], others["cost"]) == pytest.approx((0.5, 0.216), rel=1e-3)


def test_without_rows_of_the_key_the_section_to_add_is_named(costprobe):
    costprobe.append(row for row in rows(time.time_ns()) if row.measurement == "device")
    lines = costprobe("spend", "--by", "tenant").splitlines()
    assert "no tenant has a cost: tenants need [service.tenants]" in lines[-1]


def test_models_cost_what_their_services_do_whatever_windows_have_counts(costprobe):
    """In every second window nothing was counted: it has a cost, and no row of `cost`."""
    now_ns = time.time_ns()
    costprobe.append(
        row
        for row in sorted(rows(now_ns), key=lambda row: row.time_ns)
        if row.measurement != "cost" or (now_ns - row.time_ns) // (3600 * S) % 2
    )
    found = {key: costprobe.json("spend", "--by", key, "--since", "1d") for key in get_args(Key)}
    ((of_services,), (of_models,)) = found["service"], found["model"]
    costs = {part["name"]: (part["cost"], part["cost_idle"]) for part in of_models["parts"]}
    # Their shares of what was counted: of working time 2, 1 and 0 of 3, of idle time 1, 0.5 and 0.5 of 2.
    assert {name: costs[name] for name in ("a", "b", "chat", "train")} == {
        "a": pytest.approx((30, 10)),
        "b": pytest.approx((15, 5)),
        "chat": pytest.approx((5, 5)),
        "train": (15, None),
    }
    assert of_services["parts"][-1]["cost"] == pytest.approx(of_models["parts"][-1]["cost"])
