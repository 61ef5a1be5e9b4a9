"""Energy and emissions of production: a service's share of its devices' electricity."""

from dataclasses import replace
from decimal import Decimal

import pytest
from costprobe.core.records import Energy
from costprobe.pricing.electricity import Emission
from costprobe.serving.allocation import Claim, DeviceBill, DeviceUse, allocate
from costprobe.serving.cost import service_cost
from costprobe.serving.meter import Counts, ServedWindow
from costprobe.serving.rows import window_points
from costprobe.serving.tokens import TokenWeighing, Weights

CHAT = Counts(requests=1000, tokens_in=500_000, tokens_out=250_000)
DRAWN = Energy(100_000.0, "counter", 0.05)
EMITTED = Emission(100.0, "flat")
# A tenth of the energy is that of probing.
SHARES = {"s": 0.9}


def served(bills, models=None, service="s"):
    use = DeviceUse("gpu", 300.0, Decimal(10), Decimal(10), claims=(Claim("s"),))
    known = {
        f"gpu{i}": DeviceBill(allocate(use), **{"energy_shares": SHARES, **bill})
        for i, bill in enumerate(bills)
    }
    window = ServedWindow(service, "vllm", 0, 300 * 10**9, models or {"m": CHAT})
    return service_cost(window, list(known), known, TokenWeighing(Weights(1.0, 6.0)))


def cost_rows(cost):
    return [row.fields for row in window_points(cost, {}) if row.measurement == "cost"]


def test_service_has_its_share_of_the_energy_of_its_device():
    (row,) = cost_rows(served([{"drawn": DRAWN}]))
    # Of 500,000 x 1 and 250,000 x 6 a quarter is the prompts'.
    found = {name: value for name, value in row.items() if name.startswith("energy")}
    assert found == {
        "energy_j": pytest.approx(90_000),
        "energy_tokens_in_j": pytest.approx(22_500),
        "energy_tokens_out_j": pytest.approx(67_500),
        "energy_per_inference_j": pytest.approx(90),
        "energy_per_request_j": pytest.approx(90),
        "energy_per_million_tokens_in_j": pytest.approx(22_500 / 0.5),
        "energy_per_million_tokens_out_j": pytest.approx(67_500 / 0.25),
        "energy_method": "counter",
        "energy_rel_err": 0.05,
    }


def test_energy_of_several_devices_has_the_worst_method_and_is_unknown_if_one_is():
    polled = Energy(300_000.0, "poll", 0.25, scope="parent", suspect=True)
    whole = served([{"drawn": DRAWN}, {"drawn": polled}]).total.drawn
    assert whole == Energy(
        pytest.approx(360_000), "poll", pytest.approx(0.2), scope="parent", suspect=True
    )
    for other in ({}, {"drawn": polled, "energy_shares": {}}):
        found = served([{"drawn": DRAWN, "emitted": EMITTED}, other])
        assert (found.total.drawn, found.total.emitted) == (None, None)
        (row,) = cost_rows(found)
        assert not any(name.startswith(("energy_", "carbon_")) for name in row)


def test_emissions_of_devices_are_summed():
    found = served([{"emitted": EMITTED}, {"emitted": Emission(300.0, "flat")}])
    (row,) = cost_rows(found)
    assert row["carbon_g"] == pytest.approx(360.0)
    assert row["carbon_per_inference_g"] == pytest.approx(0.36)
    assert (row["carbon_inferences"], row["carbon_method"]) == (1000, "flat")


def test_models_share_energy_and_emissions_like_the_cost():
    models = {"a": CHAT, "b": replace(CHAT, tokens_out=0)}
    _, a, b = cost_rows(served([{"drawn": DRAWN, "emitted": EMITTED}], models))
    assert (a["energy_j"], b["energy_j"]) == (pytest.approx(72_000), pytest.approx(18_000))
    assert (a["carbon_g"], b["carbon_g"]) == (pytest.approx(72), pytest.approx(18))
    assert b["energy_per_million_tokens_in_j"] == pytest.approx(36_000)
    assert b.get("energy_tokens_out_j") is None
