"""The claims of a node's containers: whole, sliced and shared devices, workloads, annotations."""

import json
from pathlib import Path

from costprobe.adapters.engines.scrape import ModelNames, engine_of_page
from costprobe.adapters.kubernetes.api_server import DeviceIds, KubernetesConfig, Pod
from costprobe.adapters.kubernetes.pod_resources import Container, HeldDevice, NodeDevices
from costprobe.core.records import Device
from costprobe.serving.pods import Pods, pod_claims
from fakes.clock import FakeClock
from fakes.kubelet import Kubelet, pod
from fakes.serving_engine import ServingEngine
from record.record_files import check_outcomes

DEVICES = [
    *(Device(f"gpu{n}", "gpu", f"GPU-{n}", "H100") for n in range(4)),
    *(Device(f"gpu3.mig{n}", "mig", f"MIG-{n}", "H100 1g", parent="gpu3") for n in range(2)),
]
IDS = DeviceIds(DEVICES, {("node", "gpu-2"): "GPU-2"})
SCRAPED = {"scrape": "true", "port": "8000"}


def held(pod, container, *ids, namespace="prod", pool=""):
    return Container(namespace, pod, container, tuple(HeldDevice(name, pool) for name in ids))


def claims(*containers, pods=None, allocatable=(), configured=(), engine="vllm", names_max=256):
    return pod_claims(
        NodeDevices(containers, tuple(allocatable)),
        pods or {},
        IDS,
        KubernetesConfig(),
        configured=configured,
        find_engine=lambda _: engine,
        limited=ModelNames(FakeClock().time_ns, names_max=names_max).name,
    )


def by_name(found):
    return {c.name: (c.devices, dict(c.shares)) for c in found.claimants}


def test_each_kind_of_device_is_claimed_with_its_share():
    replicas = [f"GPU-1::{n}" for n in range(4)]
    cases = {
        "whole devices": (
            claims(held("chat-0", "vllm", "GPU-0", "GPU-1"), allocatable=["GPU-0", "GPU-1"]),
            {"prod:chat:vllm": (("gpu0", "gpu1"), {})},
        ),
        "slices of a board": (
            claims(held("a-0", "m", "MIG-0"), held("b-0", "m", "MIG-1")),
            {"prod:a:m": (("gpu3.mig0",), {}), "prod:b:m": (("gpu3.mig1",), {})},
        ),
        "replicas of a time-sliced device; the free one is nobody's": (
            claims(
                held("a-0", "m", "GPU-1::0", "GPU-1::1"),
                held("b-0", "m", "GPU-1::3"),
                allocatable=replicas,
            ),
            {"prod:a:m": (("gpu1",), {"gpu1": 0.5}), "prod:b:m": (("gpu1",), {"gpu1": 0.25})},
        ),
        "replicas without a list of them": (
            claims(held("a-0", "m", "GPU-1::0"), held("b-0", "m", "GPU-1::3")),
            {"prod:a:m": (("gpu1",), {"gpu1": 0.5}), "prod:b:m": (("gpu1",), {"gpu1": 0.5})},
        ),
        "a claim that two containers share": (
            claims(held("a-0", "m", "gpu-2", pool="node"), held("b-0", "m", "gpu-2", pool="node")),
            {"prod:a:m": (("gpu2",), {"gpu2": 0.5}), "prod:b:m": (("gpu2",), {"gpu2": 0.5})},
        ),
        "two pods of a workload, and one container that a service is configured for": (
            claims(
                held("chat-0", "vllm", "GPU-0"),
                held("chat-1", "vllm", "GPU-1"),
                held("mine-0", "vllm", "GPU-2"),
                configured=["gpu2"],
            ),
            {"prod:chat:vllm": (("gpu0", "gpu1"), {})},
        ),
        "a pod that has ended": (
            claims(
                held("old-0", "m", "GPU-0"),
                held("new-0", "m", "GPU-0"),
                pods={("prod", "old-0"): Pod(is_ended=True)},
            ),
            {"prod:new:m": (("gpu0",), {})},
        ),
        "more workloads than are named": (
            claims(*(held(f"w{n}-0", "m", f"GPU-{n}") for n in range(3)), names_max=1),
            {"prod:w0:m": (("gpu0",), {}), "other": (("gpu1", "gpu2"), {})},
        ),
    }
    found = {case: by_name(made) for case, (made, _) in cases.items()}
    assert found == {case: expected for case, (_, expected) in cases.items()}


def test_devices_of_hami_are_those_of_its_annotation():
    """Whichever replicas of its device plugin the kubelet gave to the pod."""
    replicas = [f"GPU-{gpu}-{n}" for gpu in (0, 1) for n in range(10)]
    pods = {
        ("prod", "half"): Pod(hami={"m": (("GPU-1", 50),)}),
        ("prod", "two"): Pod(hami={"m": (("GPU-0", 100), ("GPU-1", 20))}),
        ("prod", "free"): Pod(hami={"m": (("GPU-1", 0),), "init": ()}),
        ("prod", "gone"): Pod(hami={"m": (("GPU-9", 0),)}),
        ("prod", "unnamed"): Pod(),
    }
    found = claims(
        *(held(pod, "m", "GPU-0-3") for _, pod in pods),
        held("forged", "m", "GPU-2"),
        pods=pods | {("prod", "forged"): Pod(hami={"m": (("GPU-1", 100),)})},
        allocatable=replicas,
    )
    assert by_name(found) == {
        "prod:half:m": (("gpu1",), {"gpu1": 0.5}),
        "prod:two:m": (("gpu0", "gpu1"), {"gpu0": 1.0, "gpu1": 0.2}),
        "prod:free:m": (("gpu1",), {"gpu1": 0.1}),
        "prod:forged:m": (("gpu2",), {}),
    }
    bases = {claimant.name: dict(claimant.bases) for claimant in found.claimants}
    assert (bases["prod:half:m"], bases["prod:free:m"]) == ({"gpu1": "cores"}, {"gpu1": "replicas"})
    assert found.unknown == ["GPU-9"]
    (problem,) = found.problems
    assert problem.startswith("prod/unnamed: ")
    assert problem.endswith("hami.io/vgpu-devices-allocated: it is missing or malformed")
    (problem,) = claims(held("chat-0", "m", "GPU-0-3")).problems
    assert problem.endswith("api_url is required")


