"""The counters of each engine, in recorded expositions."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from costprobe.adapters.engines.exposition import ScrapeError
from costprobe.adapters.engines.scrape import engine_of, engine_of_page, read_counters
from costprobe.adapters.engines.tables import ENGINES
from costprobe.serving.settings import ServiceConfig
from record.record_files import check_outcomes

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


def test_versions_and_options_of_engines_are_read_as_far_as_they_go():
    """Of recorded pages with changes: sums by model, missing counters and gauges; see `record_files`."""

    def reading(text):
        case = json.loads(text)
        page = recorded(case["page"]) if "page" in case else ""
        page = page.replace(*case.get("replace", ("", ""))) + case.get("add", "")
        found = read(page, case["engine"], **case.get("keys", {}))
        return [by_model(found), found.missing, found.gauges]

    check_outcomes("engine_pages.json", reading, ScrapeError)


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


def test_tensorrt_llm_without_a_prefix_is_not_taken_for_nim():
    """NIM has the names, too."""
    page = 'request_success_total{engine_type="trtllm",finished_reason="stop",model_name="m"} 7.0\n'
    page = f"# TYPE request_success_total counter\n{page}"
    assert engine_of_page(page.encode()) == "tensorrt_llm"
    assert engine_of_page(recorded("nim").encode()) == "nim"
    new = recorded("tensorrt_llm")
    old = by_model(read(new.replace("trtllm_", ""), "tensorrt_llm"))
    assert old == by_model(read(new, "tensorrt_llm"))
