"""A change of production cost is decomposed without a remainder, and its driver is named."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from costprobe.core.records import NS_PER_S, Point
from costprobe.drift.message import explanation
from costprobe.unit_costs.change import (
    ModelSums,
    ProductionSums,
    production_change,
    production_sums,
    spend_change,
)
from hypothesis import given, settings
from hypothesis import strategies as st

COUNT = st.just(0.0) | st.floats(1.0, 1e9)
MONEY = st.floats(1e-3, 1e4)


@st.composite
def models(draw):
    tokens_in, tokens_out = draw(st.floats(1.0, 1e9)), draw(COUNT)
    return ModelSums(
        tokens_in,
        tokens_in * draw(st.sampled_from([0.0, 0.3, 1.0])),
        tokens_out,
        draw(st.floats(1.0, 1e6)),
        draw(st.floats(1.0, 1e6)),
        draw(MONEY),
        draw(MONEY),
        draw(MONEY),
    )


@st.composite
def periods(draw):
    hardware, electricity = draw(MONEY), draw(st.just(0.0) | MONEY | MONEY.map(float.__neg__))
    device_s = draw(st.floats(10.0, 1e6))
    return ProductionSums(
        window_s=device_s,
        hardware=hardware,
        electricity=electricity,
        idle_cost=draw(st.none() | st.floats(0.0, 1.0).map((hardware + electricity).__mul__)),
        device_s=device_s,
        busy_s=draw(st.none() | st.floats(1e-3, 1.0).map(device_s.__mul__)),
        energy_j=draw(st.none() | st.floats(1.0, 1e9)),
        models=draw(st.dictionaries(st.sampled_from("abc"), models(), min_size=1)),
    )


@settings(max_examples=50)
@given(
    periods(),
    periods(),
    st.none() | st.floats(0.1, 10.0),
    st.floats(-1, 1),
)
def test_parts_sum_to_the_change(before, after, control, log_load):
    try:
        change = production_change(before, after, control=control, log_load=log_load)
    except ValueError:
        return
    assert math.fsum(change.parts.values()) == pytest.approx(change.log_ratio, rel=1e-9, abs=1e-9)
    assert math.fsum(change.drivers.values()) == pytest.approx(change.log_ratio, rel=1e-9, abs=1e-9)


USUAL = SimpleNamespace(
    price=2.0, devices=2, traffic=1.0, slower=1.0, busy_w=500.0, small=0.5, cached=0.2, output=1.0
)
WEIGHTS = {"small": 1.0, "large": 4.0}


def rows(hours=1, *, is_measured=True, **changes):
    """An hour of two devices at 2.00 an hour, busy half of the time, with a small and a large model."""
    script = SimpleNamespace(**{**vars(USUAL), **changes})
    held_s = 3600.0 * script.devices
    served = {}
    for model, weight in WEIGHTS.items():
        requests = 4000 * script.traffic * (script.small if model == "small" else 1 - script.small)
        tokens_in, tokens_out = 1000 * requests, 100 * requests * script.output
        cached = tokens_in * script.cached
        work = weight * (tokens_in - cached), weight * 8 * tokens_out
        served[model] = (requests, tokens_in, tokens_out, cached, *work)
    served[""] = tuple(map(sum, zip(*served.values(), strict=True)))
    whole = sum(served[""][4:])
    busy_s = whole * 2.25e-4 * script.slower
    idle_j, busy_j = 100.0 * (held_s - busy_s), script.busy_w * busy_s
    electricity, hardware = 1e-7 * (idle_j + busy_j), script.price * script.devices
    of_devices = {
        "cost_total": hardware + electricity,
        "cost_total_hardware": hardware,
        "cost_total_energy": electricity,
        "device_s": held_s,
        "energy_j": idle_j + busy_j,
    }
    if is_measured:
        idle = hardware * (1 - busy_s / held_s) + 1e-7 * idle_j
        of_devices |= {"device_busy_s": busy_s, "cost_idle": idle}
    made = []
    for model, (requests, tokens_in, tokens_out, cached, in_work, out_work) in served.items():
        share = (in_work + out_work) / whole
        fields = {name: share * value for name, value in of_devices.items()}
        for name, work in (("tokens_in", in_work), ("tokens_out", out_work)):
            fields[f"cost_{name}"] = of_devices["cost_total"] * work / whole
        fields |= {"requests": requests, "inferences": requests, "window_s": 3600.0}
        fields |= {"tokens_in": tokens_in, "tokens_out": tokens_out, "cached_tokens": cached}
        tags = {"service": "chat", "basis": "serving", "device": "gpu0+gpu1", "currency": "USD"}
        tags |= {"served_model": model} if model else {}
        made += [Point("cost", tags, fields, hour * 3600 * NS_PER_S) for hour in range(hours)]
    return made


def changed(control=None, **script):
    before, after = production_sums(rows()), production_sums(rows(**script))
    return production_change(before, after, control=control)


def test_single_change_is_named():
    cases = {
        "price": ({"price": 2.4}, "price", "hardware price"),
        "traffic": ({"traffic": 0.62}, "demand", "idle time"),
        "devices": ({"devices": 3}, "demand", "idle time"),
        "slower": ({"slower": 1.1, "traffic": 1 / 1.1}, "efficiency", "speed"),
        "power": ({"busy_w": 700.0}, "efficiency", "busy power"),
        "models": ({"small": 0.1, "traffic": 2.5 / 3.7}, "mix", "models"),
        "cache": ({"cached": 0.0, "traffic": 0.88}, "mix", "cached input"),
        "output": ({"output": 2.0, "traffic": 0.67}, "mix", "input and output"),
    }
    wrong = {}
    for name, (script, driver, part) in cases.items():
        change = changed(**script)
        largest = max(change.parts, key=lambda key, parts=change.parts: abs(parts[key]))
        others = [
            key for key, effect in change.parts.items() if key != largest and abs(effect) > 0.01
        ]
        if (change.driver, largest, others) != (driver, part, []):
            wrong[name] = change.driver, dict(change.parts)
    assert not wrong


def test_slower_devices_at_the_same_traffic_cost_the_same():
    """They are busier instead: the device-seconds are paid for in any case."""
    change = changed(slower=1.2)
    assert change.parts["speed"] == pytest.approx(-change.parts["idle time"], rel=0.1)
    assert abs(change.change_pct) < 2.0
    # What the load explains of it is no speed.
    before, after = production_sums(rows()), production_sums(rows(slower=1.2))
    parts = production_change(before, after, log_load=math.log(1.05)).parts
    assert parts["load"] == pytest.approx(math.log(1.05), rel=0.01)
    assert parts["speed"] + parts["load"] == pytest.approx(change.parts["speed"])


def test_sentence_names_control_traffic_and_idle_time():
    change = changed(traffic=0.62, control=1.004)
    assert change.change_pct == pytest.approx(59.2, abs=0.1)
    assert explanation(change) == (
        "probe unchanged, traffic 38 % lower: +59 % per token is idle time"
    )


def test_probe_is_the_speed_where_busy_time_is_unknown():
    change = changed(traffic=0.8, control=1.1, is_measured=False)
    assert change.parts["speed"] == pytest.approx(math.log(1.1), rel=0.05)
    assert change.driver == "demand"


def test_periods_without_a_ratio_are_errors():
    sums = production_sums(rows())
    idle = replace(sums, models={"": ModelSums()})
    with pytest.raises(ValueError, match="nothing was counted"):
        production_change(sums, idle)
    with pytest.raises(ValueError, match="currencies"):
        production_change(sums, replace(sums, currency="EUR"))


def test_change_of_spend_is_that_of_devices_and_prices_and_not_of_the_traffic():
    def sums(devices, hardware_per_h, tokens, electricity=0.0):
        names = tuple(f"gpu{index}" for index in range(devices))
        hardware = devices * hardware_per_h * 24
        done = {"": ModelSums(tokens, tokens_in_cost=hardware)}
        held_s, energy_j = devices * 86_400.0, 1e6 * electricity
        return ProductionSums(
            86_400.0, hardware, electricity, None, held_s, None, energy_j, done, names, "USD"
        )

    before = sums(4, 2.5, 1e9)
    months = {
        "one device less, more traffic": (sums(3, 2.5, 2e9), -2.5 * 730),
        "a lower price": (sums(4, 2.0, 1e9), -4 * 0.5 * 730),
        "both": (sums(3, 3.0, 1e9), (9 - 10) * 730),
        "more traffic": (sums(4, 2.5, 2e9), None),
    }
    for name, (after, month) in months.items():
        change = spend_change(before, after)
        assert month == (None if change is None else pytest.approx(change * 730 * 3600)), name
        assert production_change(before, after).spend_per_s == change
    assert spend_change(sums(4, 2.5, 1e9, 1.0), sums(4, 2.5, 1e9, 2.0)) is None
