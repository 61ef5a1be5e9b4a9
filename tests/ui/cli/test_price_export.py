"""`costprobe price export`: price files of gateways, from what tokens measurably cost."""

import subprocess

import pytest
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from engines.environment import environment
from fakes.cli import session
from fakes.command import called

# 2026-05-29 00:00 UTC.
END_NS = 1_780_012_800 * NS_PER_S
SPAN = ("--since", "2026-05-28", "--until", "2026-05-29")
# A completion's cost by the prices below: 1,000 tokens in, 500 out.
COST = 1000 * 4e-6 + 500 * 12e-6
# Of them 600 cached, of which a million cost 0.50, and fresh ones 9.25: 0.4 x 9.25 + 0.6 x 0.50 = 4.00.
CACHED = {
    "cached_tokens": 0.6e6,
    "fresh_tokens": 0.4e6,
    "cost_tokens_fresh": 1.85,
    "cost_tokens_cached": 0.15,
}
LITELLM = """
import json, sys, litellm
litellm.register_model(json.load(open(sys.argv[1])))
details = {"cached_tokens": int(sys.argv[2])}
usage = litellm.Usage(prompt_tokens=1000, completion_tokens=500, total_tokens=1500, prompt_tokens_details=details)
response = litellm.ModelResponse(model="openai/llama", usage=usage)
print(litellm.completion_cost(completion_response=response, model="openai/llama"))
"""


def windows(service="chat", currency="USD", cached=None, **tags):
    """Half a day of windows, busy and idle: 4.00 for a million tokens in, 12.00 for one out."""
    for hour in range(12):
        busy = hour % 2
        yield make_point(
            "cost",
            {"service": service, "basis": "serving", "currency": currency, **tags},
            {
                "cost_total": 5.0,
                "cost_tokens_in": 2.0 * busy,
                "cost_tokens_out": 3.0 * busy,
                "tokens_in": 1e6 * busy,
                "tokens_out": 0.5e6 * busy,
                "window_s": 3600.0,
                **{name: value * busy for name, value in (cached or {}).items()},
            },
            END_NS - (13 - hour) * 3600 * NS_PER_S,
        )


SERVICE = """
[[service]]
name = "chat"
url = "http://127.0.0.1:1"
engine = "vllm"
devices = ["gpu0"]
model = "llama"
"""


def test_files_for_each_program_have_the_prices_of_tokens_and_their_origin(costprobe):
    """Without cached tokens, with them, and with cached ones whose weight no calibration has measured."""
    unweighed = {**CACHED, "cost_tokens_fresh": 2.0, "cost_tokens_cached": 0.0}
    costprobe.write(SERVICE)
    costprobe.append(windows(), windows("cached", cached=CACHED), windows("free", cached=unweighed))
    session("price_files", costprobe.config)


def test_models_of_services_and_other_currencies(costprobe):
    costprobe.append(
        windows(),
        windows(served_model="meta/llama-3.1"),
        windows("euros", currency="EUR", served_model="c"),
    )
    session("price_files_models", costprobe.config)
    costprobe.append(windows("other", served_model="c"))
    words = ("price", "export", *SPAN, "--for", "litellm", "--usd", "1")
    assert "several services or currencies" in costprobe(*words, code=2)


@pytest.mark.soak
def test_litellm_computes_the_cost_of_a_completion(costprobe, tmp_path):
    python = environment("litellm") / "bin" / "python"
    costprobe.write(SERVICE)
    costprobe.append(windows(cached=CACHED))
    made = called(costprobe.config, "price", "export", *SPAN, "--for", "litellm").stdout
    (tmp_path / "prices.json").write_text(made)
    done = subprocess.run(
        [python, "-c", LITELLM, tmp_path / "prices.json", "600"],
        env={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) == pytest.approx(COST)
