"""A daemon on a Kubernetes node: real gRPC, HTTP and driver calls, with a scripted cluster."""

import json

from fakes.inference_server import InferenceServer
from fakes.kubelet import Kubelet, pod
from fakes.scenes import OWNED, QUICK_STATUS
from fakes.serving_engine import ServingEngine

TOKEN = "eyJhbGciOi.node-token"  # noqa: S105 - a made-up one


UUIDS = [f"GPU-0000{gpu:04d}-fake-4000-8000-000000000000" for gpu in range(2)]


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


def test_containers_of_a_node_bear_the_cost_of_their_devices(daemon_in, gpus, tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    engine, lists = ServingEngine(), []
    engine.serve(requests=10)
    with engine.over_http() as server, Kubelet(tmp_path / "kubelet.sock") as kubelet:
        port = server.url.rpartition(":")[2].split("/")[0]
        with api_server(port, lists) as api:
            kubelet.pods = [pod("prod", "chat-7d4b9c6f5d-x2x7k", vllm=[UUIDS[0]])]
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
            kubelet.pods.append(pod("ml", "train-b4k9x", main=[UUIDS[1]]))
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
