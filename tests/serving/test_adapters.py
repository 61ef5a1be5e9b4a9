"""LoRA adapters as served models of a server that names the model that a client asked for."""

from collections import Counter
from decimal import Decimal

import pytest
from costprobe.serving.allocation import Claim, DeviceBill, DeviceUse, allocate
from costprobe.serving.cost import service_cost
from costprobe.serving.meter import ServiceMeter
from costprobe.serving.settings import size_of
from costprobe.serving.tokens import TokenWeighing
from fakes.clock import FakeClock
from fakes.services import service

BASE = "meta-llama/Llama-3.1-70B"
COST = Decimal("5.123456789012345")


class Dynamo:
    """The page of Dynamo's frontend, and the windows of the service that reads it."""

    def __init__(self):
        self.series, self.clock = Counter(), FakeClock()
        now = self.clock.time_ns, self.clock.monotonic_ns
        self._meter = ServiceMeter(service(engine="dynamo"), self._fetch, *now)

    def _fetch(self, _):
        return "".join(f"{name} {float(n)}\n" for name, n in self.series.items()).encode()

    def serve(self, *models):
        """Count a request of each model, of 1,000 tokens in and 100 out."""
        for model in models:
            label = f'model="{model}"'
            self.series[f'dynamo_frontend_requests_total{{{label},status="success"}}'] += 1
            self.series[f"dynamo_frontend_input_sequence_tokens_sum{{{label}}}"] += 1000
            self.series[f"dynamo_frontend_output_tokens_total{{{label}}}"] += 100

    def cost(self, parameters="70B"):
        """End a window, and return its cost."""
        self.clock.move(60)
        window = self._meter.close_window()
        use = DeviceUse("gpu0", 300.0, COST, Decimal(0), 100.0, claims=(Claim("chat"),))
        bills = {"gpu0": DeviceBill(allocate(use), "owned", "EUR", 0.3)}
        weighing = TokenWeighing(size=parameters and size_of(parameters))
        return service_cost(window, ("gpu0",), bills, weighing)

    def costs(self, **more):
        """Return the cost of each model, which adds up to that of the service exactly."""
        models = self.cost(**more).models
        assert sum(part.cost for part in models) == COST
        return {part.model: part.cost for part in models}


def test_adapters_that_come_and_go_or_have_strange_names():
    page = Dynamo()
    page.serve(BASE)
    page.cost()
    # An adapter's first window has all of its tokens; an adapter named like its base is one with it.
    page.serve(BASE, BASE, "new", "a\x1b[31m\u202eb", "unattributed", "other")
    found = page.costs()
    assert found.keys() == {BASE, "new", "a [31m b", "unattributed", "other"}
    # The tokens of adapters weigh as those of their base.
    assert found[BASE] == pytest.approx(2 * found["new"], rel=Decimal("1e-9"))
    # Those that are not used have no cost.
    page.serve(BASE)
    assert page.costs() == dict.fromkeys(found, 0) | {BASE: COST}
    # Without the size of the base model each name stands for a size of its own.
    page.serve(BASE, "new-405B")
    by_name = page.costs(parameters=None)
    assert by_name[BASE] < COST / 2 < by_name["new-405B"]
    # If the counters of one disappear, the window is incomplete.
    page.series = Counter({name: n for name, n in page.series.items() if '"new"' not in name})
    gone = page.cost()
    assert gone.total is None
    assert "disappeared" in gone.problems[0]
