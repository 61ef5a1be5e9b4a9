"""Aggregation of the rows of a minute or an hour, field by field."""

import math

import pytest
from costprobe.adapters.store.hours import (
    NEVER_AGGREGATED,
    Cell,
    aggregate,
    decoded,
    encoded,
    kind_of,
    merge,
)
from costprobe.core.schema import SCHEMA, SERVING_SUMS
from hypothesis import given
from hypothesis import strategies as st

GAUGES = {"busy_share", "kv_cache_share", "requests_waiting"}
NO_TOTALS = (*GAUGES, "problem", "missing", "complete")
EXAMPLES = {float: 1.5, int: 1, str: "a", bool: True}


def fields_of_kind(kind):
    return {
        f"{name}.{field}"
        for name in SCHEMA
        if name not in NEVER_AGGREGATED
        for field, of_type in SCHEMA[name].fields.items()
        if kind_of(name, field, EXAMPLES[of_type]) == kind
    }


def test_totals_of_intervals_are_summed():
    assert fields_of_kind("sum") == {
        "software.probe_runs",
        "device.energy_j",
        "device.dram_energy_j",
        "device.cost",
        "device.carbon_g",
        "device.carbon_energy_j",
        "device.throttle_power_s",
        "device.throttle_thermal_s",
        "probe.samples",
        "probe.samples_delayed",
        "probe.outliers",
        "probe.requests",
        "probe.errors",
        *(f"cost.{name}" for name in (*SERVING_SUMS, "window_s")),
        *(f"serving.{name}" for name in SCHEMA["serving"].fields if name not in NO_TOTALS),
        *(f"allocation.{name}" for name in ("cost", "cost_hardware", "cost_energy")),
        *(f"tenant.{name}" for name in SCHEMA["tenant"].fields),
    }


def test_counters_settings_and_texts_keep_their_newest_value():
    windows = {
        f"cost.rolling_{w}{x}" for w in ("1h", "24h", "7d") for x in ("", "_iqr", "_coverage")
    }
    assert fields_of_kind("last") == windows | {
        "device.power_limit_w",
        "probe.power_limit_w",
        "device.ecc_uncorrected",
        "device.mem_total_bytes",
        "device.energy_method",
        "device.energy_scope",
        "device.carbon_method",
        "probe.ecc_uncorrected",
        "probe.threads",
        "probe.latency_spread",
        "probe.stop_reason",
        "probe.energy_method",
        "probe.energy_scope",
        "probe.fingerprint",
        "probe.token_source",
        "agent.instance",
        *(
            f"cost.{name}"
            for name in (
                "energy_method",
                "energy_scope",
                "carbon_method",
                "token_split",
                "model_split",
            )
        ),
        *(f"serving.{name}" for name in ("problem", "missing")),
        "agent.cpu_s",
        "agent.sent_points",
        "agent.dropped_points",
        "agent.late_jobs",
        "agent.child_restarts",
        *(f"budget.{name}" for name in SCHEMA["budget"].fields if "exceeded" not in name),
    }


def test_other_fields_are_means_medians_maxima_or_flags():
    assert fields_of_kind("mean") == {
        *(f"device.{name}_pct" for name in ("util", "mem_util")),
        *(f"device.{name}_clock_mhz" for name in ("sm", "mem")),
        "device.power_w",
        "device.temp_c",
        "device.mem_used_bytes",
        "device.price_rate_per_h",
        "agent.rss_bytes",
        "agent.outbox_points",
        "agent.outbox_lag_s",
        *(f"serving.{name}" for name in GAUGES),
        "watcher.every_s",
    }
    assert fields_of_kind("max") == {
        "device.power_max_w",
        "device.processes",
        "probe.temp_max_c",
    }
    assert fields_of_kind("any") == {
        "device.energy_suspect",
        "device.price_stale",
        "cost.energy_suspect",
        "cost.price_stale",
        "budget.exceeded",
        "budget.forecast_exceeded",
        "probe.cached",
        "cost.contended",
        "probe.contended",
        "probe.unsteady",
        "probe.energy_suspect",
    }
    assert fields_of_kind("all") == {"serving.complete"}
    medians = fields_of_kind("median")
    assert {"probe.latency_p50_ms", "cost.cost_per_inference"} <= medians
    assert {name.partition(".")[0] for name in medians} == {"probe", "cost"}


def test_device_rows_are_aggregated_to_one():
    rows = [
        {"power_w": 100.0, "power_max_w": 150.0, "energy_j": 1000.0, "processes": 1},
        {"power_w": 400.0, "power_max_w": 410.0, "processes": 3, "energy_method": "poll"},
        {"power_w": 100.0, "power_max_w": 120.0, "energy_j": 900.5, "energy_method": "counter"},
        {"mem_used_bytes": 10, "energy_suspect": True},
        {"mem_used_bytes": 13, "energy_suspect": False},
    ]
    assert aggregate("device", rows) == {
        "power_w": Cell(200.0, 3, 100.0, 400.0),
        "power_max_w": Cell(410.0, 3),
        "energy_j": Cell(1900.5, 2),
        "processes": Cell(3, 2),
        "energy_method": Cell("counter", 2),
        "mem_used_bytes": Cell(12, 2, 10, 13),
        "energy_suspect": Cell(value=True, rows=2),
    }


