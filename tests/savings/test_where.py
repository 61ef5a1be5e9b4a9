"""A model on another board: the law by hand, the batch that is chosen, and the command."""

import json
import math
import time
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from costprobe.core.records import Device
from costprobe.pricing.catalogue import Catalogue, GpuModel, GpuNames
from costprobe.savings.decoder import (
    CACHE,
    EXCHANGE_S,
    LAYER_S,
    PREFILL,
    WEIGHTS,
    Decoder,
    priced_replicas,
    replica,
)
from costprobe.savings.history import BatchFigures
from costprobe.savings.predicted import predicted_supplies
from costprobe.savings.savings import savings
from costprobe.savings.where import (
    FIXED,
    FIXED_ERROR,
    POWER,
    RATE,
    WORK_ERROR,
    MeasuredBatch,
    MeasuredModel,
    cheapest_first,
    elsewhere,
    fixed_share,
    precision_of,
    time_ratio,
    typical,
)
from costprobe.serving.settings import ModelSize
from costprobe.serving.tokens import KV_EXPONENT
from fakes import rows
from fakes.cli import Cli, same
from fakes.documents import checked
from fakes.past import device, figures, history, offer, probe

TERA, GB = 1e12, 10**9
HERE = GpuModel("Here", Decimal(24), 3e11, {"fp16": 100 * TERA, "fp32": 25 * TERA}, 100.0)
FASTER = GpuModel("Faster", Decimal(80), 3e12, {"fp16": 400 * TERA, "fp32": 50 * TERA}, 400.0)
SMALL = GpuModel("Small", Decimal(4), 3e11, {"fp16": 50 * TERA}, 50.0)
UNKNOWN = GpuModel("Unknown", Decimal(80), None, {}, None)


def measured(batch, latency_ms, memory_gb=None):
    figures = BatchFigures(batch, "runs", 9, latency_ms, batch / latency_ms * 1000, 2.0)
    return MeasuredBatch(figures, *[memory_gb and memory_gb * GB] * 2)


CATALOGUE = Catalogue(
    date(2026, 11, 1),
    (offer("Faster", 4), offer("Small", "0.5")),
    (),
    GpuNames((HERE, FASTER, SMALL, UNKNOWN)),
)


def test_fixed_part_of_a_pass_is_where_the_line_over_batches_begins():
    # 3 ms and 1 ms an item: at batch 1 three quarters, at batch 9 a quarter.
    batches = [measured(9, 12.0), measured(1, 4.0)]
    assert fixed_share(batches, 1) == pytest.approx(0.75)
    assert fixed_share(batches, 9) == pytest.approx(0.25)
    assert fixed_share(batches[:1], 9) is None
    assert fixed_share([measured(1, 4.0), measured(8, 3.9)], 8) == 1.0
    assert fixed_share([measured(1, 1.0), measured(8, 9.0)], 8) == 0.0


def test_time_follows_peak_rate_and_power_by_the_share_of_each_part():
    work = (1 / 4) ** RATE * (1 / 4) ** POWER
    fixed = (1 / 4) ** FIXED
    cases = {
        0.0: (work, WORK_ERROR),
        1.0: (fixed, FIXED_ERROR),
        0.5: ((work + fixed) / 2, (WORK_ERROR * FIXED_ERROR) ** 0.5),
    }
    for share, (ratio, error) in cases.items():
        found = time_ratio(HERE, FASTER, "fp16", share)
        assert (found.value, found.low, found.high) == pytest.approx(
            (ratio, ratio / error, ratio * error)
        ), share
    unknown = time_ratio(HERE, FASTER, "fp16", None)
    assert (unknown.low, unknown.high) == pytest.approx((work / WORK_ERROR, fixed * FIXED_ERROR))
    # A precision that a board lacks is compared by fp16; a board without rates not at all.
    assert time_ratio(HERE, SMALL, "bf16", 0.0).value == pytest.approx(2**RATE * 2**POWER)
    assert time_ratio(HERE, FASTER, "fp32", 0.0).value == pytest.approx(0.5**RATE * 0.25**POWER)
    assert time_ratio(HERE, UNKNOWN, "fp16", 0.0) is None


