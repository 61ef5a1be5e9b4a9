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
OPTIONS = {"allocatable", "configured", "names_max"}
SCRAPED = {"scrape": "true", "port": "8000"}


def held(pod, container, *ids):
    return Container("prod", pod, container, tuple(map(HeldDevice, ids)))


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


def test_each_kind_of_device_is_claimed_with_its_share():
    """Of containers as "pod container ids", with the pool of a claim after "@"; see `record_files`."""

    def claimed(text):
        case = json.loads(text)
        containers = []
        for words in case["held"]:
            pod, container, *ids = words.split()
            devices = tuple(HeldDevice(*each.split("@")) for each in ids)
            containers.append(Container("prod", pod, container, devices))
        pods = {("prod", name): Pod(**own) for name, own in case.get("pods", {}).items()}
        options = {name: case[name] for name in OPTIONS & case.keys()}
        found = claims(*containers, pods=pods, **options)
        by_name = {c.name: [c.devices, dict(c.shares), dict(c.bases)] for c in found.claimants}
        return [by_name, found.unknown, found.problems]

    check_outcomes("pod_claims.json", claimed)


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
