"""A daemon on a Kubernetes node: real gRPC, HTTP and driver calls, with a scripted cluster."""

import json
import os
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from fakes.inference_server import InferenceServer
from fakes.kubelet import Kubelet, pod
from fakes.scenes import OWNED, QUICK_STATUS
from fakes.serving_engine import ServingEngine

TOKEN = "eyJhbGciOi.node-token"  # noqa: S105 - a made-up one


def api_server(port, lists):
    """Return a server with the lists of a cluster, for one node's service account."""
    metadata = {
        "namespace": "prod",
        "name": "chat-7d4b9c6f5d-x2x7k",
        "ownerReferences": [{"kind": "ReplicaSet", "name": "chat-7d4b9c6f5d", "controller": True}],
        "annotations": {"costprobe.io/scrape": "true", "costprobe.io/port": str(port)},
    }
    pods = [{"metadata": metadata, "status": {"phase": "Running", "podIP": "127.0.0.1"}}]

    def answer(call):
        lists.append(call.path)
        if call.headers.get("Authorization") != f"Bearer {TOKEN}":
            call.whole(b"{}", 401)
        elif call.path.startswith("/api/v1/pods?") and "nodeName%3Dnode-1" in call.path:
            call.json({"kind": "PodList", "items": pods})
        else:
            call.whole(b"{}", 404)

    return InferenceServer(answer)


def uuid_of(gpu):
    return f"GPU-0000{gpu:04d}-fake-4000-8000-000000000000"


