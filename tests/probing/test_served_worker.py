"""The worker process against an HTTP server, in an interpreter without torch."""

import json
import subprocess
import sys

import pytest
from costprobe.adapters.probing.child import PROBES_FOLDER, worker_command
from fakes.inference_server import InferenceServer, answering_tensors, generating, request

OUT = {"name": "y", "datatype": "FP32", "shape": [1], "data": [1.0]}


@pytest.fixture
def worker():
    program, *rest = worker_command(sys.executable)
    # Without site-packages there is no torch, nor anything else but the standard library.
    process = subprocess.Popen(
        (program, "-I", "-S", "-X", "importtime", *rest),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        yield process
        process.kill()


def send(worker, line):
    worker.stdin.write(json.dumps(line).encode() + b"\n")
    worker.stdin.flush()


def lines_until(worker, last_types):
    """The worker's lines up to one of `last_types`; the edges of the window are acknowledged."""
    lines = []
    while not lines or lines[-1]["type"] not in last_types:
        lines.append(json.loads(worker.stdout.readline()))
        if lines[-1]["type"] in {"window_start", "window_end"}:
            send(worker, {"cmd": "continue"})
    return lines


def test_servers_are_probed_in_sequence_without_torch(worker):
    with (
        InferenceServer(generating()) as chat,
        InferenceServer(answering_tensors([OUT])) as tensors,
    ):
        send(worker, request(chat.url))
        first = lines_until(worker, {"served_result", "error"})
        send(worker, request(tensors.url, "kserve"))
        second = lines_until(worker, {"served_result", "error"})
    assert first[0] == {
        "type": "handshake",
        "pid": worker.pid,
        "software": {"python": f"{sys.version_info.major}.{sys.version_info.minor}"},
    }
    assert (first[-1]["type"], first[-1]["samples"]) == ("served_result", 6), first[-1]
    assert (second[-1]["type"], second[-1]["samples"]) == ("served_result", 6), second[-1]
    # The handshake is sent once per process.
    assert [line for line in second if line["type"] == "handshake"] == []
    worker.stdin.close()
    imported = worker.stderr.read().decode()
    assert "costprobe_probes.served.session" in imported
    assert "torch" not in imported


def test_rejected_request_and_missing_torch_are_both_reported(worker):
    server = InferenceServer(lambda call: call.json({}, 401))
    with server:
        send(worker, request(server.url))
        refused = lines_until(worker, {"served_result", "error"})[-1]
    assert (refused["type"], refused["kind"]) == ("error", "config")
    assert "http_401: set token_file" in refused["message"]
    send(worker, {"cmd": "probe", "probe": "p", "kind": "cnn", "torch_device": "cpu"})
    missing = lines_until(worker, {"result", "error"})[-1]
    assert "torch cannot be imported" in missing["message"]


SHORT_WINDOW = """
from costprobe_probes.served.session import ServedSession
from costprobe_probes.wire import Wire
wire = Wire()
ServedSession(wire, min_window_s=0.2).run(wire.request())
"""


def test_energy_window_ends_when_the_sensors_have_read_its_end():
    with (
        InferenceServer(answering_tensors([OUT], pause_s=0.005)) as server,
        subprocess.Popen(
            (sys.executable, "-c", SHORT_WINDOW),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=PROBES_FOLDER.parent,
        ) as process,
    ):
        options = {"energy": True, "window_s": 0.2, "tail_s": 60.0, "requests": 4}
        send(process, request(server.url, "kserve", **options))
        lines = lines_until(process, {"served_result"})
    result = lines[-1]
    edges = {x["type"]: x["t_ns"] for x in lines if x["type"].startswith("window")}
    assert edges == {
        "window_start": result["window_start_ns"],
        "window_end": result["window_end_ns"],
    }
    # Load ends once the end of the window is acknowledged, long before the tail's limit.
    assert result["steady_end_ns"] - result["window_end_ns"] < 60e9
    assert result["window_requests"] > 0
