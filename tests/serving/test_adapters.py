"""LoRA adapters as served models, or as tenants by the counters of a server or a gateway."""

from dataclasses import replace
from decimal import Decimal
from functools import partial

import pytest
from costprobe.core.records import NS_PER_S
from costprobe.serving.allocation import Claim, DeviceBill, DeviceUse, allocate
from costprobe.serving.cost import service_cost
from costprobe.serving.meter import ServiceMeter, TenantNames, tenants_endpoint, tenants_engine
from costprobe.serving.settings import size_of
from costprobe.serving.tokens import TokenWeighing
from fakes.services import service

approx = partial(pytest.approx, rel=Decimal("1e-9"))
BASE = "meta-llama/Llama-3.1-70B"
COST = Decimal("5.123456789012345")


class Page:
    """The counters of a server or gateway, and the windows of the service that reads them."""

    def __init__(self, **keys):
        self.series = {}
        self.utc_ns = 1_780_000_000 * NS_PER_S
        config = service(**keys)
        self._meter = ServiceMeter(config, self._fetch, self._now, self._now)
        self._tenants = config.tenants and ServiceMeter(
            tenants_endpoint(config, config.tenants),
            self._fetch,
            self._now,
            self._now,
            TenantNames(config.tenants, self._now, {}),
            tenants_engine(config.tenants),
        )

    def _now(self):
        self.utc_ns += NS_PER_S
        return self.utc_ns

    def _fetch(self, _):
        lines = (f"{name} {float(count)}\n" for name, count in self.series.items())
        return "".join(lines).encode()

    def count(self, labels, **counts):
        """Add to the series with these labels."""
        for name, count in counts.items():
            series = f"{name}{{{labels}}}"
            self.series[series] = self.series.get(series, 0) + count

    def cost(self, parameters="70B"):
        """End a window, and return its cost."""
        window = self._meter.close_window()
        if self._tenants is not None:
            window = replace(window, tenants=self._tenants.close_window())
        use = DeviceUse("gpu0", 300.0, COST, Decimal(0), 100.0, claims=(Claim("chat"),))
        bills = {"gpu0": DeviceBill(allocate(use), "owned", "EUR", 0.3)}
        weighing = TokenWeighing(size=parameters and size_of(parameters))
        return service_cost(window, ("gpu0",), bills, weighing)


def dynamo(page, model, tokens_in, tokens_out):
    """Count a request as Dynamo's frontend does, under the name that the client asked for."""
    page.count(f'model="{model}",status="success"', dynamo_frontend_requests_total=1)
    page.count(
        f'model="{model}"',
        dynamo_frontend_input_sequence_tokens_sum=tokens_in,
        dynamo_frontend_output_tokens_total=tokens_out,
    )


def costs(parts, name):
    """Return the cost by name of parts that must add up to that of the service exactly."""
    assert sum(part.cost for part in parts) == COST
    return {getattr(part, name): part.cost for part in parts}


def test_adapters_that_come_and_go_or_have_strange_names():
    page = Page(engine="dynamo")
    dynamo(page, BASE, 1000, 100)
    page.cost()
    # An adapter's first window has all of its tokens; an adapter named like its base is one with it.
    for model in (BASE, BASE, "new", "a\x1b[31m\u202eb", "unattributed", "other"):
        dynamo(page, model, 1000, 100)
    found = costs(page.cost().models, "model")
    assert found.keys() == {BASE, "new", "a [31m b", "unattributed", "other"}
    assert found[BASE] == approx(2 * found["new"])
    # Those that are not used have no cost, and those whose counters disappear make a window incomplete.
    dynamo(page, BASE, 1000, 100)
    assert costs(page.cost().models, "model") == dict.fromkeys(found, 0) | {BASE: COST}
    page.series = {name: count for name, count in page.series.items() if '"new"' not in name}
    gone = page.cost()
    assert gone.total is None
    assert "disappeared" in gone.problems[0]


def test_adapters_of_sglang_are_tenants_by_a_label_of_its_own_counters():
    kinds = {"tokens_in": "prompt", "tokens_out": "generation", "cached_tokens": "cached"}
    counters = {key: f"sglang:{kind}_tokens_total" for key, kind in kinds.items()}
    page = Page(engine="sglang", tenants={"label": "adapter", **counters})
    for requests in ({"": 0}, {"": 10, "sql": 30}):
        for adapter, count in requests.items():
            labels = f'model_name="m",engine_type="unified",adapter="{adapter}"'
            of_stream = f'{labels},is_streaming="true"'
            page.count(of_stream, **{counters["tokens_in"]: 100 * count})
            page.count(of_stream, **{counters["tokens_out"]: 10 * count})
            page.count(of_stream, **{"sglang:num_requests_total": count})
            of_cache = f'{labels},cache_source="device"'
            page.count(of_cache, **{counters["cached_tokens"]: 50 * count})
        found = page.cost()
    parts = costs(found.tenants.tenants, "tenant")
    assert parts == {"sql": approx(COST * 3 / 4), "unattributed": approx(COST / 4)}
