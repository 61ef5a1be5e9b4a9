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
        found = pod_claims(
            NodeDevices(tuple(containers), tuple(case.get("allocatable", ()))),
            pods,
            IDS,
            KubernetesConfig(),
            configured=case.get("configured", ()),
            find_engine=lambda _: case.get("engine", "vllm"),
            limited=ModelNames(FakeClock().time_ns, names_max=case.get("names_max", 256)).name,
        )
        by_name = {}
        for c in found.claimants:
            own = [c.devices, dict(c.shares), dict(c.bases), c.labels]
            service = c.service and [c.service.url, c.service.engine, c.service.row_tags]
            by_name[c.name] = [*own, service]
        problems = [problem.partition(": Input")[0] for problem in found.problems]
        return [by_name, found.unknown, problems]

    check_outcomes("pod_claims.json", claimed)


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
