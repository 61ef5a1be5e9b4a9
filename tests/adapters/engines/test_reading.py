"""The counters of each engine, in recorded expositions."""

import re
from pathlib import Path

import pytest
from costprobe.adapters.engines.exposition import ScrapeError
from costprobe.adapters.engines.scrape import engine_of, engine_of_page, read_counters
from costprobe.adapters.engines.tables import ENGINES
from costprobe.serving.settings import ServiceConfig

RECORDED = Path(__file__).parent / "exposition"


def service(engine="vllm", **keys):
    return ServiceConfig.model_validate(
        {"name": "s", "url": "http://h:1", "engine": engine, "devices": ["gpu0"], **keys}
    )


def read(text, engine="vllm", **keys):
    config = service(engine, **keys)
    return read_counters(text.encode(), engine_of(config), config.models, config.model or "")


def recorded(engine):
    return (RECORDED / f"{engine}.txt").read_text()


def by_model(reading):
    found = {}
    for measure, counted in reading.measures.items():
        for value in counted.series.values():
            model = found.setdefault(value.model, {})
            model[measure] = model.get(measure, 0) + value.value
    return found


EXPECTED = {
    # 540 stopped and 60 reached their length; 7 were aborted and 1 failed. The time of decode is not the
    # sum of the requests' time per output token (9.12).
    "vllm": {"Qwen/Qwen2.5-7B-Instruct": {
        "requests": 600, "errors": 8, "tokens_in": 184320, "tokens_out": 92160, "cached_tokens": 61440,
        "decode_request_s": 1404.0,
    }},
    # Computed and cached, of one of the two ranks that both count them; decoded, and the first token of each
    # request, which prefill generates.
    "sglang": {"meta-llama/Llama-3.1-8B-Instruct": {
        "requests": 15301, "errors": 12, "tokens_in": 8.2e6, "tokens_out": 7.6e6 + 15301,
        "cached_tokens": 1.3e6, "prefill_s": 310.5, "decode_s": 2794.5, "decode_request_s": 92000.0,
    }},
    "tgi": {"": {
        "requests": 1000, "errors": 26, "tokens_in": 256000, "tokens_out": 120000, "prefill_s": 20.6,
        "decode_s": 602.4,
    }},
    "triton": {
        "detector": {
            "requests": 4000, "errors": 6, "inferences": 16000, "compute_request_s": 30, "executions": 2000,
        },
        # Both versions.
        "ranker": {
            "requests": 1000, "errors": 0, "inferences": 10000, "compute_request_s": 10, "executions": 340,
        },
    },
    "torchserve": {"mnist": {"requests": 400, "compute_request_s": 25}, "": {"errors": 3}},
    "kserve": {"sklearn-iris": {"requests": 250, "compute_request_s": 4.25}},
    "mlserver": {"tiny": {"requests": 61, "errors": 7, "compute_request_s": 1.0392556340011652}},
    # 3 were cancelled, 4 refused.
    "tensorrt_llm": {"Qwen/Qwen3-0.6B": {
        "requests": 155, "errors": 7, "tokens_in": 31600, "tokens_out": 15800, "cached_tokens": 6400,
        "decode_request_s": 41.5,
    }},
    "dynamo": {"qwen/qwen3-0.6b": {
        "requests": 1, "errors": 2, "tokens_in": 33, "tokens_out": 300, "cached_tokens": 16,
        "decode_request_s": 0.6126917290000005,
    }},
    # 1,021 computed and 1,212 cached.
    "llamacpp": {"": {
        "tokens_in": 2233, "tokens_out": 248, "cached_tokens": 1212, "decode_request_s": 1.36836,
    }},
    "lmdeploy": {"internlm3-8b": {
        "requests": 310, "errors": 7, "tokens_in": 93000, "tokens_out": 46500, "cached_tokens": 12000,
        "decode_request_s": 812.5,
    }},
    "nim": {"meta/llama-3.1-8b-instruct": {
        "requests": 5, "errors": 0, "tokens_in": 109, "tokens_out": 174,
        "decode_request_s": 1.856855869293213,
    }},
    "litellm": {
        "mock-basic": {"requests": 10, "tokens_in": 100, "tokens_out": 200},
        "mock-cache-read": {"requests": 3, "tokens_in": 6000, "tokens_out": 60, "cached_tokens": 4800},
        "mock-fail": {"errors": 2},
    },
    # Two workers of one node; the gauges repeat the counters.
    "ray_vllm": {"qwen": {
        "requests": 500, "errors": 6, "tokens_in": 100000, "tokens_out": 50000, "cached_tokens": 16000,
        "decode_request_s": 512.5,
    }},
}  # fmt: skip


