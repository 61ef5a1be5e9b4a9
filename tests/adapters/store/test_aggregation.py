"""Aggregation of the rows of an hour, field by field."""

import json
import math
from pathlib import Path

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
from costprobe.core.schema import SCHEMA, SERVING_RATIOS
from fakes.rows import as_known
from hypothesis import given
from hypothesis import strategies as st
from record.record_files import check_outcomes

EXAMPLES = {float: 1.5, int: 1, str: "a", bool: True}


def test_each_field_is_aggregated_as_recorded():
    """The kinds of aggregation, each with its fields: of the table in `hours`, and by their types."""
    found = {}
    for name in SCHEMA.keys() - NEVER_AGGREGATED:
        for field, of_type in SCHEMA[name].fields.items():
            found.setdefault(kind_of(name, field, EXAMPLES[of_type]), []).append(f"{name}.{field}")
    found = {kind: sorted(fields) for kind, fields in found.items()}
    assert found == json.loads(Path(__file__).with_name("aggregation.json").read_text())


def one(measurement, rows):
    """The fields of some rows as one."""
    return aggregate(measurement, [Part(n, 1, fields) for n, fields in enumerate(rows)])


def both(measurement, older, newer):
    """The fields of two parts of an hour as one: the rows of each, and their fields as one."""
    parts = ((rows, one(measurement, rows)) for rows in (older, newer))
    return aggregate(measurement, [Part(n, len(r), found) for n, (r, found) in enumerate(parts)])


def test_rows_are_aggregated_to_one():
    """Device rows that lack fields, an even number of runs, a field that changed its type; see `record_files`."""
    check_outcomes("aggregated_rows.json", lambda text: one(*json.loads(text)))
    assert both("device", [{"a": "x"}], [{"a": 4.0}]) == {"a": 4.0, "a_rows": 1}


def test_a_late_sample_is_added_to_a_median_by_the_number_of_its_rows():
    hour = Part(9, 3, {"latency_p50_ms": 2.0, "latency_p50_ms_min": 1.0, "latency_p50_ms_max": 9.0})
    found = aggregate("probe", [Part(1, 1, {"latency_p50_ms": 10.0}), hour])
    assert found == {"latency_p50_ms": 4.0, "latency_p50_ms_min": 1.0, "latency_p50_ms_max": 10.0}


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
        row = as_known(
            {"cost_total": 6.0, "idle_share": window["cost_idle"] / 6, **window, **tokens}
        )
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


def test_sums_of_an_hour_divide_although_some_windows_lack_energy_and_idle_time():
    """Of two windows of 10 requests one has them: 600 J, and half of a cost of 1."""
    known = {"cost_total": 1.0, "requests": 10.0, "cost_idle": 0.5, "energy_j": 600.0}
    own = {"energy_per_request_j": 60.0, "idle_share": 0.5}
    hour = one("cost", [as_known({**known, **own}), {"cost_total": 1.0, "requests": 10.0}])
    for name, wanted in own.items():
        assert (hour[name], SERVING_RATIOS[name].of(hour)) == (wanted, wanted)
