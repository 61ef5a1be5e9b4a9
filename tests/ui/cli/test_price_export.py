"""`costprobe price export`: price files of gateways, from what tokens measurably cost."""

import json
import subprocess

import pytest
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from costprobe.unit_costs.price_files import PRICE_FILES
from engines.environment import environment
from fakes.cli import same
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


@pytest.fixture
def export(costprobe):
    """Store rows, and return the command's result."""

    def call(rows, *arguments, config="", code=0):
        costprobe.write(config)
        costprobe.append(rows)
        return called(costprobe.config, "price", "export", *SPAN, *arguments, code=code)

    return call


SERVICE = """
[[service]]
name = "chat"
url = "http://127.0.0.1:1"
engine = "vllm"
devices = ["gpu0"]
model = "llama"
"""


def test_files_for_each_program_have_the_prices_of_tokens_and_their_origin(export):
    """Without cached tokens, with them, and with cached ones whose weight no calibration has measured."""
    unweighed = {**CACHED, "cost_tokens_fresh": 2.0, "cost_tokens_cached": 0.0}
    rows = [*windows(), *windows("cached", cached=CACHED), *windows("free", cached=unweighed)]
    made = {}
    for program in PRICE_FILES:
        made[program] = export(() if made else rows, "--for", program, config=SERVICE)
    same("price_files", "".join(f"# {name}\n{one.stdout}" for name, one in made.items()))
    same("price_files_notes", made["litellm"].stderr)
    price = json.loads(made["litellm"].stdout)["openai/cached"]
    openlit = json.loads(made["openlit"].stdout)["chat"]["cached"]
    (langfuse,) = (
        body["pricingTiers"][0]["prices"]
        for body in map(json.loads, made["langfuse"].stdout.splitlines())
        if body["modelName"] == "cached"
    )
    # A call with 400 fresh, 600 cached and 500 generated tokens, as each program reckons it.
    read = price["cache_read_input_token_cost"]
    reckoned = (
        400 * price["input_cost_per_token"] + 600 * read + 500 * price["output_cost_per_token"],
        400 * langfuse["input"] + 600 * langfuse["input_cached_tokens"] + 500 * langfuse["output"],
        0.4 * openlit["promptPrice"]
        + 0.6 * openlit["cacheReadPrice"]
        + 0.5 * openlit["completionPrice"],
    )
    assert reckoned == pytest.approx([COST] * 3)


def test_models_of_a_service_and_other_currencies(export):
    rows = [*windows(), *windows(served_model="meta/llama-3.1"), *windows(served_model="b")]
    found = json.loads(export(rows, "--for", "litellm", "--provider", "hosted_vllm").stdout)
    assert set(found) == {"hosted_vllm/b", "hosted_vllm/meta/llama-3.1"}
    more = list(windows("euros", currency="EUR", served_model="c"))
    done = export(more, "--for", "langfuse", "--usd", "1.5")
    euros = [json.loads(line) for line in done.stdout.splitlines()][-1]
    price = euros["pricingTiers"][0]["prices"]["input"]
    assert (euros["modelName"], price) == ("c", pytest.approx(6e-6))


def test_unusable_prices_are_refused(export):
    assert "no tokens with a cost" in export((), "--for", "openlit", code=2).output
    assert "--usd 1.08" in export(windows(currency="EUR"), "--for", "litellm", code=2).output
    twice = [*windows(served_model="m"), *windows("other", served_model="m")]
    done = export(twice, "--for", "litellm", "--usd", "1", code=2)
    assert "several services or currencies" in done.output


@pytest.mark.soak
def test_litellm_computes_the_cost_of_a_completion(export, tmp_path):
    python = environment("litellm") / "bin" / "python"
    (tmp_path / "prices.json").write_text(
        export(windows(cached=CACHED), "--for", "litellm", config=SERVICE).stdout
    )
    done = subprocess.run(
        [python, "-c", LITELLM, tmp_path / "prices.json", "600"],
        env={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) == pytest.approx(COST)
