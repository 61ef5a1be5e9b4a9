"""Probes on a real NVIDIA GPU; run with `pytest -m gpu`."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]


def probe(tmp_path, **keys):
    text = "\n".join(f"{name} = {json.dumps(value)}" for name, value in keys.items())
    config = tmp_path / "costprobe.toml"
    config.write_text(f'[store]\npath = "{tmp_path}/costprobe.db"\n[[probe]]\nname = "p"\n{text}\n')
    done = subprocess.run(
        [sys.executable, "-m", "costprobe", "--config", str(config), "probe", "p", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["transformer", "cnn"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_probe_has_energy_from_counter_or_polls(tmp_path, kind, dtype):
    document = probe(tmp_path, kind=kind, dtype=dtype, batch=8)
    assert document["device"].startswith("gpu")
    assert document["samples"] >= 300
    assert document["h2d_ms"] > 0
    assert document["energy"]["energy_method"] in {"counter", "poll"}
    assert document["energy"]["energy_per_inference_j"] > 0
    assert "driver" in document["software"]


def test_throughput_is_the_same_with_and_without_an_energy_window(tmp_path):
    per_s = {
        energy: probe(tmp_path, kind="transformer", dtype="bf16", batch=8, energy=energy)
        for energy in (True, False)
    }
    assert per_s[True]["throughput_per_s"] == pytest.approx(
        per_s[False]["throughput_per_s"], rel=0.03
    )


def test_time_of_the_device_is_the_latency_without_launching(tmp_path):
    small, cold, large = (
        probe(tmp_path, kind="transformer", dtype="bf16", energy=False, **keys)
        for keys in ({"batch": 1}, {"batch": 1, "cold": True}, {"batch": 256})
    )
    # Launch-bound: the host takes longer than the GPU.
    for document in (small, cold):
        assert document["fields"]["device_ms"] < 0.8 * document["latency_p50_ms"]
    assert cold["latency_p50_ms"] > 0.95 * small["latency_p50_ms"]
    assert large["fields"]["device_ms"] == pytest.approx(large["latency_p50_ms"], rel=0.1)
    assert 0 <= small["fields"]["cpu_wait_pct"] <= 100


@pytest.mark.parametrize("cuda_graph", [False, True])
def test_decoder_generates_a_token_of_each_sequence_in_a_pass(tmp_path, cuda_graph):
    document = probe(
        tmp_path, kind="decoder:1B/decode", dtype="bf16", batch=8, cuda_graph=cuda_graph
    )
    fields = document["fields"]
    assert fields["tokens_out"] == 1
    assert fields["tokens_out_per_s"] == pytest.approx(document["throughput_per_s"])
    joules = document["energy"]["energy_per_inference_j"]
    assert fields["energy_per_million_tokens_out_j"] == pytest.approx(joules * 1e6)