def test_counters_of_each_engine_are_found():
    assert EXPECTED.keys() == ENGINES.keys()
    wrong = {}
    for engine, expected in EXPECTED.items():
        reading = read(recorded(engine), engine)
        found = by_model(reading)
        exact = {model: pytest.approx(counts) for model, counts in expected.items()}
        if reading.missing or found != exact:
            wrong[engine] = reading.missing, found
    assert wrong == {}


def test_predictions_of_kserve_that_failed_are_no_answers():
    text = (
        'request_predict_seconds_count{model_name="a"} 9\n'
        'request_postprocess_seconds_count{model_name="a"} 7\n'
    )
    assert by_model(read(text, "kserve"))["a"]["requests"] == 7


def test_requests_that_the_queue_of_vllm_refuses_are_errors():
    row = (
        'vllm:admission_rejections_total{{model_name="Qwen/Qwen2.5-7B-Instruct",reason="{}"}} {}\n'
    )
    rows = row.format("max_num_queued_reqs", 3) + row.format("max_num_queued_tokens", 2)
    before, after = (by_model(read(recorded("vllm") + added)) for added in ("", rows))
    (model,) = after
    assert after[model] == before[model] | {"errors": before[model]["errors"] + 5}


def test_prompts_of_llamacpp_before_it_counted_the_cache():
    text = "llamacpp:prompt_tokens_total 12\nllamacpp:tokens_predicted_total 3\n"
    found = read(text, "llamacpp")
    assert (by_model(found), found.missing) == ({"": {"tokens_in": 12, "tokens_out": 3}}, ())


def test_pages_whose_names_were_rewritten_are_read_alike():
    """Routers and agents write "_" for ":"; Dynamo wrote ":" after the prefix; clients add `_total`."""
    wrong = []
    for engine, prefix in ((name, row.prefix) for name, row in ENGINES.items() if row.prefix):
        page = recorded(engine)
        for start in (prefix[:-1] + ":", prefix[:-1] + "_"):
            text = re.sub(rf"(?m)^(# [A-Z]+ )?{prefix}", rf"\g<1>{start}", page)
            if by_model(read(text, engine)) != by_model(read(page, engine)):
                wrong.append((engine, start))
            # Before the first request the prefix alone shows that nothing was counted.
            idle = read(f"# TYPE {start}other gauge\n{start}other 0\n", engine)
            if idle.missing:
                wrong.append((engine, start, idle.missing))
    assert not wrong
    text = recorded("vllm").replace("_total", "").replace("vllm:", "vllm_")
    assert by_model(read(text)) == by_model(read(recorded("vllm")))
    text = recorded("triton").replace("nv_inference_count{", "nv_inference_count_total{")
    assert by_model(read(text, "triton")) == by_model(read(recorded("triton"), "triton"))


