"""`costprobe savings` and `costprobe report` on a store with a load curve and a service's production."""

import re

import pytest
from costprobe.core.records import NS_PER_S, Point
from costprobe.probing.load_curve import FIGURES, LoadCurve, LoadPoint, curve_rows
from fakes.cli import NOW_S, host, session
from fakes.documents import checked
from fakes.page_examples import missing_lines

HOUR_NS = 3600 * NS_PER_S


def point(number, tokens_per_s, ttft_p90_ms):
    figures = {
        "throughput_per_s": tokens_per_s / 100,
        "tokens_out_per_s": tokens_per_s,
        "ttft_p90_ms": ttft_p90_ms,
        "tokens_in": 200.0,
        "tokens_out": 100.0,
        "requests": 400.0,
        "errors": 0.0,
        "window_s": 20.0,
    }
    return LoadPoint("closed", number, 1 << (number - 1), {**dict.fromkeys(FIGURES), **figures})


def rows(now_ns, days=10, *, gpu_model="A100"):
    """Two replicas that generate 240 tokens/s together, and a curve of 10 h ago."""
    points = (point(1, 100.0, 100.0), point(2, 600.0, 400.0), point(3, 1000.0, 2000.0))
    at_ns = now_ns - 10 * HOUR_NS
    curve = LoadCurve("llm", "gpu0", "USD", "abc", at_ns, {}, points, {"closed": "saturated"})
    yield from curve_rows(curve)
    run = {"device": "gpu0", "probe": "llm", "batch": "1"}
    yield Point("probe", run, {"latency_p50_ms": 9.0, "fingerprint": "abc"}, now_ns)
    for i in range(days * 288):
        end_ns = now_ns - i * 300 * NS_PER_S
        fields = {
            "requests": 720.0, "tokens_in": 720 * 210.0, "tokens_out": 72_000.0,
            "window_s": 300.0, "complete": True,
        }  # fmt: skip
        yield Point("serving", {"service": "chat", "engine": "vllm"}, fields, end_ns)
        for name in ("gpu0", "gpu1"):
            tags = {"device": name, "kind": "gpu", "uuid": f"GPU-{name}", "model": gpu_model}
            telemetry = {"util_pct": 95.0, "power_w": 300.0, "cost": 0.3}
            yield Point("device", tags, telemetry, end_ns)


@pytest.mark.usefixtures("stopped")
def test_savings_state_the_cost_of_the_load_and_the_replicas_that_carry_it(costprobe):
    """By NVML the devices are 95 % busy: utilization alone would keep both."""
    costprobe.write(host("load"))
    costprobe.append(rows(NOW_S * NS_PER_S // HOUR_NS * HOUR_NS))
    session("savings_of_a_load", costprobe.config)
    assert missing_lines("savings.md", costprobe("savings"), having="of saturation") == []
    assert "merge 2 replicas into 1" in costprobe("report", "--format", "md")


@pytest.mark.usefixtures("stopped")
def test_boards_that_are_predicted_to_cost_less_stand_apart_with_how_to_measure_them(costprobe):
    costprobe.write(host("load").replace('model = "m"', 'model = "Llama-3.1-8B"'))
    now_ns = NOW_S * NS_PER_S // HOUR_NS * HOUR_NS
    costprobe.append(rows(now_ns, gpu_model="NVIDIA A100-SXM4-80GB"))
    shown = costprobe("savings")
    block = shown[shown.index("  predicted, not measured (80 %)") :].splitlines()
    # The catalogue's prices change.
    assert re.fullmatch(r" +\d+ x NVIDIA .+: \$\S+ a month \(\$\S+ to \S+\), saves \$\S+", block[1])
    assert block[-2] == "     measure one there: costprobe probe llm --load --json > there.json"
    assert block[-1].startswith('     then take it here: costprobe where llm --measured "NVIDIA ')
    (answer,) = checked("savings", costprobe("savings", "--json"))
    assert all(one["cost_per_month"]["value"] < 2 * 3.6 * 730 for one in answer["predicted"])
