"""Energy and emissions of production: a service's share of its devices' electricity."""

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


def served(*bills):
    use = DeviceUse("gpu", 300.0, Decimal(10), Decimal(10), claims=(Claim("s"),))
    known = {
        f"gpu{i}": DeviceBill(allocate(use), **{"energy_shares": SHARES, **bill})
        for i, bill in enumerate(bills)
    }
    window = ServedWindow("s", "vllm", 0, 300 * 10**9, {"m": CHAT})
    return service_cost(window, list(known), known, TokenWeighing(Weights(1.0, 6.0)))


def test_energy_of_several_devices_has_the_worst_method_and_is_unknown_if_one_is():
    polled = Energy(300_000.0, "poll", 0.25, scope="parent", suspect=True)
    whole = served({"drawn": DRAWN}, {"drawn": polled}).total.drawn
    assert whole == Energy(
        pytest.approx(360_000), "poll", pytest.approx(0.2), scope="parent", suspect=True
    )
    for other in ({}, {"drawn": polled, "energy_shares": {}}):
        found = served({"drawn": DRAWN, "emitted": EMITTED}, other)
        assert (found.total.drawn, found.total.emitted) == (None, None)
        (row,) = [row for row in window_points(found, {}) if row.measurement == "cost"]
        assert not any(name.startswith(("energy_", "carbon_")) for name in row.fields)