def test_tensorrt_llm_without_a_prefix():
    """As 1.1.0rc5 exposes it, without tokens; it is not taken for NIM, which has the names too."""
    page = (
        "# TYPE request_success_total counter\n"
        'request_success_total{engine_type="trtllm",finished_reason="stop",model_name="m"} 7.0\n'
        'e2e_request_latency_seconds_count{engine_type="trtllm",model_name="m"} 7.0\n'
        'e2e_request_latency_seconds_sum{engine_type="trtllm",model_name="m"} 21.0\n'
    )
    found = read(page, "tensorrt_llm")
    assert (by_model(found), found.missing) == ({"m": {"requests": 7}}, ())
    assert engine_of_page(page.encode()) == "tensorrt_llm"
    assert engine_of_page(recorded("nim").encode()) == "nim"
    new = recorded("tensorrt_llm")
    assert by_model(read(new.replace("trtllm_", ""), "tensorrt_llm")) == by_model(
        read(new, "tensorrt_llm")
    )


def test_saturation_and_estimated_work():
    label = 'engine="{}",model_name="Qwen/Qwen2.5-7B-Instruct"'
    vllm = recorded("vllm") + "".join(
        f"vllm:{name}{{{label.format(1)}}} {value}\n"
        for name, value in (
            ("num_requests_waiting", 3),
            ("kv_cache_usage_perc", 0.2841),
            ("estimated_flops_per_gpu_total", 5e15),
            ("estimated_read_bytes_per_gpu_total", 4e12),
            ("estimated_write_bytes_per_gpu_total", 1e12),
        )
    )
    ranks = "".join(
        f'sglang:{name}{{tp_rank="{rank}",dp_rank="{dp}"}} {value}\n'
        for name, value in (("num_queue_reqs", 2), ("token_usage", 0.5))
        for rank in (0, 1)
        for dp in (0, 1)
    )
    expected = {
        "vllm": (vllm, {"kv_cache_share": 0.1841, "requests_waiting": 3}),
        "sglang": (ranks, {"kv_cache_share": 0.5, "requests_waiting": 4}),
        "tgi": (recorded("tgi"), {"requests_waiting": 0}),
        "triton": (recorded("triton"), {"requests_waiting": 1}),
        "llamacpp": (recorded("llamacpp"), {"requests_waiting": 0}),
        "tensorrt_llm": (
            "trtllm_kv_cache_utilization 0.7\ntrtllm_num_requests_waiting 9\n",
            {"kv_cache_share": 0.7, "requests_waiting": 9},
        ),
        "kserve": (recorded("kserve"), {}),
    }
    assert {name: read(page, name).gauges for name, (page, _) in expected.items()} == {
        name: pytest.approx(gauges) for name, (_, gauges) in expected.items()
    }
    (counts,) = by_model(read(vllm)).values()
    assert (counts["estimated_flop"], counts["estimated_bytes"]) == (5e15, 5e12)


def test_missing_counter_is_named_and_the_rest_is_counted():
    for engine, name, missing_name in (
        ("vllm", "vllm:prompt_tokens", "vllm:prompt_tokens_total (tokens_in)"),
        ("vllm", "vllm:request_success", "vllm:request_success_total (requests)"),
        ("tgi", "tgi_request_generated_tokens", "tgi_request_generated_tokens_sum (tokens_out)"),
        ("triton", "nv_inference_count", "nv_inference_count (inferences)"),
    ):
        reading = read(recorded(engine).replace(name, f"{name}_renamed"), engine)
        assert reading.missing == (missing_name,)
        assert reading.measures


def test_metrics_of_another_server_are_reported_as_missing():
    reading = read(recorded("tgi"), "vllm")
    assert len(reading.missing) == 3
    assert "vllm:request_success_total (requests); no metric begins with vllm:" in (reading.missing)


def test_counter_before_its_first_count_is_zero():
    for engine, text in (
        ("tgi", "# TYPE tgi_queue_size gauge\ntgi_queue_size 0\n"),
        # Input is counted when a request comes, the others when it was answered.
        ("tgi", "tgi_request_input_length_sum 20\ntgi_request_input_length_count 1\n"),
        ("kserve", "# TYPE request_predict_seconds histogram\n"),
    ):
        reading = read(text, engine)
        assert reading.missing == (), text
        assert reading.measures["requests"].series == {}, text