@pytest.mark.parametrize(("latencies", "median"), [([9.0, 1.0, 2.0], 2.0), ([4.0, 1.0], 2.5)])
def test_probe_samples_are_aggregated_to_their_median(latencies, median):
    aggregated = aggregate("probe", [{"latency_p50_ms": latency} for latency in latencies])
    assert aggregated == {
        "latency_p50_ms": Cell(median, len(latencies), min(latencies), max(latencies))
    }


def test_aggregate_is_complete_if_all_rows_were():
    rows = [{"complete": True}, {"complete": False}]
    assert aggregate("serving", rows) == {"complete": Cell(value=False, rows=2)}
    whole, part = aggregate("serving", rows[:1]), aggregate("serving", rows[1:])
    assert merge("serving", part, whole) == {"complete": Cell(value=False, rows=2)}
    assert merge("serving", whole, whole) == {"complete": Cell(value=True, rows=2)}


def test_ratios_of_production_are_ratios_of_sums():
    """Three windows of 6.00 by hand: 8 requests, none, and 4; half of the tokens' cost is for input."""
    windows = [
        {"requests": 8.0, "cost_idle": 1.0, "tokens_in": 4e6, "in": 4.0, "out": 2.0},
        {"requests": 0.0, "cost_idle": 6.0, "tokens_in": 0.0, "in": 0.0, "out": 0.0},
        {"requests": 4.0, "cost_idle": 3.0, "tokens_in": 2e6, "in": 2.0, "out": 4.0},
    ]
    rows = []
    for one in windows:
        tokens = {"cost_tokens_in": one.pop("in"), "cost_tokens_out": one.pop("out")}
        row = {"cost_total": 6.0, "idle_share": one["cost_idle"] / 6, **one, **tokens}
        if one["requests"]:
            row["cost_per_request"] = 6.0 / one["requests"]
            row["cost_per_million_tokens_in"] = row["cost_tokens_in"] / one["tokens_in"] * 1e6
        rows.append(row)
    wanted = {
        "cost_per_request": 18.0 / 12,
        "cost_per_million_tokens_in": 18.0 * 6 / 12 / 6,
        "idle_share": 10 / 18,
    }
    whole = aggregate("cost", rows)
    parts = merge("cost", aggregate("cost", rows[:1]), aggregate("cost", rows[1:]))
    for found in (whole, parts):
        assert {name: found[name].value for name in wanted} == pytest.approx(wanted)
        assert found["cost_per_request"].high == 1.5
    # A row that cannot be divided keeps the median of its windows.
    assert aggregate("cost", [{"cost_per_request": 2.0}])["cost_per_request"].value == 2.0


def test_field_that_changed_its_type_is_aggregated_by_its_last_type():
    assert aggregate("device", [{"a": "x"}, {"a": 2.0}, {"a": 4.0}])["a"] == Cell(3.0, 2, 2.0, 4.0)
    older, newer = aggregate("device", [{"a": "x"}]), aggregate("device", [{"a": 4.0}])
    assert merge("device", older, newer)["a"] == Cell(4.0, 2)


def test_sum_beyond_float_range_is_absent():
    assert aggregate("device", [{"energy_j": 1e308, "power_w": 1e308}] * 3).keys() == {"power_w"}


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "power_w": st.floats(-1e9, 1e9),
        "power_max_w": st.floats(-1e9, 1e9),
        "energy_j": st.floats(0, 1e9),
        "mem_used_bytes": st.integers(0, 2**40),
        "energy_method": st.text(max_size=3),
        "energy_suspect": st.booleans(),
        "throttle_power_s": st.just(0.0),
    },
)


@given(st.lists(FIELDS, min_size=1, max_size=30), st.data())
def test_hour_from_minutes_equals_hour_from_rows(rows, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, len(rows)), max_size=4)))
    hour = {}
    for since, until in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        hour = merge("device", hour, aggregate("device", rows[since:until]))
    at_once = aggregate("device", rows)
    assert hour.keys() == at_once.keys()
    for name, expected in at_once.items():
        cell = hour[name]
        assert cell.rows == expected.rows
        if isinstance(expected.value, float | int):
            low, high = expected.low, expected.high
            width = 1.0 if low is None else max(abs(low), abs(high), 1.0)
            slack = 1e-5 * width
            if isinstance(low, int):
                # A mean of integers is rounded at each aggregation, by up to 0.5 per step.
                slack = max(slack, 0.5 * (len(cuts) + 2))
            assert math.isclose(cell.value, expected.value, rel_tol=1e-9, abs_tol=slack)
        else:
            assert cell.value == expected.value
        assert (cell.low, cell.high) == (expected.low, expected.high)


@given(st.lists(FIELDS, min_size=1, max_size=5))
def test_encoded_cells_round_trip(rows):
    cells = aggregate("device", rows)
    names = sorted(cells)
    read = decoded(encoded(cells, names, len(rows)), names, len(rows))
    for name, cell in cells.items():
        # The range of a single value is not stored.
        ranged = cell.low is not None and not cell.low == cell.high == cell.value
        assert read[name] == (cell if ranged else Cell(cell.value, cell.rows))
