"""A load curve on another board: the law by hand, a simulated server on two boards, and the command."""

import json
import math
import time
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from costprobe.core.records import Device
from costprobe.pricing.catalogue import Catalogue, GpuModel, GpuNames
from costprobe.pricing.catalogue_files import gpu_names
from costprobe.probing.load_curve import FIGURES, LoadCurve, LoadPoint, curve_rows
from costprobe.probing.settings import HttpProbeConfig, OpenAiProbeConfig
from costprobe.savings.decoder import ERROR, Decoder, passes
from costprobe.savings.evidence import LoadEvidence
from costprobe.savings.predicted import predicted_supplies
from costprobe.savings.savings import savings
from costprobe.savings.served import (
    COUNT_ERROR,
    FIRST_ERROR,
    ServedCurve,
    ServedModel,
    measured_there,
    moved,
    on_boards,
    served_elsewhere,
    served_model,
)
from costprobe.savings.where import UnpredictedError
from costprobe.serving.settings import ModelSize, ServiceConfig
from costprobe.serving.tokens import LengthMix
from costprobe.ui.cli.load import curve_document
from fakes import rows
from fakes.bench_curves import Reached, simulated_curve
from fakes.cases import check_all
from fakes.cli import Cli, same
from fakes.documents import checked
from fakes.past import device, history, offer, service

TERA, GB = 1e12, 10**9
SIZE = ModelSize(8.0, 8.0)
HERE = GpuModel("NVIDIA L40S", Decimal(48), 864e9, {"bf16": 362 * TERA}, 350.0)
FAST = GpuModel("NVIDIA H200", Decimal(141), 4.8e12, {"bf16": 989 * TERA}, 700.0)
# 4 GB beside the weights of 16 GB hold few requests.
SMALL = GpuModel("NVIDIA L4", Decimal("22.5"), 300e9, {"bf16": 121 * TERA}, 72.0)
TINY = GpuModel("NVIDIA A2", Decimal(16), 200e9, {"bf16": 18 * TERA}, 60.0)
OTHER = GpuModel("AMD Instinct MI300X OAM", Decimal(192), 5.3e12, {"bf16": 1300 * TERA}, 750.0)


CATALOGUE = Catalogue(
    date(2026, 11, 1),
    (offer("NVIDIA H200", 4), offer("NVIDIA L4", "0.7"), offer("NVIDIA A2", "0.2")),
    (),
    GpuNames((HERE, FAST, SMALL, TINY, OTHER)),
)


def point(number, concurrency, tokens_per_s, ttft_ms, tpot_ms, **more):
    figures = {
        "tokens_out_per_s": tokens_per_s,
        "ttft_p90_ms": ttft_ms,
        "tpot_p90_ms": tpot_ms,
        "tokens_in": 2000.0,
        "tokens_out": 250.0,
        "requests": 400.0,
        "errors": 0.0,
        "cost_per_million_tokens_out": 500 / tokens_per_s,
        **more,
    }
    return LoadPoint("closed", number, concurrency, {**dict.fromkeys(FIGURES), **figures})


POINTS = (
    point(1, 1, 40.0, 120.0, 24.0),
    point(2, 8, 250.0, 300.0, 31.0),
    point(3, 32, 600.0, 900.0, 50.0),
)


def curve(**more):
    slo = {"ttft_p90": 500.0, "tpot_p90": 40.0}
    made = LoadCurve("chat", "gpu0", "USD", "abc", 1, slo, POINTS, {"closed": "complete"})
    return replace(made, **more)


MODEL = ServedModel(curve(), SIZE, "bf16", HERE, 1)


def test_times_move_by_prefill_and_step_of_both_boards():
    decoder = Decoder(SIZE, "bf16", 2000.0, 250.0)

    def times(gpu, in_flight):
        """Of a request, the first token and the next ones."""
        found = passes(decoder, gpu, 1, in_flight)
        batch, prompt_s, step_s = found.decoding, found.prompt_s, found.step_s
        batch_s = batch * prompt_s + 250 * step_s
        first_s = prompt_s + step_s + (in_flight / batch - 1) * batch_s
        return in_flight / batch * batch_s, first_s, step_s + (batch - 1) * prompt_s / 250

    # 32 requests do not fit the small board: the others wait.
    fitting = passes(decoder, SMALL, 1).fitting
    assert 8 < fitting < 32
    for gpu in (FAST, SMALL):
        for before, after in zip(POINTS, moved(MODEL, gpu, 1).points, strict=True):
            ratios = [
                there / here
                for there, here in zip(
                    times(gpu, before.concurrency), times(HERE, before.concurrency), strict=True
                )
            ]
            assert after["tokens_out_per_s"] == pytest.approx(
                before["tokens_out_per_s"] / ratios[0]
            )
            assert after["ttft_p90_ms"] == pytest.approx(before["ttft_p90_ms"] * ratios[1])
            assert after["tpot_p90_ms"] == pytest.approx(before["tpot_p90_ms"] * ratios[2])
            assert after["cost_per_million_tokens_out"] is None
    # The same board leaves the curve as it is; a cached prompt has no prefill.
    assert moved(MODEL, HERE, 1).points[2]["ttft_p90_ms"] == 900.0
    cached = replace(
        MODEL, curve=curve(points=(point(1, 8, 250.0, 300.0, 31.0, cached_tokens=2e3),))
    )
    (after,) = moved(cached, FAST, 1).points
    assert after["ttft_p90_ms"] / 300 == pytest.approx(
        passes(decoder, FAST, 1, 8).step_s / passes(decoder, HERE, 1, 8).step_s
    )