def test_cheapest_batch_that_fits_and_keeps_the_bound_is_chosen():
    batches = [measured(1, 4.0, 2), measured(9, 12.0, 6)]
    found, unknown = elsewhere(batches, HERE, CATALOGUE, "fp16")
    assert unknown == ["Unknown"]
    # 4 GB hold the batch of one only.
    assert {one.gpu.model: (one.batch, one.fits) for one in found} == {
        "Faster": (9, True),
        "Small": (1, True),
    }
    fast = next(one for one in found if one.gpu.model == "Faster")
    ratio = time_ratio(HERE, FASTER, "fp16", 0.25)
    assert fast.latency_ms.value == pytest.approx(12 * ratio.value)
    assert fast.cost_per_inference.high == pytest.approx(4 / 3600 * 0.012 * ratio.high / 9)
    assert fast.energy_per_inference_j.low == pytest.approx(2 * 4 * ratio.low)
    assert [one.gpu.model for one in cheapest_first(found)] == ["Faster", "Small"]
    bound = fast.latency_ms.value * 0.99
    assert [one.batch for one in elsewhere(batches, HERE, CATALOGUE, "fp16", bound)[0]] == [1]
    too_large, _ = elsewhere([measured(1, 4.0, 70)], HERE, CATALOGUE, "fp16")
    assert {one.gpu.model: one.fits for one in too_large} == {"Faster": True, "Small": False}
    ran = fast.measured(4, 2.0, 1.5)
    assert ran.is_measured
    assert ran.cost_per_inference.low == ran.cost_per_inference.high == 4 / 3600 * 0.002 / 4


def test_boards_that_would_cost_less_than_every_measured_supply_are_predicted():
    present, other = figures(9, 12.0), figures(1, 4.0)
    past = history(device(), probes=[probe(present, other)])
    batches = (measured(9, 12.0, 6), measured(1, 4.0, 2))
    here = Device("gpu0", "gpu", "", "Here")
    model = MeasuredModel(probe(present, other), here, batches, "fp16")
    (answer,) = savings(past)
    # 2,628 a month; the faster board costs more, on the small one only a batch of one fits.
    (found,) = predicted_supplies(answer, [model], [], CATALOGUE)
    ratio = time_ratio(HERE, SMALL, "fp16", 0.75)
    counts = [
        math.ceil(0.5 * (9 / 12) / (1 / (4 * each)) / 0.8)
        for each in (ratio.value, ratio.low, ratio.high)
    ]
    assert (found.gpu_model, found.devices) == ("Small", counts[0])
    assert found.cost_per_month.ends == tuple(count * 0.5 * 730 for count in counts)
    assert found.measure[1] == 'costprobe where ranker --measured "Small=there.json"'
    # It was measured on a board of this host.
    small = replace(model, device=replace(here, name="gpu1", model="Small"))
    assert predicted_supplies(answer, [model, small], [], CATALOGUE) == []
    assert predicted_supplies(replace(answer, currency="EUR"), [model], [], CATALOGUE) == []


def test_memory_of_other_processes_is_not_the_models():
    shared = MeasuredBatch(measured(1, 4.0).figures, 2 * GB, 70 * GB)
    assert shared.fits(FASTER) is True
    assert shared.fits(SMALL) is None
    assert replace(shared, least_bytes=4 * GB).fits(SMALL) is False
    assert replace(shared, most_bytes=None).fits(FASTER) is None


def test_precision_is_that_of_the_utilization():
    board = replace(HERE, flop_per_s={**HERE.flop_per_s, "tf32": 60 * TERA})
    assert [precision_of(board, peak, "bf16") for peak in (25.1 * TERA, 60 * TERA, None)] == [
        "fp32",
        "tf32",
        "bf16",
    ]
    # A board without TF32 multiplies as fp32.
    assert time_ratio(board, FASTER, "tf32", 0.0).value == pytest.approx(
        (60 / 50) ** RATE * 0.25**POWER
    )


