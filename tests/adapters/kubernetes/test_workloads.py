"""Names of workloads, ids of devices, and the documents of the API server."""

import json

import pytest
from costprobe.adapters.kubernetes.api_server import (
    DeviceIds,
    Pod,
    parse_pods,
    parse_slices,
    service_name,
    workload_name,
)
from costprobe.adapters.kubernetes.cgroups import cgroup_ids
from costprobe.adapters.kubernetes.pod_resources import HeldDevice, KubernetesError
from costprobe.core.records import Device

NAMES = [
    # Deployment, StatefulSet, DaemonSet, Job, CronJob, a pod of its own.
    ("chat-7d4b9c6f5d-x2x7k", None, "chat"),
    ("llama-3-70b-6c8b7f9d4-zzzzz", None, "llama-3-70b"),
    ("chat-0", None, "chat"),
    ("chat-12", None, "chat"),
    ("exporter-q8z2v", None, "exporter"),
    ("nightly-29384756-b4k9x", None, "nightly"),
    ("notebook", None, "notebook"),
    ("notebook-alice", None, "notebook-alice"),
    ("chat-7d4b9c6f5d-x2x7k", Pod("ReplicaSet", "chat-7d4b9c6f5d"), "chat"),
    ("chat-0", Pod("StatefulSet", "chat"), "chat"),
    ("nightly-29384756-b4k9x", Pod("Job", "nightly-29384756"), "nightly"),
    ("train-b4k9x", Pod("Job", "train"), "train"),
    ("trainer-worker-0", Pod("PyTorchJob", "trainer"), "trainer"),
    # A bare pod keeps its name, whatever it looks like.
    ("gpu-0", Pod(), "gpu-0"),
]


def test_workloads_are_named_without_what_kubernetes_generates():
    found = [(pod, details, workload_name(pod, details)) for pod, details, _ in NAMES]
    assert found == NAMES


def test_names_of_services_are_bounded_and_differ():
    assert service_name("prod", "chat", "vllm") == "prod:chat:vllm"
    long = {service_name("prod", "a" * 100 + str(n), "vllm") for n in range(50)}
    assert len(long) == 50
    assert {len(name) for name in long} == {64}


def test_devices_are_found_by_the_ids_of_device_plugins_and_claims():
    devices = [
        Device("gpu0", "gpu", "GPU-aa", "H100"),
        Device("gpu1", "gpu", "GPU-bb", "H100"),
        Device("gpu1.mig0", "mig", "MIG-cc", "H100 1g", parent="gpu1", gpu_instance=7),
        Device("gpu1.mig1", "mig", "MIG-dd", "H100 1g", parent="gpu1", gpu_instance=13),
        Device("gpu1.mig2", "mig", "MIG-old-driver", "H100 1g", parent="gpu1"),
    ]
    ids = DeviceIds(devices, {("node-1", "gpu-1"): "GPU-bb", ("node-2", "gpu-1"): "GPU-elsewhere"})
    expected = {
        HeldDevice("GPU-aa"): "gpu0",
        HeldDevice("GPU-bb::7"): "gpu1",
        HeldDevice("MIG-cc"): "gpu1.mig0",
        HeldDevice("MIG-cc::1"): "gpu1.mig0",
        HeldDevice("nvidia1"): "gpu1",
        HeldDevice("nvidia0/vgpu3"): "gpu0",
        HeldDevice("nvidia1/gi7"): "gpu1.mig0",
        HeldDevice("nvidia1/gi13/vgpu0"): "gpu1.mig1",
        HeldDevice("nvidia1/gi1"): None,
        HeldDevice("nvidia0/gi7"): None,
        HeldDevice("nvidia9"): None,
        HeldDevice("GPU-other"): None,
        HeldDevice("0000:3b:00.0"): None,
        HeldDevice("gpu-1", "node-1"): "gpu1",
        HeldDevice("gpu-1", "node-2"): None,
        HeldDevice("gpu-1", "unknown"): None,
    }
    assert {held: ids.device_of(held) for held in expected} == expected


def item(name, *, owner=None, phase="Running", annotations=None):
    metadata = {"namespace": "prod", "name": name, "annotations": annotations}
    if owner:
        kind, owner_name = owner
        metadata["ownerReferences"] = [
            {"kind": "Node", "name": "n"},
            {"kind": kind, "name": owner_name, "controller": True},
        ]
    return {"metadata": metadata, "status": {"phase": phase, "podIP": "10.0.0.7"}}


def test_pods_are_read_from_a_list():
    body = {
        "kind": "PodList",
        "items": [
            item(
                "chat-0",
                owner=("StatefulSet", "chat"),
                annotations={"costprobe.io/scrape": "true", "other.io/x": "y"},
            ),
            item("done", phase="Succeeded"),
            {"metadata": {"namespace": "prod", "name": "pending"}},
        ],
    }
    assert parse_pods(json.dumps(body).encode()) == {
        ("prod", "chat-0"): Pod("StatefulSet", "chat", "10.0.0.7", {"scrape": "true"}),
        ("prod", "done"): Pod(ip="10.0.0.7", is_ended=True),
        ("prod", "pending"): Pod(),
    }