def test_cheapest_load_within_the_service_level_is_chosen():
    places = served_elsewhere(found(), CATALOGUE).places
    # AMD's boards run other software; the small one is too slow, and the last does not hold the weights.
    assert [one.gpu.model for one in places] == ["NVIDIA H200", "NVIDIA L4", "NVIDIA A2"]
    fast, slow, tiny = places
    assert (slow.point, slow.fitting > 0, tiny.fitting) == (None, True, 0)
    assert (fast.boards, fast.point.concurrency) == (1, 32)
    per_million = 4 / 3600 / fast.tokens_out_per_s.value * 1e6
    assert fast.cost.value == pytest.approx(per_million)
    assert fast.cost.low == pytest.approx(per_million / ERROR)
    assert fast.times_ms["ttft_p90"].high == pytest.approx(
        fast.times_ms["ttft_p90"].value * FIRST_ERROR
    )
    two = on_boards(MODEL, FAST, 2, fast.price)
    assert two.tokens_out_per_s.low == pytest.approx(
        two.tokens_out_per_s.value / ERROR / COUNT_ERROR
    )
    # If times are longer, a smaller load keeps the bound: the highest cost is that one's.
    tight = {"ttft_p90": fast.times_ms["ttft_p90"].value * 1.1}
    tight = on_boards(replace(MODEL, curve=curve(bounds_ms=tight)), FAST, 1, fast.price)
    assert tight.cost.high > tight.cost.value * ERROR * 1.5
    impossible = {"tpot_p90": moved(MODEL, FAST, 1).points[0]["tpot_p90_ms"] * 1.1}
    impossible = on_boards(replace(MODEL, curve=curve(bounds_ms=impossible)), FAST, 1, fast.price)
    assert (impossible.point.concurrency, impossible.cost.high) == (1, math.inf)


def test_simulated_server_on_a_board_that_the_method_does_not_know():
    """It reaches other shares of its peaks on each board; `bench/where.py` has more of them."""
    gpus = {gpu.model: gpu for gpu in gpu_names().gpus}
    reached = {
        "NVIDIA L40S": Reached(0.58 * 362e12, 0.66 * 864e9, 0.001),
        "NVIDIA A100-SXM4-80GB": Reached(0.4 * 312e12, 0.85 * 2.04e12, 0.003),
    }
    here, there = (
        simulated_curve("8B", gpus[board], rates, (2000, 250), 2048)
        for board, rates in reached.items()
    )
    here = replace(here, curve=replace(here.curve, bounds_ms={"ttft_p90": 600.0}))
    for guess, real in zip(moved(here, there.gpu, 1).points, there.curve.points, strict=True):
        assert guess["tokens_out_per_s"] == pytest.approx(real["tokens_out_per_s"], rel=0.25)
        assert guess["ttft_p90_ms"] == pytest.approx(real["ttft_p90_ms"], rel=0.4)
    price = CATALOGUE.gpu_range(["NVIDIA H200"])
    predicted = on_boards(here, there.gpu, 1, price).cost
    real = measured_there(here, there.curve, there.gpu, price).cost.value
    assert predicted.low < real < predicted.high


def test_boards_that_would_cost_less_for_a_service_are_predicted():
    # Two replicas of a L40S at 3.60 an hour each, 120 tokens/s each: the H200 carries both.
    evidence = LoadEvidence(
        curve(), 2, LengthMix(2000.0, 250.0), fingerprint_then="abc", fingerprint_now="abc"
    )
    past = history(
        *(device(name, lambda _: 50.0, 7) for name in ("gpu0", "gpu1")),
        served=[service(lambda _: 240.0 * 60, on=("gpu0", "gpu1"), days=7, unit="tokens_out")],
        load_curves={"chat": evidence},
    )
    (answer,) = savings(past)
    fast = served_elsewhere(found(), CATALOGUE).places[0]
    assert fast.tokens_out_per_s.low > 240
    (supply,) = predicted_supplies(answer, [], [found()], CATALOGUE)
    assert (supply.gpu_model, supply.devices) == ("NVIDIA H200", 1)
    assert supply.cost_per_month.ends == (4 * 730,) * 3
    assert "--load --json" in supply.measure[0]
    # Nothing is predicted of a model that is no decoder of known size.
    assert predicted_supplies(answer, [], [found("llama")], CATALOGUE) == []


def probe(model="meta/Llama-3.1-8B", kind=OpenAiProbeConfig, **more):
    text = {"name": "chat", "kind": "openai", "url": "http://127.0.0.1:9", "model": model, **more}
    return kind.model_validate(text)


