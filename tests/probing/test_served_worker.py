"""The real worker on a real server, under an interpreter that has no torch."""

import json
import subprocess
import sys

import pytest
from fakes.inference_server import InferenceServer, answering_tensors, generating, request

from agent.probing.child import PROBES_FOLDER, worker_command

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


def tell(worker, line):
    worker.stdin.write(json.dumps(line).encode() + b"\n")
    worker.stdin.flush()


def hear(worker, last):
    """Lines until one of the types that are last; the sensors read at each edge."""
    lines = []
    while not lines or lines[-1]["type"] not in last:
        lines.append(json.loads(worker.stdout.readline()))
        if lines[-1]["type"] in {"region_start", "region_end"}:
            tell(worker, {"cmd": "continue"})
    return lines


def test_servers_are_probed_one_after_the_other_without_torch(worker):
    with (
        InferenceServer(generating()) as chat,
        InferenceServer(answering_tensors([OUT])) as tensors,
    ):
        tell(worker, request(chat.url))
        first = hear(worker, {"served_result", "error"})
        tell(worker, request(tensors.url, "kserve"))
        second = hear(worker, {"served_result", "error"})
    assert first[0] == {
        "type": "hello",
        "pid": worker.pid,
        "software": {"python": f"{sys.version_info.major}.{sys.version_info.minor}"},
    }
    assert (first[-1]["type"], first[-1]["samples"]) == ("served_result", 6), first[-1]
    assert (second[-1]["type"], second[-1]["samples"]) == ("served_result", 6), second[-1]
    # Once a process.
    assert [line for line in second if line["type"] == "hello"] == []
    worker.stdin.close()
    imported = worker.stderr.read().decode()
    assert "probes.served.session" in imported
    assert "torch" not in imported


def test_a_server_that_is_not_there_and_a_missing_torch_are_both_told_of(worker):
    server = InferenceServer(lambda call: call.json({}, 401))
    with server:
        tell(worker, request(server.url))
        refused = hear(worker, {"served_result", "error"})[-1]
    assert (refused["type"], refused["kind"]) == ("error", "config")
    assert "http_401: set token_path" in refused["message"]
    tell(worker, {"cmd": "probe", "probe": "p", "kind": "cnn", "torch_device": "cpu"})
    missing = hear(worker, {"result", "error"})[-1]
    assert "torch cannot be imported" in missing["message"]


SHORT_REGIONS = """
from probes.served.session import ServedSession
from probes.wire import Wire
wire = Wire()
ServedSession(wire, least_region_s=0.2).run(wire.request())
"""


def test_an_energy_region_ends_when_the_sensors_have_read_its_edge():
    with (
        InferenceServer(answering_tensors([OUT], pause_s=0.005)) as server,
        subprocess.Popen(
            (sys.executable, "-c", SHORT_REGIONS),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=PROBES_FOLDER.parent,
        ) as process,
    ):
        wanted = {"energy": True, "region_s": 0.2, "tail_s": 60.0, "requests": 4}
        tell(process, request(server.url, "kserve", **wanted))
        lines = hear(process, {"served_result"})
    result = lines[-1]
    edges = {x["type"]: x["t_ns"] for x in lines if x["type"].startswith("region")}
    assert edges == {
        "region_start": result["region_start_ns"],
        "region_end": result["region_end_ns"],
    }
    # Long before the tail was over, which a sensor that is silent would have waited for.
    assert result["steady_end_ns"] - result["region_end_ns"] < 60e9
    assert result["region_requests"] > 0
