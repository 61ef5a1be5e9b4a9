"""Claims after the kubelet has stopped answering."""

from costprobe.adapters.kubernetes.api_server import KubernetesConfig
from costprobe.core.records import Device
from costprobe.serving.pods import Pods
from fakes.clock import FakeClock
from fakes.kubelet import Kubelet, pod


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