def test_containers_of_a_node_bear_the_cost_of_their_devices(daemon_in, gpus, tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    engine, lists = ServingEngine(), []
    engine.serve(requests=10)
    with engine.over_http() as server, Kubelet(tmp_path / "kubelet.sock") as kubelet:
        port = server.url.rpartition(":")[2].split("/")[0]
        with api_server(port, lists) as api:
            kubelet.pods = [pod("prod", "chat-7d4b9c6f5d-x2x7k", vllm=[uuid_of(0)])]
            daemon = daemon_in(**gpus.env())
            section = {
                "socket": str(kubelet.socket),
                "every": "300ms",
                "window": "1s",
                "api_url": api.url,
                "node": "node-1",
                "token": f"file:{token}",
            }
            keys = "".join(f"{name} = {json.dumps(value)}\n" for name, value in section.items())
            daemon.start(f"{QUICK_STATUS}{OWNED}\n[kubernetes]\n{keys}")
            name = "prod:chat:vllm"
            served = daemon.wait_for(lambda: daemon.points("serving", service=name))
            engine.serve(requests=21)
            daemon.wait_for(
                lambda: (
                    sum(row.fields["requests"] for row in daemon.points("serving", service=name))
                    >= 21
                )
            )
            # A training job gets the other device, while the kubelet is restarted.
            kubelet.pods.append(pod("ml", "train-b4k9x", main=[uuid_of(1)]))
            kubelet.stop()
            fault = daemon.wait_for(lambda: daemon.state("status")["kubernetes"]["fault"])
            kubelet.start()
            daemon.wait_for(lambda: daemon.points("allocation", service="ml:train:main"))
            status, doctor = daemon.look("status"), daemon.look("doctor", code=None)
    assert served[0].tags["namespace"] == "prod"
    labels = {
        row.tags["service"]: [row.tags.get(tag) for tag in ("namespace", "workload", "container")]
        for row in daemon.points("allocation")
        if row.tags.get("service")
    }
    assert labels == {name: ["prod", "chat", "vllm"], "ml:train:main": ["ml", "train", "main"]}
    assert "unavailable" in fault
    events = [row for row in daemon.points("event") if "kubernetes" in row.fields["title"]]
    # The kubelet has ended for good by now, which may be a third event.
    assert [row.fields["severity"] for row in events][:2] == ["warning", "info"]
    assert "prod:chat:vllm" in status
    # This pod has no process.
    assert "pods that share a GPU are charged by replicas" in doctor
    assert TOKEN not in daemon.output.read_text()
    assert all("nodeName%3Dnode-1" in path for path in lists)


# Of cgroup v2 alone, and of a host with both.
CGROUPS = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/pids")]
UID = "8c2fcc61-7a1c-4b3e-9d5f-2a1b3c4d5e{:02x}"


@contextmanager
def containers():
    """Return a function that starts a process in the cgroup of a container, as a kubelet lays it."""
    root = next((each for each in CGROUPS if (each / "cgroup.procs").exists()), None)
    if root is None or not os.access(root / "cgroup.procs", os.W_OK):
        pytest.skip("no cgroup can be made here")
    made, started = [], []
    top = root / f"costprobe-test-{os.getpid()}"

    def start(number, container):
        leaf = top / "kubepods" / "burstable" / f"pod{UID.format(number)}" / container
        leaf.mkdir(parents=True)
        made.append(leaf)
        process = subprocess.Popen(["sleep", "600"])
        started.append(process)
        (leaf / "cgroup.procs").write_text(str(process.pid))
        return process

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.wait()
        for leaf in made:
            for folder in (leaf, *leaf.parents):
                if folder.is_relative_to(top):
                    with suppress(OSError):
                        folder.rmdir()


def test_pods_share_a_gpu_by_the_time_of_their_processes(daemon_in, gpus, tmp_path):
    gpu, found = gpus.gpus[0], []

    def running(number, name, container):
        status = {"name": "main", "containerID": f"containerd://{container}"}
        metadata = {"namespace": "prod", "name": name, "uid": UID.format(number)}
        return {"metadata": metadata, "status": {"containerStatuses": [status]}}

    def rows(service):
        return [
            row
            for row in daemon.points("allocation", service=f"prod:{service}:main", part="busy")
            if row.fields["basis"] == "use" and row.fields["cost"]
        ]

    with (
        containers() as start,
        Kubelet(tmp_path / "kubelet.sock") as kubelet,
        InferenceServer(lambda call: call.json({"items": found})) as api,
    ):
        chat, train = start(1, "ab" * 32), start(2, "cd" * 32)
        gpu.set(util_pct=80)
        gpu.keep_busy({chat.pid: 60, train.pid: 20})
        kubelet.allocatable = [f"{uuid_of(0)}::{n}" for n in range(4)]
        kubelet.pods = [
            pod("prod", name, main=[f"{uuid_of(0)}::{n}"])
            for n, name in enumerate(["chat", "train"])
        ]
        found += [running(1, "chat", "ab" * 32), running(2, "train", "cd" * 32)]
        daemon = daemon_in(**gpus.env())
        daemon.start(
            f'{QUICK_STATUS}{OWNED}\n[kubernetes]\nsocket = "{kubelet.socket}"\nevery = "300ms"\n'
            f'window = "1s"\napi_url = "{api.url}"\nnode = "node-1"\n'
        )
        daemon.wait_for(lambda: rows("chat") and rows("train"))
        doctor = daemon.look("doctor", code=None)
        by_time = {row.time_ns: row.fields["cost"] for row in rows("train")}
        shares = [
            row.fields["cost"] / by_time[row.time_ns]
            for row in rows("chat")
            if row.time_ns in by_time
        ]
        # The pod ends with its process; another comes, which uses all that is left of the GPU.
        train.kill()
        train.wait()
        batch = start(3, "ef" * 32)
        gpu.keep_busy({chat.pid: 60, batch.pid: 20})
        found[1] = running(3, "batch", "ef" * 32)
        kubelet.pods[1:] = [pod("prod", "batch", main=[f"{uuid_of(0)}::3"])]
        daemon.wait_for(lambda: rows("batch"))
    assert "2 containers with devices; 2 pods on node-1" in doctor
    assert "processes of pods" not in doctor
    assert shares
    assert shares == pytest.approx([3.0] * len(shares))
