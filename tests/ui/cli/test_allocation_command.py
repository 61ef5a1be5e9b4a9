"""`costprobe spend` on stored rows whose sums are known."""

from dataclasses import replace
from typing import get_args

import pytest
from costprobe.core.schema import make_point
from costprobe.spend.query import Key
from fakes.cli import NOW_S, Cli, session, stopped_clock

S = 1_000_000_000
NOW_NS = NOW_S * S
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


def rows():
    for hour in reversed(range(HOURS)):
        time_ns = NOW_NS - hour * 3600 * S
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
def stored(tmp_path):
    """A host with these rows, at their end."""
    cli = Cli(tmp_path)

    def store(found):
        cli.append(found)
        return cli

    with stopped_clock():
        yield store


def test_lines_of_each_key_with_what_a_cache_answered_and_saved(stored):
    """Also of the windows of the last hour, of which the period contains 30 minutes of the devices."""
    session("spend", stored(rows()).config)


# Electricity below zero may make every cost negative.
@pytest.mark.parametrize("sign", [1, -1])
def test_lines_of_each_key_add_up_to_the_devices(stored, sign):
    costprobe = stored(
        replace(row, fields={name: sign * cost for name, cost in row.fields.items()})
        for row in rows()
    )
    for key in get_args(Key):
        (document,) = costprobe.json("spend", "--by", key, "--since", "1d")
        costs = [part["cost"] for part in document["parts"]]
        assert sum(costs) == pytest.approx(document["cost_total"], rel=1e-12)
        assert sum(costs) == pytest.approx(sign * 100)
        assert all(cost * sign > 0 for cost in costs), (key, costs)


def test_rest_of_the_server_is_shown_apart(stored):
    """36 kJ a minute at 0.36 a kWh, in half of the minutes of the last two hours."""
    known = {"others_energy_j": 36_000.0, "others_window_s": 60.0, "cost_others": 0.0036}
    costprobe = stored(rows())
    costprobe.append(
        make_point("server", HOST, {"energy_j": 72_000.0, **(known if minute % 2 else {})}, at_ns)
        for minute, at_ns in enumerate(range(NOW_NS - 7199 * S, NOW_NS, 60 * S))
    )
    session("spend_server", costprobe.config)
    rest = "server besides its devices, in none of the lines above: 0.6 kWh, €0.216 of electricity"
    assert rest in costprobe("report", "--since", "2h", "--format", "md")


def test_without_rows_of_the_key_the_section_to_add_is_named(stored):
    costprobe = stored(row for row in rows() if row.measurement == "device")
    words = "no tenant has a cost: tenants need [service.tenants]"
    assert words in costprobe("spend", "--by", "tenant")


def test_models_cost_what_their_services_do_whatever_windows_have_counts(stored):
    """In every second window nothing was counted: it has a cost, and no row of `cost`."""
    costprobe = stored(
        row
        for row in rows()
        if row.measurement != "cost" or (NOW_NS - row.time_ns) // (3600 * S) % 2
    )
    (of_services,) = costprobe.json("spend", "--since", "1d")
    (of_models,) = costprobe.json("spend", "--by", "model", "--since", "1d")
    costs = {part["name"]: (part["cost"], part["cost_idle"]) for part in of_models["parts"]}
    # Their shares of what was counted: of working time 2, 1 and 0 of 3, of idle time 1, 0.5 and 0.5 of 2.
    assert {name: costs[name] for name in ("a", "b", "chat", "train")} == {
        "a": pytest.approx((30, 10)),
        "b": pytest.approx((15, 5)),
        "chat": pytest.approx((5, 5)),
        "train": (15, None),
    }
    assert of_services["parts"][-1]["cost"] == pytest.approx(of_models["parts"][-1]["cost"])
