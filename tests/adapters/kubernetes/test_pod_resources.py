"""The kubelet's PodResources API over real gRPC: answers, restarts, limits and churn."""

import pytest
from costprobe.adapters.kubernetes import pod_resources
from costprobe.adapters.kubernetes.pod_resources import (
    Container,
    HeldDevice,
    KubernetesError,
    PodResources,
)
from fakes.kubelet import Kubelet, pod


@pytest.fixture
def kubelet(tmp_path):
    with Kubelet(tmp_path / "kubelet.sock") as running:
        yield running


def test_containers_and_their_devices_are_listed(kubelet):
    kubelet.pods = [
        pod("prod", "chat-0", vllm=["GPU-0", "GPU-1"], sidecar=[]),
        pod("prod", "web-1", nginx=[]),
        pod("dev", "notebook", main=["MIG-1"]),
        pod("dev", "shared", a=["GPU-2::0"], b=["GPU-2::1"]),
        pod("dra", "claimant", claims={"main": [("node-1", "gpu-3")]}, main=[]),
    ]
    kubelet.allocatable = ["GPU-0", "GPU-2::0", "GPU-2::1"]
    node = PodResources(kubelet.socket).read()
    assert node.containers == (
        Container("prod", "chat-0", "vllm", (HeldDevice("GPU-0"), HeldDevice("GPU-1"))),
        Container("dev", "notebook", "main", (HeldDevice("MIG-1"),)),
        Container("dev", "shared", "a", (HeldDevice("GPU-2::0"),)),
        Container("dev", "shared", "b", (HeldDevice("GPU-2::1"),)),
        Container("dra", "claimant", "main", (HeldDevice("gpu-3", "node-1"),)),
    )
    assert node.allocatable == ("GPU-0", "GPU-2::0", "GPU-2::1")


def test_restarted_kubelet_is_read_again(kubelet):
    resources = PodResources(kubelet.socket)
    kubelet.pods = [pod("prod", "chat-0", vllm=["GPU-0"])]
    before = resources.read()
    kubelet.stop()
    with pytest.raises(KubernetesError, match=r"kubelet\.sock: unavailable"):
        resources.read()
    kubelet.start()
    assert resources.read() == before


def test_unusable_kubelets_are_reported(kubelet, monkeypatch):
    resources = PodResources(kubelet.socket)
    kubelet.pods = [pod("prod", f"chat-{n}", vllm=["GPU-0"]) for n in range(4)]
    monkeypatch.setattr(pod_resources, "MAX_BYTES", 100)
    with pytest.raises(KubernetesError, match="resource exhausted"):
        resources.read()
    kubelet.hangs = True
    monkeypatch.setattr(pod_resources, "TIMEOUT_S", 0.05)
    with pytest.raises(KubernetesError, match="deadline exceeded"):
        resources.read()
