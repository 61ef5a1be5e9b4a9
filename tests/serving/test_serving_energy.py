"""Energy of production: a service's share of its devices' energy, per request and per token."""

from dataclasses import replace
from decimal import Decimal

import pytest
from costprobe.core.records import Energy
from costprobe.serving.allocation import Claim, DeviceUse, allocate
from costprobe.serving.cost import energy_shares, served_energy, service_cost, service_energy
from costprobe.serving.meter import Counts, ServedWindow
from costprobe.serving.rows import serving_cost_points
from costprobe.serving.tokens import TokenWeighing, Weights

CHAT = Counts(requests=1000, tokens_in=500_000, tokens_out=250_000)
# A tenth of the window is probing.
USE = {"duration_s": 300.0, "probing_s": 30.0, "hardware": Decimal(10), "energy": Decimal(10)}
DRAWN = Energy(100_000.0, "counter", 0.05)


def served(devices, *claims, models=None, probing_j=None, **use):
    uses = {name: DeviceUse(name, claims=claims, **{**USE, **use}) for name in devices}
    allocations = {name: allocate(one) for name, one in uses.items()}
    window = ServedWindow("s", "vllm", 0, 300 * 10**9, models or {"m": CHAT})
    cost = service_cost(window, devices, allocations, TokenWeighing(Weights(1.0, 6.0)))
    shares = {name: energy_shares(one, DRAWN.energy_j, probing_j) for name, one in uses.items()}
    return cost, shares


def test_service_has_the_energy_of_its_device_except_probing():
    cost, shares = served(["gpu0"], Claim("s"))
    whole = service_energy(cost, shares, {"gpu0": DRAWN})
    assert (whole.energy_j, whole.method, whole.rel_err) == (pytest.approx(90_000), "counter", 0.05)
    found = served_energy(cost.total, whole)
    # Of 500,000 x 1 and 250,000 x 6 a quarter is the prompts'.
    assert found.per_request_j == pytest.approx(90)
    assert found.per_million_tokens_in_j == pytest.approx(22_500 / 0.5)
    assert found.per_million_tokens_out_j == pytest.approx(67_500 / 0.25)
    (row,) = serving_cost_points(cost, "owned", "USD", {}, {}, 0, drawn=whole)
    for name, value in found.figures().items():
        assert row.fields[name] == value
    assert (row.fields["energy_method"], row.fields["energy_rel_err"]) == ("counter", 0.05)
    (row,) = serving_cost_points(cost, "owned", "USD", {}, {}, 0)
    assert not any(name.startswith("energy") for name in row.fields)


def test_energy_is_divided_like_the_cost_whatever_the_price():
    free = {"hardware": Decimal(0), "energy": Decimal(0)}
    cases = (
        (Claim("s", share=0.5), {"energy": Decimal(0)}, 45_000),
        (Claim("s"), free, 90_000),
        (Claim("s"), {**free, "probing_j": 40_000.0}, 60_000),
        (Claim("s"), {"probing_j": 40_000.0}, 60_000),
        (Claim("s", busy_s=90.0), {"other_busy_s": 30.0}, 67_500),
    )
    wrong = []
    for claim, use, energy_j in cases:
        cost, shares = served(["gpu0"], claim, **use)
        found = service_energy(cost, shares, {"gpu0": DRAWN}).energy_j
        if found != pytest.approx(energy_j):
            wrong.append((claim, use, found))
    assert wrong == []


def test_energy_of_several_devices_has_the_worst_method_and_is_unknown_if_one_is():
    cost, shares = served(["gpu0", "gpu1"], Claim("s"))
    polled = Energy(300_000.0, "poll", 0.25, scope="parent", suspect=True)
    whole = service_energy(cost, shares, {"gpu0": DRAWN, "gpu1": polled})
    assert whole == Energy(
        pytest.approx(360_000), "poll", pytest.approx(0.2), scope="parent", suspect=True
    )
    assert service_energy(cost, shares, {"gpu0": DRAWN, "gpu1": None}) is None
    incomplete = replace(cost, total=None)
    assert service_energy(incomplete, shares, {"gpu0": DRAWN, "gpu1": polled}) is None


def test_models_share_the_energy_like_the_cost():
    models = {"a": CHAT, "b": replace(CHAT, tokens_out=0)}
    cost, shares = served(["gpu0"], Claim("s"), models=models)
    whole = service_energy(cost, shares, {"gpu0": DRAWN})
    a, b = (served_energy(one, whole) for one in cost.models)
    assert (a.total.energy_j, b.total.energy_j) == (pytest.approx(72_000), pytest.approx(18_000))
    assert (b.per_million_tokens_in_j, b.tokens_out_j) == (pytest.approx(36_000), None)
