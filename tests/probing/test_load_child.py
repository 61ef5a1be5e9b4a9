"""The child that loads a server, as a process."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from costprobe.adapters.probe_child.runner import LOAD_COMMAND
from fakes.inference_server import InferenceServer, answering_tensors, generating, request

OUT = {"name": "y", "datatype": "FP32", "shape": [1], "data": [1.0]}


@pytest.fixture
def child():
    program, *rest = LOAD_COMMAND
    process = subprocess.Popen(
        (program, "-X", "importtime", *rest),
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
    """The worker's lines up to one of `last_types`."""
    lines = []
    while not lines or lines[-1]["type"] not in last_types:
        lines.append(json.loads(worker.stdout.readline()))
    return lines


def test_servers_are_probed_in_sequence_by_a_child_of_few_imports(child):
    with (
        InferenceServer(generating()) as chat,
        InferenceServer(answering_tensors([OUT])) as tensors,
    ):
        send(child, request(chat.url))
        first = lines_until(child, {"result", "error"})
        send(child, request(tensors.url, "kserve"))
        second = lines_until(child, {"result", "error"})
    assert first[0] == {
        "type": "handshake",
        "pid": child.pid,
        "software": {"python": f"{sys.version_info.major}.{sys.version_info.minor}"},
    }
    assert (first[-1]["type"], first[-1]["samples"]) == ("result", 6), first[-1]
    assert (second[-1]["type"], second[-1]["samples"]) == ("result", 6), second[-1]
    # The handshake is sent once per process.
    assert [line for line in second if line["type"] == "handshake"] == []
    child.stdin.close()
    lines = child.stderr.read().decode().splitlines()
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    assert {"costprobe", "costprobe_probes", "http"} <= imported
    assert not imported & {"torch", "pydantic", "sqlite3", "urllib3"}


def test_core_dumps_are_forbidden_before_the_first_request(child):
    lines_until(child, {"handshake"})
    assert resource.prlimit(child.pid, resource.RLIMIT_CORE) == (0, 0)
    assert Path(f"/proc/{child.pid}/oom_score_adj").read_text() == "500\n"