def test_containers_and_devices_of_hami_are_read_with_their_pods():
    statuses = [
        {"name": "vllm", "containerID": "containerd://3f"},
        {"name": "waiting"},
    ]
    # Written by HAMi 2.9: a container of its own for each ";", an init container first.
    cases = {
        "GPU-a,NVIDIA,8000,30:GPU-b,NVIDIA,8000,0:;": {"main": (("GPU-a", 30), ("GPU-b", 0))},
        ";GPU-a,NVIDIA,8000,30:;": {"main": (("GPU-a", 30),), "init": ()},
        "GPU-a,NVIDIA,1,250:;;": {"main": (), "init": (("GPU-a", 100),)},
        "GPU-a,NVIDIA;": {},
        "GPU-a,NVIDIA,1,many:;": {},
        "": {},
    }
    for annotation, hami in cases.items():
        read = item("chat-0", annotations={"hami.io/vgpu-devices-allocated": annotation})
        read["metadata"]["uid"] = "3b5e"
        read["spec"] = {"initContainers": [{"name": "init"}], "containers": [{"name": "main"}]}
        read["status"] |= {"initContainerStatuses": statuses[:1], "containerStatuses": statuses[1:]}
        (pod,) = parse_pods(json.dumps({"items": [read]}).encode()).values()
        assert (pod.uid, pod.container_ids) == ("3b5e", {"vllm": "3f", "waiting": ""})
        assert pod.hami == hami, annotation


def test_containers_and_pods_are_found_in_the_cgroups_of_processes():
    uid, under = "8c2fcc61-7a1c-4b3e-9d5f-2a1b3c4d5e6f", "8c2fcc61_7a1c_4b3e_9d5f_2a1b3c4d5e6f"
    own, inner = "0123456789abcdef" * 4, "fedcba9876543210" * 4
    burstable = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable"
    cases = {
        # cgroup v2 and systemd: containerd, cri-o, cri-dockerd, and a pod in a namespace of its own.
        f"0::/{burstable}-pod{under}.slice/cri-containerd-{own}.scope\n": (own, uid),
        f"0::/{burstable}-pod{under}.slice/crio-{own}.scope/container\n": (own, uid),
        f"0::/kubepods.slice/kubepods-pod{under}.slice/docker-{own}.scope\n": (own, uid),
        f"0::/../../kubepods-besteffort-pod{under}.slice/cri-containerd-{own}.scope\n": (own, uid),
        # cgroupfs; v1 with a line for each controller; containerd with a name of systemd's.
        f"0::/kubepods/besteffort/pod{uid}/{own}\n": (own, uid),
        f"9:name=systemd:/kubepods/pod{uid}/{own}\n3:cpu:/kubepods/pod{uid}/{own}\n0::/\n": (own, uid),
        f"1:name=systemd:/system.slice/containerd.service/kubepods-burstable-pod{under}.slice"
        f":cri-containerd:{own}\n": (own, uid),
        # kind, and docker in a pod: the outer container is first.
        f"0::/docker/{inner}/kubelet/kubepods/pod{uid}/{own}\n": (inner, own, uid),
        f"0::/kubepods/pod{uid}/{own}/docker/{inner}\n": (own, inner, uid),
        # A static pod, whose UID is the checksum of its file; no container.
        f"0::/kubepods/pod{'ab' * 16}/{own}\n": (own,),
        "0::/system.slice/nvidia-persistenced.service\n": (),
        f"0::/user.slice/{own}0\n": (),
        "": (),
    }  # fmt: skip
    assert {text: cgroup_ids(text) for text in cases} == cases


def test_claimable_devices_are_read_from_resource_slices():
    devices = [
        {"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-aa"}, "index": {"int": 0}}},
        {"name": "other", "attributes": {}},
    ]
    body = {
        "items": [
            {"spec": {"pool": {"name": "node-1"}, "devices": devices}},
            {"spec": {"pool": {"name": "p"}}},
        ]
    }
    assert parse_slices(json.dumps(body).encode()) == {("node-1", "gpu-0"): "GPU-aa"}


@pytest.mark.parametrize("parse", [parse_pods, parse_slices])
def test_other_documents_are_refused(parse):
    wrong = [b"<html>", b"[]", b"{}", b'{"items": 3}', b'{"items": [3]}', b'{"items": [{}]}']
    wrong += [
        b'{"items": [{"metadata": null, "spec": {"devices": [{"attributes": {"uuid": 1}}]}}]}'
    ]
    for body in wrong:
        with pytest.raises(KubernetesError, match="the API server"):
            parse(body)
    assert parse(b'{"items": null}') == {}
