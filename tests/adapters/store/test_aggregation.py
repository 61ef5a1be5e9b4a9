"""Aggregation of the rows of an hour, field by field."""

import math

import pytest
from costprobe.adapters.store.hours import (
    HIGH,
    LOW,
    NEVER_AGGREGATED,
    ROWS,
    Part,
    aggregate,
    kind_of,
    values_of,
)
from costprobe.core.line_protocol import field_set, parse_field_set
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


def one(measurement, rows):
    """The fields of some rows as one."""
    return aggregate(measurement, [Part(n, 1, fields) for n, fields in enumerate(rows)])


def both(measurement, older, newer):
    """The fields of two parts of an hour as one: the rows of each, and their fields as one."""
    parts = ((rows, one(measurement, rows)) for rows in (older, newer))
    return aggregate(measurement, [Part(n, len(r), found) for n, (r, found) in enumerate(parts)])


def test_names_of_ranges_are_of_no_field():
    names = {field for of in SCHEMA.values() for field in of.fields}
    assert values_of(dict.fromkeys(names, 1.0)).keys() == names


def test_device_rows_are_aggregated_to_one():
    rows = [
        {"power_w": 100.0, "power_max_w": 150.0, "energy_j": 1000.0, "processes": 1},
        {"power_w": 400.0, "power_max_w": 410.0, "processes": 3, "energy_method": "poll"},
        {"power_w": 100.0, "power_max_w": 120.0, "energy_j": 900.5, "energy_method": "counter"},
        {"mem_used_bytes": 10, "energy_suspect": True},
        {"mem_used_bytes": 13, "energy_suspect": False},
    ]
    found = one("device", rows)
    assert values_of(found) == {
        "power_w": 200.0,
        "power_max_w": 410.0,
        "energy_j": 1900.5,
        "processes": 3,
        "energy_method": "counter",
        "mem_used_bytes": 12,
        "energy_suspect": True,
    }
    assert {name: found[name] for name in found.keys() - values_of(found).keys()} == {
        "power_w_min": 100.0,
        "power_w_max": 400.0,
        "mem_used_bytes_min": 10,
        "mem_used_bytes_max": 13,
        **{f"power{which}_rows": 3 for which in ("_w", "_max_w")},
        **dict.fromkeys(("energy_j_rows", "processes_rows", "energy_method_rows"), 2),
        **dict.fromkeys(("mem_used_bytes_rows", "energy_suspect_rows"), 2),
    }


@pytest.mark.parametrize(("latencies", "median"), [([9.0, 1.0, 2.0], 2.0), ([4.0, 1.0], 2.5)])
def test_probe_samples_are_aggregated_to_their_median(latencies, median):
    assert one("probe", [{"latency_p50_ms": latency} for latency in latencies]) == {
        "latency_p50_ms": median,
        "latency_p50_ms_min": min(latencies),
        "latency_p50_ms_max": max(latencies),
    }


def test_a_late_sample_is_added_to_a_median_by_the_number_of_its_rows():
    hour = Part(9, 3, {"latency_p50_ms": 2.0, "latency_p50_ms_min": 1.0, "latency_p50_ms_max": 9.0})
    found = aggregate("probe", [Part(1, 1, {"latency_p50_ms": 10.0}), hour])
    assert found == {"latency_p50_ms": 4.0, "latency_p50_ms_min": 1.0, "latency_p50_ms_max": 10.0}


def test_aggregate_is_complete_if_all_rows_were():
    rows = [{"complete": True}, {"complete": False}]
    assert one("serving", rows) == {"complete": False}
    assert both("serving", rows[1:], rows[:1]) == {"complete": False}
    assert both("serving", rows[:1], rows[:1]) == {"complete": True}


def test_ratios_of_production_are_ratios_of_sums():
    """Three windows of 6.00 by hand: 8 requests, none, and 4; half of the tokens' cost is for input."""
    windows = [
        {"requests": 8.0, "cost_idle": 1.0, "tokens_in": 4e6, "in": 4.0, "out": 2.0},
        {"requests": 0.0, "cost_idle": 6.0, "tokens_in": 0.0, "in": 0.0, "out": 0.0},
        {"requests": 4.0, "cost_idle": 3.0, "tokens_in": 2e6, "in": 2.0, "out": 4.0},
    ]
    rows = []
    for window in windows:
        tokens = {"cost_tokens_in": window.pop("in"), "cost_tokens_out": window.pop("out")}
        row = {"cost_total": 6.0, "idle_share": window["cost_idle"] / 6, **window, **tokens}
        if window["requests"]:
            row["cost_per_request"] = 6.0 / window["requests"]
            row["cost_per_million_tokens_in"] = row["cost_tokens_in"] / window["tokens_in"] * 1e6
        rows.append(row)
    wanted = {
        "cost_per_request": 18.0 / 12,
        "cost_per_million_tokens_in": 18.0 * 6 / 12 / 6,
        "idle_share": 10 / 18,
    }
    for found in (one("cost", rows), both("cost", rows[:1], rows[1:])):
        assert {name: found[name] for name in wanted} == pytest.approx(wanted)
        assert found["cost_per_request_max"] == 1.5
    # A row that cannot be divided keeps the median of its windows.
    assert one("cost", [{"cost_per_request": 2.0}])["cost_per_request"] == 2.0


def test_field_that_changed_its_type_is_aggregated_by_its_last_type():
    found = {"a": 3.0, "a_min": 2.0, "a_max": 4.0, "a_rows": 2}
    assert one("device", [{"a": "x"}, {"a": 2.0}, {"a": 4.0}]) == found
    assert both("device", [{"a": "x"}], [{"a": 4.0}]) == {"a": 4.0, "a_rows": 1}


def test_sum_beyond_float_range_is_absent():
    found = one("device", [{"energy_j": 1e308, "power_w": 1e308}] * 3)
    assert parse_field_set(field_set(found)).keys() == {"power_w"}


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "power_w": st.floats(-1e9, 1e9),
        "power_max_w": st.floats(-1e9, 1e9),
        "energy_j": st.floats(0, 1e9),
        "mem_used_bytes": st.integers(0, 2**40),
        "energy_method": st.sampled_from(["counter", "poll"]),
        "energy_suspect": st.booleans(),
        "throttle_power_s": st.just(0.0),
    },
)


@given(st.lists(FIELDS, min_size=1, max_size=30), st.data())
def test_hour_from_its_parts_equals_hour_from_rows(rows, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, len(rows)), max_size=4)))
    parts = []
    for since, until in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        if since < until:
            text = field_set(one("device", rows[since:until]))
            parts.append(Part(until, until - since, parse_field_set(text)))
    hour = aggregate("device", parts)
    at_once = one("device", rows)
    assert values_of(hour).keys() == values_of(at_once).keys()
    for name, expected in values_of(at_once).items():
        assert hour.get(name + ROWS) == at_once.get(name + ROWS)
        low, high = at_once.get(name + LOW, expected), at_once.get(name + HIGH, expected)
        assert (hour.get(name + LOW), hour.get(name + HIGH)) == tuple(
            at_once.get(name + which) for which in (LOW, HIGH)
        )
        if isinstance(expected, bool | str):
            assert hour[name] == expected
            continue
        slack = 1e-5 * max(abs(low), abs(high), 1.0)
        if isinstance(low, int):
            # A mean of integers is rounded at each aggregation, by up to 0.5 per step.
            slack = max(slack, 0.5 * (len(cuts) + 2))
        assert math.isclose(hour[name], expected, rel_tol=1e-9, abs_tol=slack)
