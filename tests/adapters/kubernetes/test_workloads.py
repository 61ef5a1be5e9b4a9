"""Names of workloads, ids of devices, and the documents of the API server."""

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
from record.record_files import check_outcomes


def test_workloads_are_named_without_what_kubernetes_generates():
    """Pods with kind and name of their owner, "-" for none, or without what the API server knows."""

    def workload_of(text):
        pod, *details = text.split()
        return workload_name(pod, Pod(*details if details != ["-"] else ()) if details else None)

    check_outcomes("workload_names.json", workload_of)


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
    check_outcomes("held_devices.json", lambda text: ids.device_of(HeldDevice(*text.split())))


def test_documents_of_the_api_server_are_read_or_refused():
    """The record has the pods (HAMi 2.9 writes a container for each ";", init containers first) and slices."""

    def parsed(text):
        found = []
        for parse in (parse_pods, parse_slices):
            try:
                found.append(
                    {" ".join(key): repr(each) for key, each in parse(text.encode()).items()}
                )
            except KubernetesError as error:
                found.append(str(error))
        return found

    check_outcomes("api_server_texts.json", parsed)


def test_containers_and_pods_are_found_in_the_cgroups_of_processes():
    """Of v1 and v2, systemd and cgroupfs, containerd, cri-o, Docker, kind, and a static pod."""
    check_outcomes("cgroup_texts.json", lambda text: list(cgroup_ids(text)))
