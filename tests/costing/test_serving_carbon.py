"""What serving emits: the part of its devices' electricity that it bears, idle time included."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.costing.allocation import Claim, DeviceUse, allocate
from agent.costing.carbon import Emission
from agent.costing.served import Counts, ServedWindow
from agent.costing.serving_basis import Weights, service_cost
from agent.costing.serving_carbon import served_emission
from agent.costing.serving_points import serving_cost_points

MODELS = {
    "a": Counts(requests=1, inferences=10, compute_s=30.0),
    "b": Counts(requests=100, inferences=100, compute_s=10.0),
}
# 30 s of 300 s are probing; electricity costs as much as holding the device.
USE = {"duration_s": 300.0, "probing_s": 30.0, "hardware": Decimal(10), "energy": Decimal(10)}


def served(devices, *claims, models=None, **use):
    uses = {name: DeviceUse(name, claims=claims, **{**USE, **use}) for name in devices}
    allocations = {name: allocate(one) for name, one in uses.items()}
    window = ServedWindow("s", "vllm", 0, 300 * 10**9, models or {"": Counts(requests=50)})
    return service_cost(window, devices, allocations, Weights()), allocations


def test_a_service_bears_what_probing_leaves():
    cost, allocations = served(["gpu0"], Claim("s"))
    found = served_emission(cost, allocations, {"gpu0": Emission(100.0, "flat")})
    assert found.service.g == pytest.approx(90.0)
    assert found.service.method == "flat"
    (row,) = serving_cost_points(cost, "owned", "USD", {}, {}, 0, emitted=found)
    assert row.fields["carbon_per_inference_g"] == pytest.approx(90.0 / 50)
    assert row.fields["carbon_method"] == "flat"


def test_measured_energy_of_probing_is_no_services():
    cost, allocations = served(["gpu0"], Claim("s"), probing_energy=Decimal(4))
    found = served_emission(cost, allocations, {"gpu0": Emission(100.0, "series")})
    assert found.service.g == pytest.approx(60.0)


def test_where_electricity_is_in_the_price_the_part_is_that_of_the_device():
    cost, allocations = served(["gpu0"], Claim("s", share=0.5), energy=Decimal(0))
    found = served_emission(cost, allocations, {"gpu0": Emission(100.0, "flat")})
    assert found.service.g == pytest.approx(45.0)


def test_several_devices_are_added_and_models_add_up_to_them():
    cost, allocations = served(["gpu0", "gpu1"], Claim("s"), models=MODELS)
    emitted = {"gpu0": Emission(100.0, "flat"), "gpu1": Emission(300.0, "flat")}
    found = served_emission(cost, allocations, emitted)
    assert found.service.g == pytest.approx(360.0)
    assert {name: each.g for name, each in found.models.items()} == {
        "a": pytest.approx(270.0),
        "b": pytest.approx(90.0),
    }
    rows = serving_cost_points(cost, "owned", "USD", {}, {}, 0, emitted=found)
    assert [row.fields["carbon_per_inference_g"] for row in rows] == [
        pytest.approx(360.0 / 110),
        pytest.approx(27.0),
        pytest.approx(0.9),
    ]


def test_one_device_that_is_not_known_leaves_none():
    cost, allocations = served(["gpu0", "gpu1"], Claim("s"))
    emitted = {"gpu0": Emission(100.0, "flat"), "gpu1": None}
    assert served_emission(cost, allocations, emitted) is None
    (row,) = serving_cost_points(cost, "owned", "USD", {}, {}, 0)
    assert "carbon_per_inference_g" not in row.fields
    assert served_emission(served(["gpu0"], Claim("other"), Claim("s"))[0], {}, {}) is None


@given(st.floats(0, 149), st.lists(st.floats(0.01, 0.4), min_size=1, max_size=2))
def test_no_gram_is_borne_twice(probing_s, shares):
    claims = [Claim(f"s{i}", share=share) for i, share in enumerate(shares)]
    use = DeviceUse("gpu0", claims=tuple(claims), **{**USE, "probing_s": probing_s})
    allocations = {"gpu0": allocate(use)}
    total = 0.0
    for claim in claims:
        window = ServedWindow(claim.service, "vllm", 0, 1, {"": Counts(requests=1)})
        cost = service_cost(window, ["gpu0"], allocations, Weights())
        emitted = {"gpu0": Emission(100.0, "flat")}
        total += served_emission(cost, allocations, emitted).service.g
    assert total <= 100.0 + 1e-9
