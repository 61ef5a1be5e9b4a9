"""The counters of each engine, in recorded expositions."""

import re
import tomllib
from collections import Counter
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


def test_counters_of_each_engine_are_found():
    expected = tomllib.loads((RECORDED / "expected.toml").read_text())
    assert expected.keys() == ENGINES.keys()
    wrong = {}
    for engine, counts in expected.items():
        reading = read(recorded(engine), engine)
        found = by_model(reading)
        if reading.missing or found != {model: pytest.approx(own) for model, own in counts.items()}:
            wrong[engine] = reading.missing, found
    assert wrong == {}


QWEN = 'model_name="Qwen/Qwen2.5-7B-Instruct"'


def test_versions_and_options_of_an_engine_count_alike():
    """Rows that replace or add to those of a recorded page, and what changes in the sums of its models."""
    rejected = "".join(
        f'vllm:admission_rejections_total{{{QWEN},reason="{reason}"}} {count}\n'
        for reason, count in (("max_num_queued_reqs", 3), ("max_num_queued_tokens", 2))
    )
    cached = f'vllm:prompt_tokens_cached_total{{engine="0",{QWEN}}} 60000\n'
    modes = {"input": 5e6, "device_hit": 1e6, "host_hit": 2e5, "storage_hit": 3e4}
    effective = "".join(
        f'sglang:prefill_effective_tokens_total{{mode="{mode}",tp_rank="{rank}"}} {count}\n'
        for mode, count in modes.items()
        for rank in (0, 1)
    )
    # Computed in passes of both kinds: compute of neither.
    mixed = 'sglang:forward_execution_seconds_total{category="mixed"} 7\n'
    vllm, sglang = recorded("vllm"), recorded("sglang")
    finished = {"tokens_in": 8.128902e6, "tokens_out": 7.557572e6, "cached_tokens": 1.3e6}
    wrong = []
    for engine, page, changes in (
        ("vllm", vllm + rejected, {"errors": 13}),
        ("vllm", vllm + cached, {"cached_tokens": 60000}),
        ("sglang", sglang + effective, {"tokens_in": 6.23e6, "cached_tokens": 1.23e6}),
        ("sglang", sglang + mixed, {"compute_s": 7}),
        ("sglang", sglang.replace("realtime_tokens", "gone"), finished),
    ):
        sums = Counter()
        for counts in by_model(read(page, engine)).values():
            sums.update(counts)
        if not sums.items() >= changes.items():
            wrong.append((engine, changes, sums))
    assert wrong == []


def test_pages_of_few_counters_are_read_as_far_as_they_go():
    rank = 'sglang:realtime_tokens_total{{mode="decode",dp_rank="{}",tp_rank="{}"}} {}\n'
    ranks = [rank.format(dp, tp, 100 + tp) for dp, tp in ((0, 10), (0, 9), (1, 12), (1, 11))]
    ranks.append("sglang:num_requests_total 1\n")
    kserve = (
        'request_predict_seconds_count{model_name="a"} 9\n'
        'request_postprocess_seconds_count{model_name="a"} 7\n'
    )
    llamacpp = "llamacpp:prompt_tokens_total 12\nllamacpp:tokens_predicted_total 3\n"
    tgi = "tgi_request_input_length_sum 20\ntgi_request_input_length_count 1\n"
    for engine, page, expected in (
        # Predictions that failed are no answers.
        ("kserve", kserve, {"a": {"requests": 7}}),
        # Before it counted the cache.
        ("llamacpp", llamacpp, {"": {"tokens_in": 12, "tokens_out": 3}}),
        # Each rank repeats the counts of its group: the lowest one is read.
        ("sglang", "".join(ranks), {"": {"requests": 1, "tokens_out": 1 + 109 + 111}}),
        # Input is counted when a request comes, the others when it was answered.
        ("tgi", tgi, {"": {"tokens_in": 20}}),
        ("tgi", "# TYPE tgi_queue_size gauge\ntgi_queue_size 0\n", {}),
        ("kserve", "# TYPE request_predict_seconds histogram\n", {}),
    ):
        reading = read(page, engine)
        assert (by_model(reading), reading.missing) == (expected, ()), page


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
    foreign = read(recorded("tgi"), "vllm").missing
    assert len(foreign) == 3
    assert "vllm:request_success_total (requests); no metric begins with vllm:" in foreign


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

    with pytest.raises(ScrapeError, match="served is a gauge; name a counter"):
        read("# TYPE served gauge\nserved 5\n", "generic", counters={"requests": "served"})


def test_models_are_those_that_are_configured_with_printable_names():
    found = by_model(read(recorded("triton"), "triton", models=["detector"]))
    assert found.keys() == {"detector"}
    reading = read(recorded("triton"), "triton", models=["detector", "fraud"])
    assert reading.missing == ("nv_inference_request_success of the model fraud",)
    # Of a server that has no names.
    assert by_model(read(recorded("tgi"), "tgi", model="llama")).keys() == {"llama"}
    odd = read('vllm:request_success_total{model_name="a\\nb\x07' + "x" * 500 + '"} 1\n')
    (model,) = by_model(odd)
    assert (model[:7], len(model)) == ("a b xxx", 200)
