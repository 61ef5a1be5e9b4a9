"""`costprobe calibrate`: what it plans, what it needs, and what it prints."""

import json
from contextlib import closing

import pytest
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.core.records import NS_PER_S, Point
from costprobe.serving.tokens import LengthMix, production_load
from costprobe.ui.cli.calibrate import calibration_document, calibration_lines
from fakes.batching_llm import CACHED_TOKEN_S, BatchingLlm, prefill_share
from fakes.calibrated import calibration_row
from fakes.command import called
from fakes.documents import checked
from fakes.page_examples import missing_lines

OPENAI = 'kind = "openai"\nmodel = "m"\n'
SERVICE = 'engine = "vllm"\ndevices = ["cpu"]\n'


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "costprobe.toml"
    path.write_text(
        f'[store]\npath = "{tmp_path}/costprobe.db"\n'
        '[[price]]\nplan = "on_demand"\nper_hour = 3.6\n'
        f'[[service]]\nname = "chat"\nurl = "http://127.0.0.1:9/metrics"\n{SERVICE}'
        f'[[service]]\nname = "alone"\nurl = "http://127.0.0.1:8"\n{SERVICE}'
        f'[[probe]]\nname = "other"\n{OPENAI}url = "http://127.0.0.1:7"\n'
        f'[[probe]]\nname = "p"\n{OPENAI}url = "http://127.0.0.1:9/v1"\n'
    )
    return path


def serving_row(service, time_ns, **fields):
    known = {"window_s": 300.0, "requests": 60.0, "tokens_in": 60_000.0, "tokens_out": 12_000.0}
    return Point("serving", {"service": service, "engine": "vllm"}, {**known, **fields}, time_ns)


def test_load_of_production_is_the_mean_of_its_busy_time():
    rows = [
        serving_row("chat", 1, busy_share=0.5, decode_request_s=600.0),
        serving_row("chat", 2, requests=0.0, tokens_in=0.0, tokens_out=0.0, busy_share=0.0),
    ]
    found = production_load(rows, servers=2)
    assert (found.mix, found.in_flight) == (LengthMix(1000.0, 200.0), 2)
    without = production_load([serving_row("chat", 1, requests=0.0)], servers=1)
    assert (without.mix, without.in_flight) == (None, None)


@pytest.mark.processes
def test_calibration_states_its_load_and_needs_consent(config, tmp_path):
    now_ns = SystemClock().time_ns()
    with closing(Store.open(tmp_path / "costprobe.db", SystemClock())) as store:
        own = {"busy_share": 1.0, "decode_request_s": 2400.0}
        store.append([serving_row("chat", now_ns - 60 * NS_PER_S, **own)])
    refused = called(config, "calibrate", "chat", code=2).stderr
    assert "calibration of chat by p on cpu: 14 windows, about 7 min, 8 requests in" in refused
    assert "about 1,000 tokens in and 200 out; $0.434 at the present price" in refused
    assert "add --yes, or run it within a [[maintenance]] window" in refused
    cases = {
        "nobody": "unknown service 'nobody'; write one of alone, chat",
        "alone": 'no [[probe]] of kind = "openai" has its address; add one with url =',
        "alone --probe x": "unknown openai probe 'x'; write one of other, p",
        "alone --probe other --tokens-in 9": (
            "its load of the last 24 h is unknown; give --in-flight, --tokens-out"
        ),
    }
    found = {case: called(config, "calibrate", *case.split(), code=2).stderr for case in cases}
    assert {case: text for case, text in found.items() if cases[case] not in text} == {}


def test_result_is_printed_with_intervals_and_conforms_to_its_schema():
    row = calibration_row()
    document = calibration_document(row)
    assert checked("calibrate", json.dumps(document)) == document
    load = "8 requests in flight of about 1,000 tokens in and 200 out"
    lines = calibration_lines(document, load)
    assert lines[0] == f"chat on gpu0, {load}: 10 windows, intervals of 95 %"
    assert lines[1].startswith("  a million tokens in: 24 device-s (24 device-s to 24 device-s), ")
    assert lines[2].startswith("  a million cached tokens in: 3 device-s (3 device-s to ")
    shown = "\n".join(lines).replace("gpu0", "cpu")
    assert missing_lines("serving.md", shown, having="intervals of 95 %") == []
    cold = {
        name: None if name.endswith("_j") or "cached" in name else value
        for name, value in document.items()
    }
    assert checked("calibrate", json.dumps(cold)) == cold
    assert calibration_lines(cold, "")[1].endswith("to 24 device-s)")
    assert "cached tokens in: not measured, they weigh 0" in calibration_lines(cold, "")[2]


@pytest.mark.soak
def test_calibration_of_a_server_is_within_a_tenth_of_its_device_time(tmp_path):
    with BatchingLlm() as server:
        config = tmp_path / "costprobe.toml"
        config.write_text(
            f'[store]\npath = "{tmp_path}/costprobe.db"\n'
            f'[[service]]\nname = "chat"\nurl = "{server.url}"\nengine = "generic"\n'
            'devices = ["cpu"]\ncounters = { requests = "n_total" }\n'
            f'[[probe]]\nname = "p"\n{OPENAI}url = "{server.url}"\nmax_tokens = 4\nrequests = 4\n'
            'load = { warmup = "1s", window = "5s", when_busy = "run" }\n'
        )
        words = ("--in-flight", "4", "--tokens-in", "400", "--tokens-out", "40", "--yes", "--json")
        document = json.loads(called(config, "calibrate", "chat", *words).stdout)
    token_in_s = 400 * document["time_per_million_tokens_in_s"]
    token_out_s = 40 * document["time_per_million_tokens_out_s"]
    share = token_in_s / (token_in_s + token_out_s)
    assert share == pytest.approx(prefill_share(400, 40, 4), abs=0.1)
    assert document["windows"] == 14
    cached_s = [document[f"time_per_million_tokens_cached{end}_s"] for end in ("_low", "", "_high")]
    assert cached_s == sorted(cached_s)
    assert cached_s[1] == pytest.approx(CACHED_TOKEN_S * 1e6, rel=0.5)
