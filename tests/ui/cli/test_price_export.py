"""`costprobe price export`: price files of gateways, from what tokens measurably cost."""

import json
import subprocess

import pytest
from click.testing import CliRunner
from costprobe.adapters.store.write import Store
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from costprobe.ui.cli.main import main
from engines.environment import environment
from fakes.clock import FakeClock

# 2026-05-29 00:00 UTC.
END_NS = 1_780_012_800 * NS_PER_S
SPAN = ("--since", "2026-05-28", "--until", "2026-05-29")
# A completion's cost by the prices below: 1,000 tokens in, 500 out.
COST = 1000 * 4e-6 + 500 * 12e-6
LITELLM = """
import json, sys, litellm
litellm.register_model(json.load(open(sys.argv[1])))
usage = litellm.Usage(prompt_tokens=1000, completion_tokens=500, total_tokens=1500)
response = litellm.ModelResponse(model="openai/llama", usage=usage)
print(litellm.completion_cost(completion_response=response, model="openai/llama"))
"""


def windows(service="chat", currency="USD", **tags):
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
            },
            END_NS - (13 - hour) * 3600 * NS_PER_S,
        )


@pytest.fixture
def export(tmp_path):
    """Store rows, and return the command's result."""

    def call(rows, *arguments, config=""):
        store = Store.open(tmp_path / "costprobe.db", FakeClock())
        store.append(list(rows))
        store.close()
        path = tmp_path / "c.toml"
        path.write_text(f'[store]\npath = "{tmp_path}/costprobe.db"\n{config}')
        return CliRunner().invoke(main, ["-c", str(path), "price", "export", *SPAN, *arguments])

    return call


SERVICE = """
[[service]]
name = "chat"
url = "http://127.0.0.1:1"
engine = "vllm"
devices = ["gpu0"]
model = "llama"
"""


def test_litellm_file_has_costs_per_token_with_their_origin(export):
    done = export(windows(), "--for", "litellm", config=SERVICE)
    assert done.exit_code == 0, done.output
    (name, price), *more = json.loads(done.stdout).items()
    assert (name, more) == ("openai/llama", [])
    assert price.pop("metadata") == {
        "source": "costprobe",
        "service": "chat",
        "since": "2026-05-28T00:00:00.000Z",
        "until": "2026-05-29T00:00:00.000Z",
        "coverage": 0.5,
        "currency": "USD",
        "usd_per_unit": 1.0,
    }
    # 60.00 in all, two fifths of it for six million tokens in, three fifths for three million out.
    assert price == {
        "litellm_provider": "openai",
        "mode": "chat",
        "input_cost_per_token": 4e-6,
        "output_cost_per_token": 12e-6,
        "cache_read_input_token_cost": 4e-6,
        "cache_creation_input_token_cost": 4e-6,
    }
    assert "llama: $4 in, $12 out per million tokens" in done.stderr
    assert "coverage 50 %" in done.stderr


def test_openlit_and_langfuse_files_reckon_the_same_cost(export):
    openlit = json.loads(export(windows(), "--for", "openlit").stdout)
    price = openlit["chat"]["chat"]
    # As OpenLIT's get_chat_model_cost.
    cost = (1000 / 1000) * price["promptPrice"] + (500 / 1000) * price["completionPrice"]
    assert cost == pytest.approx(COST)
    assert openlit["metadata"]["chat"]["coverage"] == 0.5
    (line,) = export((), "--for", "langfuse").stdout.splitlines()
    body = json.loads(line)
    assert 1000 * body.pop("inputPrice") + 500 * body.pop("outputPrice") == pytest.approx(COST)
    assert body == {
        "modelName": "chat",
        "matchPattern": "(?i)^chat$",
        "startDate": "2026-05-29T00:00:00.000Z",
        "unit": "TOKENS",
    }


def test_models_of_a_service_and_other_currencies(export):
    rows = [*windows(), *windows(served_model="meta/llama-3.1"), *windows(served_model="b")]
    found = json.loads(export(rows, "--for", "litellm", "--provider", "hosted_vllm").stdout)
    assert set(found) == {"hosted_vllm/b", "hosted_vllm/meta/llama-3.1"}
    more = list(windows("euros", currency="EUR", served_model="c"))
    done = export(more, "--for", "langfuse", "--usd", "1.5")
    euros = [json.loads(line) for line in done.stdout.splitlines()][-1]
    assert (euros["modelName"], euros["inputPrice"]) == ("c", pytest.approx(6e-6))


def test_unusable_prices_are_refused(export):
    assert "no tokens with a cost" in export((), "--for", "openlit").output
    assert "--usd 1.08" in export(windows(currency="EUR"), "--for", "litellm").output
    twice = [*windows(served_model="m"), *windows("other", served_model="m")]
    done = export(twice, "--for", "litellm", "--usd", "1")
    assert done.exit_code == 2
    assert "several services or currencies" in done.output


@pytest.mark.soak
def test_litellm_computes_the_cost_of_a_completion(export, tmp_path):
    python = environment("litellm") / "bin" / "python"
    (tmp_path / "prices.json").write_text(
        export(windows(), "--for", "litellm", config=SERVICE).stdout
    )
    done = subprocess.run(
        [python, "-c", LITELLM, tmp_path / "prices.json"],
        env={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) == pytest.approx(COST)