def board(model="NVIDIA L40S", memory=48):
    return Device("gpu0", "gpu", "", model, memory_bytes=memory << 30)


def found(model="meta/Llama-3.1-8B", devices=None, services=(), **more):
    return ServedCurve(probe(model), curve(**more), devices or (board(),), services)


def test_model_is_that_of_options_service_or_name():
    gpus = gpu_names()
    service = {"name": "chat", "url": "http://127.0.0.1:9", "engine": "vllm", "devices": ["gpu0"]}
    stated = ServiceConfig.model_validate({**service, "parameters": "3B"})

    def check(words, one, size_b, dtype, *given):
        made = served_model(one, gpus, *given)
        assert (made.size.total_b, made.dtype, made.boards) == (size_b, dtype, 1), words

    check_all(
        check,
        [
            ("name", found(), 8.0, "bf16"),
            ("type of the name", found("meta/Llama-3.1-8B-FP8"), 8.0, "fp8"),
            ("service", found(services=(stated,)), 3.0, "bf16"),
            ("options", found("llama"), 4.0, "fp8", ModelSize(4.0, 4.0), "fp8"),
        ],
    )


def test_what_is_not_predicted_has_a_reason():
    gpus = gpu_names()
    requests = HttpProbeConfig.model_validate(
        {"name": "web", "kind": "http", "url": "http://127.0.0.1:9", "method": "GET"}
    )
    two = (board(), replace(board(), name="gpu1"))
    refused = (
        found("llama"),
        found("meta/Llama-3.1-8B-AWQ"),
        found("meta/Llama-3.1-70B"),
        found(devices=(board("Tesla T4", 16),)),
        found(devices=two, device="gpu0+gpu1"),
        replace(found(), devices=()),
        ServedCurve(requests, curve(), (board(),), ()),
    )
    reasons = []
    for one in refused:
        with pytest.raises(UnpredictedError) as error:
            served_model(one, gpus)
        reasons.append(str(error.value))
    same("where_not_predicted", "\n".join(reasons) + "\n")


@pytest.fixture
def cli(tmp_path):
    host = Cli(
        tmp_path,
        '[host]\nname = "h"\n[[probe]]\nname = "chat"\nkind = "openai"\nurl = "http://127.0.0.1:9"\n'
        'devices = ["gpu0"]\nmodel = "Llama-3.1-8B"\nslo = { ttft_p90 = "500ms", tpot_p90 = "40ms" }\n',
    )
    now_ns, tags = time.time_ns(), {"host": "h", "device": "gpu0"}
    total = {"model": "NVIDIA L40S", "mem_total_bytes": 48 << 30}
    measured = curve(time_ns=now_ns - GB, tags={"host": "h"})
    host.append([rows.device(tags, now_ns - GB, 60, 1.8, 300.0, **total)], curve_rows(measured))
    return host


def test_command_predicts_a_served_probe_and_takes_a_curve_of_another_board(cli, tmp_path):
    shown = cli("where", "chat").splitlines()
    assert shown[0].startswith("chat on gpu0: a decoder of 8B in bf16 ")
    assert shown[0].endswith("within ttft_p90 500 ms, tpot_p90 40 ms")
    assert shown[2].split()[:6] == ["NVIDIA", "L40S", "(here)", "8", "in", "flight"]
    assert any(line.startswith("too little memory: ") for line in shown)
    there = tmp_path / "h200.json"
    there.write_text(
        json.dumps(curve_document(curve(points=(point(1, 64, 2500.0, 90.0, 20.0),)), None))
    )
    words = ("where", "chat", "--measured", f"H200={there}", "--json")
    (document,) = checked("where", cli(*words))["servers"]
    boards = {one["gpu_model"]: one for one in document["boards"]}
    ran = boards["NVIDIA H200"]
    assert (ran["is_measured"], ran["concurrency"]) == (True, 64)
    assert ran["tokens_out_per_s"] == {"value": 2500.0, "low": 2500.0, "high": 2500.0}
    guess = boards["NVIDIA H100 80GB HBM3"]
    assert [one["name"] for one in guess["slo_times"]] == ["ttft_p90", "tpot_p90"]
    assert all(one["low_ms"] < one["value_ms"] < one["high_ms"] for one in guess["slo_times"])
    costs = [one["cost_per_million_tokens_out"] for one in document["boards"]]
    assert [x["value"] for x in costs if x] == sorted(x["value"] for x in costs if x)
    there.write_text('{"points": [], "device": "gpu0"}')
    assert "not the output of costprobe probe NAME --load --json" in cli(*words, code=2)
    (fp8,) = checked("where", cli("where", "chat", "--dtype", "fp8", "--json"))["servers"]
    assert "NVIDIA A100-SXM4-80GB" not in {one["gpu_model"] for one in fp8["boards"]}
    refused = cli("where", "chat", "--decoder", "70B", code=2)
    assert "chat on gpu0: 70B in bf16 do not fit gpu0" in refused