def test_gauge_is_rejected():
    text = "# TYPE served gauge\nserved 5\n"
    with pytest.raises(ScrapeError, match="served is a gauge; name a counter"):
        read(text, "generic", counters={"requests": "served"})


def test_sglang_without_realtime_tokens_uses_finished_requests():
    text = recorded("sglang").replace("realtime_tokens", "gone")
    (counts,) = by_model(read(text, "sglang")).values()
    assert (counts["tokens_in"], counts["tokens_out"]) == (8.128902e6, 7.557572e6)
    assert counts["cached_tokens"] == 1.3e6


def test_repeated_counts_of_ranks_are_read_once():
    row = 'sglang:realtime_tokens_total{{mode="decode",dp_rank="{}",tp_rank="{}"}} {}\n'
    rows = [row.format(dp, tp, 100 + tp) for dp, tp in ((0, 10), (0, 9), (1, 12), (1, 11))]
    reading = read("sglang:num_requests_total 1\n" + "".join(rows), "sglang")
    counted = reading.measures["tokens_out"].series.values()
    assert sorted(value.value for value in counted) == [1, 109, 111]


def test_counters_without_repeated_work_are_preferred():
    added = (
        'vllm:prompt_tokens_cached_total{engine="0",model_name="Qwen/Qwen2.5-7B-Instruct"} 60000\n'
    )
    (counts,) = by_model(read(recorded("vllm") + added)).values()
    assert counts["cached_tokens"] == 60000
    row = 'sglang:prefill_effective_tokens_total{{mode="{}",tp_rank="{}"}} {}\n'
    modes = {"input": 5e6, "device_hit": 1e6, "host_hit": 2e5, "storage_hit": 3e4}
    rows = "".join(row.format(mode, tp, n) for mode, n in modes.items() for tp in (0, 1))
    counts = by_model(read(recorded("sglang") + rows, "sglang"))
    assert counts[""] == {"tokens_in": 6.23e6, "cached_tokens": 1.23e6}


def test_mixed_passes_of_sglang_are_compute_of_neither_kind():
    row = 'sglang:forward_execution_seconds_total{category="mixed"} 7\n'
    assert by_model(read(recorded("sglang") + row, "sglang"))[""] == {"compute_s": 7}


def test_generic_engine_reads_configured_counters():
    text = (
        "# TYPE http_requests_total counter\n"
        'http_requests_total{status="200",model="a"} 70\n'
        'http_requests_total{status="200",model="b"} 20\n'
        'http_requests_total{status="500",model="a"} 4\n'
        'busy_ms{model="a"} 1500\n'
    )
    counters = {
        "requests": 'http_requests_total{status="200"}',
        "errors": 'http_requests_total{status="500"}',
        "compute_time": "busy_ms",
        "model_label": "model",
    }
    assert by_model(read(text, "generic", counters=counters)) == {
        "a": {"requests": 70, "errors": 4, "compute_s": 1.5},
        "b": {"requests": 20},
    }
    counters["tokens_in"] = "tokens_read_total"
    assert read(text, "generic", counters=counters).missing == ("tokens_read_total (tokens_in)",)
    tokens = read("read_total 3\n", "generic", counters={"tokens_in": "read_total"})
    assert (by_model(tokens), tokens.missing) == ({"": {"tokens_in": 3}}, ())


def test_only_configured_models_are_counted():
    found = by_model(read(recorded("triton"), "triton", models=["detector"]))
    assert found.keys() == {"detector"}
    reading = read(recorded("triton"), "triton", models=["detector", "fraud"])
    assert reading.missing == ("nv_inference_request_success of the model fraud",)


def test_configured_model_name_is_used_if_the_server_has_none():
    assert by_model(read(recorded("tgi"), "tgi", model="llama")).keys() == {"llama"}


def test_unprintable_model_names_are_cleaned():
    odd = read('vllm:request_success_total{model_name="a\\nb\x07' + "x" * 500 + '"} 1\n')
    (model,) = by_model(odd)
    assert model.startswith("a b xxx")
    assert len(model) == 200