def test_rows_are_labelled_and_devices_that_are_none_of_the_hosts_are_listed():
    odd = held("chat-0", "v\x1b[31m\nllm", "GPU-1")
    found = claims(
        held("chat-0", "vllm", "GPU-0"), odd, held("web-0", "m", "0000:3b:00.0", "GPU-9")
    )
    hostile, named = (claimant.labels for claimant in found.claimants)
    assert named == {"namespace": "prod", "workload": "chat", "container": "vllm"}
    assert hostile["container"].isprintable()
    assert found.unknown == ["0000:3b:00.0", "GPU-9"]


def test_annotated_pods_are_scraped_and_parts_of_a_group():
    """Of an engine over two pods one is scraped; the other has a cost and no counts."""
    group = {"group": "big", "role": "worker"}
    pods = {
        ("prod", "chat-0"): Pod("StatefulSet", "chat", "10.0.0.7", SCRAPED),
        ("prod", "chat-1"): Pod("StatefulSet", "chat", "fd00::7", {**SCRAPED, "path": "/m"}),
        ("prod", "leader-0"): Pod("StatefulSet", "leader", "10.0.0.7", SCRAPED | group),
        ("prod", "worker-0"): Pod("StatefulSet", "worker", "10.0.0.8", {**group, "engine": "vllm"}),
        ("prod", "alone-0"): Pod("StatefulSet", "alone", "10.0.0.9", {"group": "big"}),
    }
    containers = [held(name, "vllm", f"GPU-{n % 4}") for n, (_, name) in enumerate(pods)]
    found = claims(*containers, held("chat-0", "draft", "GPU-1"), pods=pods)
    services = {c.name: c.service for c in found.claimants}
    tags = {"service_group": "big", "service_role": "worker"}
    assert {
        name: one and (one.url, one.engine, one.devices, one.row_tags) for name, one in services.items()
    } == {
        "prod:chat:vllm": (
            ("http://10.0.0.7:8000/metrics", "http://[fd00::7]:8000/m"), "vllm", ("gpu0", "gpu1"), {},
        ),
        "prod:chat:draft": None,
        "prod:leader:vllm": (("http://10.0.0.7:8000/metrics",), "vllm", ("gpu2",), tags),
        "prod:worker:vllm": ((), "vllm", ("gpu3",), tags),
        "prod:alone:vllm": None,
    }  # fmt: skip
    (problem,) = found.problems
    assert problem == "prod:alone:vllm: costprobe.io/engine is needed, as it is not scraped"


def test_annotations_that_cannot_be_used_are_reported_and_the_cost_is_still_allocated():
    def problem_of(text):
        pods = {("prod", "chat-0"): Pod(ip="10.0.0.7", annotations=json.loads(text))}
        found = claims(held("chat-0", "vllm", "GPU-0"), pods=pods)
        assert [claimant.service for claimant in found.claimants] == [None]
        return [problem.partition(": Input")[0] for problem in found.problems]

    check_outcomes("pod_annotations.json", problem_of)
    pods = {("prod", "chat-0"): Pod(ip="10.0.0.7", annotations=SCRAPED)}
    (problem,) = claims(held("chat-0", "vllm", "GPU-0"), pods=pods, engine=None).problems
    assert "no known engine's metrics at http://10.0.0.7:8000/metrics" in problem


def test_engine_is_found_by_its_metrics():
    engine = ServingEngine()
    for requests in (0, 3):
        engine.serve(requests=requests)
        assert engine_of_page(engine.text().encode()) == "vllm"
    pages = Path(__file__).parents[1].joinpath("engines", "exposition").glob("*.txt")
    found = {page.stem: engine_of_page(page.read_bytes()) for page in pages}
    assert found == {name: name for name in found}
    assert engine_of_page(b"# TYPE go_goroutines gauge\ngo_goroutines 3\n") is None
    assert engine_of_page(b"\xff\x00") is None


def test_claims_hold_for_a_window_without_the_kubelet_and_then_end(tmp_path):
    socket = tmp_path / "kubelet.sock"
    clock, changes, events = FakeClock(), [], []
    pods = Pods(
        KubernetesConfig(socket=socket),
        "node-1",
        [Device("gpu0", "gpu", "GPU-0", "H100")],
        [],
        clock,
        on_change=lambda claimants: changes.append([each.name for each in claimants]),
        on_event=events.append,
    )
    with Kubelet(socket) as kubelet:
        kubelet.pods = [pod("prod", "chat-0", vllm=["GPU-0"])]
        pods.refresh()
    clock.move(299)
    pods.refresh()
    assert changes == [["prod:chat:vllm"]]
    clock.move(2)
    pods.refresh()
    assert changes == [["prod:chat:vllm"], []]
    assert "unavailable" in pods.status()["fault"]
    assert [event.severity for event in events] == ["warning"]
