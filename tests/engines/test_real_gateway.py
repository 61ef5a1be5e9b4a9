"""A real LiteLLM proxy as the gateway of a service: its end users pay for the tokens that they caused."""

import pytest
from engines import soak
from engines.environment import running
from engines.load import OpenAiClient, at_once
from engines.openai_engine import PROMPT, TOKENS
from engines.run_litellm import TOKENS_IN, LiteLlm
from fakes.daemon import DaemonProcess
from fakes.nvml import FakeNvml

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
TENANTS = """
[service.tenants]
gateway = "litellm"
label = "end_user"
"""
CALLS = {"search": 9, "ads": 3, None: 4}


def test_end_users_of_the_gateway_pay_for_their_tokens(tmp_path):
    nvml = FakeNvml(tmp_path, gpus=1)
    nvml.gpus[0].set_power(300.0)
    engine = LiteLlm(tmp_path)
    daemon = DaemonProcess(tmp_path, nvml.env())
    try:
        with running(engine, tmp_path):
            engine.warm_up()
            daemon.start(soak.service_table(engine) + TENANTS)
            windows = soak.Windows(daemon)
            before = windows.settle()
            for user, count in CALLS.items():
                named = {} if user is None else {"user": user}
                client = OpenAiClient(engine.url, engine.model(), **named)
                at_once([lambda client=client: client.chat(PROMPT, TOKENS)] * count)
            counted = soak.difference(windows.settle(), before)
            daemon.stop()
    finally:
        daemon.stop()
        engine.close()
    tokens, costs = {}, {}
    for row in daemon.points("tenant", service="real"):
        tenant = row.tags["tenant"]
        costs[tenant] = costs.get(tenant, 0.0) + row.fields["cost"]
        sums = tokens.setdefault(tenant, [0, 0])
        sums[0] += row.fields.get("tokens_in", 0)
        sums[1] += row.fields.get("tokens_out", 0)
    sent = {
        user: [count * TOKENS_IN, count * TOKENS]
        for user, count in CALLS.items()
        if user is not None
    }
    assert {user: tokens[user] for user in sent} == sent
    assert counted["tokens_in"] == sum(CALLS.values()) * TOKENS_IN
    assert set(costs) == {"search", "ads", "unattributed"}
    whole = sum(row.fields["cost_total"] for row in daemon.points("cost", service="real"))
    assert sum(costs.values()) == pytest.approx(whole, rel=1e-9)