def test_runs_beside_a_server_and_of_one(tmp_path):
    host = Cli(
        tmp_path,
        '[host]\nname = "h"\n[[probe]]\nname = "ranker"\nkind = "transformer"\n'
        '[[probe]]\nname = "server"\nkind = "openai"\nurl = "http://127.0.0.1:9"\n'
        'devices = ["gpu0"]\nmodel = "llama"\n',
    )
    time_ns, board = time.time_ns() - GB, {"host": "h", "device": "gpu0"}
    # 1 % of 30.3 TFLOP/s: fp32. The server holds 90 % of the memory.
    work = {"flop_per_pass": 30.3e12 * 0.0052 * 0.01, "mfu_pct": 1.0, "bytes_per_pass": 5e8}
    host.append(
        [
            rows.device(
                board, time_ns, 60, 0.71, 60.0, model="NVIDIA L4", mem_total_bytes=24 << 30
            ),
            rows.run({**board, "probe": "ranker"}, time_ns, 5.2, mem_used_pct=90.0, **work),
            rows.run({**board, "probe": "server"}, time_ns, 900.0, batch=1),
        ]
    )
    (document,) = checked("where", host("where", "--json"))["probes"]
    boards = {one["gpu_model"]: one for one in document["boards"]}
    assert boards["Tesla T4"]["fits"] is None
    assert boards["NVIDIA H200"]["fits"] is True
    a100, l4 = boards["NVIDIA A100-SXM4-80GB"], document["latency_p50_ms"]
    # Of fp32 it has less than an L4.
    ends = [(30.3 / 19.5) ** RATE * (72 / 400) ** POWER, (30.3 / 19.5) ** FIXED]
    assert a100["latency_p50_ms"]["value"] == pytest.approx(
        l4 * (ends[0] * ends[1]) ** 0.5, rel=1e-3
    )


def test_decoder_follows_the_roofline_of_its_two_phases():
    board = GpuModel("NVIDIA H200", Decimal(141), 4.8e12, {"bf16": 989.4 * TERA}, 700.0)
    asked = Decoder(ModelSize(70.0, 70.0), "fp8", 2000, 250, 64)
    found = replica(asked, board, 1)
    flop_per_s = 989.4 * TERA * 2 * PREFILL
    growth = (70 / 8) ** KV_EXPONENT
    kv_bytes = 131072 / 2 * growth
    assert found.prefill_s == pytest.approx(64 * 2000 * 140 * GB / flop_per_s)
    step_s = max(70 * GB / (4.8e12 * WEIGHTS), 64 * 140 * GB / flop_per_s)
    step_s += 64 * 2125 * kv_bytes / (4.8e12 * CACHE) + 32 * growth * LAYER_S
    assert found.decode_s == pytest.approx(250 * step_s)
    # As many as fit: what 90 % of the memory leave beside the weights.
    most = replica(asked._replace(concurrency=None), board, 1).in_flight
    assert most == int((0.9 * 141 * GB - 70 * GB) / (2125 * kv_bytes))
    assert replica(asked._replace(concurrency=most + 1), board, 1) is None
    two = replica(asked, board, 2)
    assert two.prefill_s == pytest.approx(found.prefill_s / 2)
    halved_s = (step_s - 32 * growth * LAYER_S) / 2 + 32 * growth * (LAYER_S + EXCHANGE_S)
    assert two.decode_s == pytest.approx(250 * halved_s)
    # An expert that no request of the batch uses is not read.
    sparse = asked._replace(size=ModelSize(70.0, 7.0), concurrency=1)
    assert replica(sparse, board, 1).decode_s < found.decode_s / 4
    for other, dtype in (("NVIDIA A100-SXM4-80GB", "fp8"), ("NVIDIA H200", "fp4")):
        named = replace(board, model=other)
        assert replica(asked._replace(dtype=dtype), named, 1) is None, (other, dtype)
    priced = Catalogue(
        date(2026, 11, 1),
        (offer("NVIDIA H200", 4),),
        (),
        GpuNames((board, replace(board, model="Alone"))),
    )
    (one,) = priced_replicas(asked, priced)
    per_request = (
        4 * one.replica.boards / 3600 * (one.replica.prefill_s + one.replica.decode_s) / 64
    )
    parts = one.cost_per_million_tokens_in * 2000 + one.cost_per_million_tokens_out * 250
    assert parts / 1e6 == pytest.approx(per_request)


def test_decoder_is_priced_on_the_boards_of_the_catalogue(cli):
    words = ("where", "--decoder", "70B", "--dtype", "fp8", "--in", "2000", "--out", "250")
    boards = {one["gpu_model"]: one for one in checked("where", cli(*words, "--json"))["decoders"]}
    assert boards["NVIDIA H200"]["devices"] in (1, 2, 4, 8)
    # Without NVLink it would have to fit one board.
    assert "NVIDIA L40S" not in boards
    assert cli(*words).splitlines()[0].startswith("boards ")


