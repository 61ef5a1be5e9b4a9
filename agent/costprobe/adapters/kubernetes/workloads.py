"""Names of workloads, and this host's devices by the ids of device plugins; no I/O."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Mapping
from typing import Final

from costprobe.adapters.kubernetes.api_server import Pod
from costprobe.adapters.kubernetes.pod_resources import HeldDevice
from costprobe.core.records import Device

MAX_NAME_CHARS: Final = 64
# Kubernetes generates suffixes from these characters (k8s.io/apimachinery/pkg/util/rand).
_RANDOM: Final = "[bcdfghjklmnpqrstvwxz2456789]"
_REPLICA_SET: Final = re.compile(rf"(.+)-{_RANDOM}{{6,10}}")
_OF_REPLICA_SET: Final = re.compile(rf"(.+)-{_RANDOM}{{6,10}}-{_RANDOM}{{5}}")
_GENERATED: Final = re.compile(rf"(.+)-{_RANDOM}{{5}}")
_ORDINAL: Final = re.compile(r"(.+)-\d{1,5}")
# The time at which a CronJob created a Job, in minutes since 1970.
_CRON_JOB: Final = re.compile(r"(.+)-\d{8}")
# GKE's device plugin: nvidia0, nvidia0/vgpu2; a MIG device by its GPU instance: nvidia0/gi7/vgpu2.
_GKE: Final = re.compile(r"nvidia(\d+)(?:/gi(\d+))?(?:/vgpu\d+)?")


def workload_name(pod: str, details: Pod | None) -> str:
    """Return the workload that a pod belongs to, so that names do not change with each pod.

    Args:
        pod: Name of the pod.
        details: What the API server knows of it; None without an API server, when the name is
            inferred from the suffixes that Kubernetes generates.
    """
    if details is not None and details.owner:
        for kind, pattern in (("ReplicaSet", _REPLICA_SET), ("Job", _CRON_JOB)):
            match = pattern.fullmatch(details.owner)
            if details.owner_kind == kind and match:
                return match[1]
        return details.owner
    if details is not None:
        return pod
    for pattern in (_OF_REPLICA_SET, _GENERATED, _ORDINAL):
        match = pattern.fullmatch(pod)
        if match:
            job = _CRON_JOB.fullmatch(match[1])
            return job[1] if job else match[1]
    return pod


def service_name(namespace: str, workload: str, container: str) -> str:
    """Return the value of the tag `service` of a container: "prod:chat:vllm".

    A longer name than MAX_NAME_CHARS is cut, and ends with a checksum of the whole.
    """
    name = f"{namespace}:{workload}:{container}"
    if len(name) <= MAX_NAME_CHARS:
        return name
    return f"{name[: MAX_NAME_CHARS - 9]}-{zlib.crc32(name.encode()):08x}"


class DeviceIds:
    """This host's devices by the ids that device plugins and resource claims give them.

    Sources of the ids: NVIDIA/k8s-device-plugin (UUIDs, and `::` before the replica of a shared
    device), GoogleCloudPlatform/container-engine-accelerators (`nvidia0`, `nvidia0/vgpu1`,
    `nvidia0/gi7`, `nvidia0/gi7/vgpu1`).

    Args:
        devices: The host's devices.
        claimable: UUIDs by pool and device of resource claims.
    """

    def __init__(
        self, devices: Collection[Device], claimable: Mapping[tuple[str, str], str]
    ) -> None:
        self._by_uuid: Mapping[str, str] = {device.uuid: device.name for device in devices}
        # By board and GPU instance; by board alone for a device that is no MIG device.
        self._by_number: Mapping[tuple[str, int | None], str] = {
            (device.parent or device.name, device.gpu_instance): device.name
            for device in devices
            if device.is_slice == (device.gpu_instance is not None)
        }
        self._claimable = claimable

    def device_of(self, held: HeldDevice) -> str | None:
        """Return the name of a held device; None for one that is none of this host's."""
        if held.pool:
            return self._by_uuid.get(self._claimable.get((held.pool, held.device_id), ""))
        uuid = held.device_id.partition("::")[0]
        if uuid in self._by_uuid:
            return self._by_uuid[uuid]
        gke = _GKE.fullmatch(uuid)
        if gke is None:
            return None
        instance = None if gke[2] is None else int(gke[2])
        return self._by_number.get((f"gpu{gke[1]}", instance))
