"""Emissions of serving: its share of the devices' electricity, including idle time."""

from decimal import Decimal

import pytest
from costprobe.pricing.electricity import Emission
from costprobe.serving.allocation import Claim, DeviceUse, allocate
from costprobe.serving.cost import energy_shares, served_emission, service_cost
from costprobe.serving.meter import Counts, ServedWindow
from costprobe.serving.rows import serving_cost_points
from costprobe.serving.tokens import TokenWeighing
from hypothesis import given
from hypothesis import strategies as st

MODELS = {
    "a": Counts(requests=1, inferences=10, compute_s=30.0),
    "b": Counts(requests=100, inferences=100, compute_s=10.0),
}
# 30 s of 300 s are probing; electricity costs as much as holding the device.
USE = {"duration_s": 300.0, "probing_s": 30.0, "hardware": Decimal(10), "energy": Decimal(10)}


def served(devices, *claims, models=None, probing_j=None, **use):
    uses = {name: DeviceUse(name, claims=claims, **{**USE, **use}) for name in devices}
    allocations = {name: allocate(one) for name, one in uses.items()}
    window = ServedWindow("s", "vllm", 0, 300 * 10**9, models or {"": Counts(requests=50)})
    shares = {name: energy_shares(one, 1000.0, probing_j) for name, one in uses.items()}
    return service_cost(window, devices, allocations, TokenWeighing()), shares


def test_service_is_allocated_emissions_except_probing():
    cost, shares = served(["gpu0"], Claim("s"))
    found = served_emission(cost, shares, {"gpu0": Emission(100.0, "flat")})
    assert found.service.g == pytest.approx(90.0)
    assert found.service.method == "flat"
    (row,) = serving_cost_points(cost, "owned", "USD", {}, {}, 0, emitted=found)
    assert row.fields["carbon_per_inference_g"] == pytest.approx(90.0 / 50)
    assert row.fields["carbon_method"] == "flat"


def test_measured_probing_energy_is_allocated_to_no_service():
    cost, shares = served(["gpu0"], Claim("s"), probing_j=400.0)
    found = served_emission(cost, shares, {"gpu0": Emission(100.0, "series")})
    assert found.service.g == pytest.approx(60.0)


def test_with_electricity_included_the_share_of_the_device_applies():
    cost, shares = served(["gpu0"], Claim("s", share=0.5), energy=Decimal(0))
    found = served_emission(cost, shares, {"gpu0": Emission(100.0, "flat")})
    assert found.service.g == pytest.approx(45.0)


def test_emissions_of_devices_are_summed_and_split_by_model():
    cost, shares = served(["gpu0", "gpu1"], Claim("s"), models=MODELS)
    emitted = {"gpu0": Emission(100.0, "flat"), "gpu1": Emission(300.0, "flat")}
    found = served_emission(cost, shares, emitted)
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


def test_unknown_emissions_of_one_device_make_the_total_unknown():
    cost, shares = served(["gpu0", "gpu1"], Claim("s"))
    emitted = {"gpu0": Emission(100.0, "flat"), "gpu1": None}
    assert served_emission(cost, shares, emitted) is None
    (row,) = serving_cost_points(cost, "owned", "USD", {}, {}, 0)
    assert "carbon_per_inference_g" not in row.fields
    assert served_emission(served(["gpu0"], Claim("other"), Claim("s"))[0], {}, {}) is None


@given(st.floats(0, 149), st.lists(st.floats(0.01, 0.4), min_size=1, max_size=2))
def test_no_emission_is_allocated_twice(probing_s, shares):
    claims = [Claim(f"s{i}", share=share) for i, share in enumerate(shares)]
    use = DeviceUse("gpu0", claims=tuple(claims), **{**USE, "probing_s": probing_s})
    allocations = {"gpu0": allocate(use)}
    total = 0.0
    for claim in claims:
        window = ServedWindow(claim.service, "vllm", 0, 1, {"": Counts(requests=1)})
        cost = service_cost(window, ["gpu0"], allocations, TokenWeighing())
        emitted = {"gpu0": Emission(100.0, "flat")}
        shares = {"gpu0": energy_shares(use, 1000.0, None)}
        total += served_emission(cost, shares, emitted).service.g
    assert total <= 100.0 + 1e-9