@pytest.fixture
def cli(tmp_path):
    host = Cli(
        tmp_path,
        '[host]\nname = "h"\n[[price]]\nplan = "on_demand"\nper_hour = 0.71\n'
        '[[probe]]\nname = "ranker"\nkind = "transformer"\ndtype = "fp16"\n',
    )
    now_ns = time.time_ns()
    tags = {"host": "h", "device": "gpu0", "probe": "ranker"}
    points = []
    for minute in range(1, 13):
        time_ns = now_ns - minute * 60 * GB
        board = {"host": "h", "device": "gpu0"}
        points += [
            rows.device(
                board, time_ns, 60, 0.71, 60.0, model="NVIDIA L4", mem_total_bytes=24 << 30
            ),
            rows.run(tags, time_ns, 5.2, mem_used_pct=15.0, fingerprint="9f31c07a9f31c07a"),
            rows.run_cost(tags, time_ns, 1.28e-7),
        ]
    for batch, latency_ms, memory_gib in ((1, 1.5, 2), (8, 5.2, 4), (64, 34.0, 20)):
        memory = {"peak_memory_bytes": memory_gib << 30}
        points.append(
            rows.swept(tags, now_ns - GB, batch, latency_ms, energy_j=0.3, cost=1e-7, **memory)
        )
    host.append(points)
    return host


def test_command_names_boards_by_cost_and_takes_results_of_others(cli, tmp_path):
    result = tmp_path / "l40s.json"
    result.write_text(json.dumps({"batch": 64, "latency_p50_ms": 7.5, "energy": None}))
    # The catalogue's prices change; what the boards cost each other is tested above.
    shown = cli("where", "ranker", "--measured", f"L40S={result}").splitlines()
    assert shown[0] == "ranker on gpu0: 19 % of a pass does not grow with the batch"
    assert [line.split()[:4] for line in shown[2:4]] == [
        ["NVIDIA", "L4", "(here)", "8"],
        ["NVIDIA", "L4", "(here)", "64"],
    ]
    assert shown[-1].startswith("no peak rate or power of ")
    (document,) = checked(
        "where", cli("where", "--measured", f"L40S={result}", "ranker", "--json")
    )["probes"]
    boards = {board["gpu_model"]: board for board in document["boards"]}
    ran = boards["NVIDIA L40S"]
    assert (ran["is_measured"], ran["batch"], ran["latency_p50_ms"]["high"]) == (True, 64, 7.5)
    assert boards["Tesla T4"]["batch"] == 8
    assert document["boards"][0]["cost_per_inference"]["value"] > 0
    costs = [
        board["cost_per_inference"]["value"]
        for board in document["boards"]
        if board["fits"] and board["cost_per_inference"]
    ]
    assert costs == sorted(costs)


def test_what_where_cannot_use_is_refused(cli, tmp_path):
    (tmp_path / "good.json").write_text('{"batch": 8, "latency_p50_ms": 1}')
    (tmp_path / "bad.json").write_text('{"batch": 0, "latency_p50_ms": 1}')
    asked = (
        ("--measured", "L40S=bad.json"),
        ("ranker", "--measured", "L40S"),
        ("ranker", "--measured", f"L40S={tmp_path}/bad.json"),
        ("ranker", "--measured", f"L40S={tmp_path}/absent.json"),
        ("ranker", "--measured", f"X99={tmp_path}/bad.json"),
        ("ranker", "--measured", f"A100={tmp_path}/bad.json"),
        ("ranker", "--measured", f"L4={tmp_path}/good.json"),
        ("rankr",),
        ("--decoder", "large"),
        ("--decoder", "4000B"),
        ("ranker", "--decoder", "8B"),
    )
    printed = [cli("where", *words, code=2).replace(str(tmp_path), "") for words in asked]
    same("where_refused", "\n".join(printed))


def test_identical_boards_are_one_that_does_not_deviate_and_has_the_most_batches():
    def on(name, latency_ms, batches=1, board="Here"):
        past = probe(figures(8, latency_ms), on=name)
        swept = tuple(measured(1 + n, latency_ms) for n in range(batches))
        return MeasuredModel(past, Device(name, "gpu", "", board), swept, "fp16")

    boards = [on("gpu0", 10.9, 3), on("gpu1", 10.0), on("gpu2", 10.1), on("gpu3", 10.2)]
    found = typical([*boards, on("gpu4", 30.0, board="Small")])
    assert [one.device.name for one in found] == ["gpu2", "gpu4"]
    (found,) = typical([*boards, on("gpu5", 10.0, 2)])
    assert found.device.name == "gpu5"
