"""This node at the Kubernetes API server: owners and annotations of pods, claimable devices.

It also has the addresses of the pods, the ids of their containers, the names of their workloads,
this host's devices by the ids of device plugins, the devices that HAMi gave to pods, and the
section [kubernetes].
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

from pydantic import Field, model_validator

from costprobe.adapters.http.access import CaFile, Destination, ExchangeLimits, WithToken, bearer
from costprobe.adapters.http.client import HttpClient
from costprobe.adapters.http.errors import DeliveryError, Hints, raise_for_status
from costprobe.adapters.kubernetes.pod_resources import TIMEOUT_S, HeldDevice, KubernetesError
from costprobe.core.config.fields import IS_BARE_URL, Duration, Label, key
from costprobe.core.outside import MAX_BYTES, SHAPE_ERRORS, UnusableInputError, bounded_object
from costprobe.core.records import Device

# Where the kubelet serves the PodResources API.
SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
ANNOTATIONS: Final = "costprobe.io/"
# HAMi's devices of each container: "<uuid>,NVIDIA,<MiB>,<percent of the cores, 0 for no limit>:"
# for each device, ";" after each container. Init containers are first in 2.9, and left out in 2.5.
# Source: Project-HAMi/HAMi 2.9.0, pkg/device/devices.go (EncodePodSingleDevice, Resourcereqs).
HAMI: Final = "hami.io/vgpu-devices-allocated"
# HAMi's device plugin (2.9.0, nvinternal/rm/devices.go): the UUID and the number of a replica. Which
# of them the kubelet chose says nothing of the device that the pod got.
_HAMI_ID: Final = re.compile(r"(.+)-\d+")
# spec.nodeName selects the objects of a node in both lists.
_PODS: Final = "/api/v1/pods?limit=1000&fieldSelector=spec.nodeName%3D"
_SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices?limit=500&fieldSelector=spec.nodeName%3D"
_ENDED: Final = ("Succeeded", "Failed")
_HINTS: Final = Hints(
    unauthorized="check token, and the permissions of the service account",
    not_found="check api_url",
)
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


class KubernetesConfig(WithToken):
    """Cost allocation to the containers of this node, by the kubelet's PodResources API."""

    socket: Path = Field(SOCKET, description="The kubelet's socket of the PodResources API.")
    every_s: Duration = key("every", 15.0, description="Time between two readings of the pods.")
    window_s: Duration = key(
        "window", 300.0, description="Time over which the cost of a pod's devices is aggregated."
    )
    api_url: Annotated[str, IS_BARE_URL] | None = Field(
        None,
        description=(
            "The API server, for the pods' annotations and owners; without it, no pod is scraped, and"
            " workloads are named by their pods' names."
        ),
        examples=["https://kubernetes.default.svc"],
    )
    node: Annotated[Label, Field(min_length=1)] | None = Field(
        None,
        description="Name of this node at the API server; by default the host's name.",
        examples=["gpu-node-7"],
    )
    ca_file: CaFile = None

    @model_validator(mode="after")
    def _api_server_is_named(self) -> KubernetesConfig:
        of_server = ("node", "token", "ca_file")
        unused = next((name for name in of_server if getattr(self, name) is not None), None)
        if self.api_url is None and unused is not None:
            raise ValueError(
                f"{unused} is for the API server: add api_url, such as"
                f' "https://kubernetes.default.svc", or remove {unused}'
            )
        return self


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of this node.

    Attributes:
        owner_kind: Kind of its controller: "ReplicaSet", "StatefulSet", "Job"; "" without one.
        owner: Name of its controller.
        ip: Its address; "" while it has none.
        annotations: Its annotations under `costprobe.io/`, by the rest of their names.
        is_ended: Whether all of its containers have ended.
        uid: Its UID.
        container_ids: The ids of its containers at the runtime, by the containers' names.
        hami: By container, the devices that HAMi gave to it, and how many percent of the cores of
            each; 0 without a limit.
    """

    owner_kind: str = ""
    owner: str = ""
    ip: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    is_ended: bool = False
    uid: str = ""
    container_ids: Mapping[str, str] = field(default_factory=dict)
    hami: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)


class ApiServer:
    """Reads a node's pods and resource slices.

    Args:
        config: URL, certificates and token of the API server.
        node: Name of the node.
    """

    def __init__(self, config: KubernetesConfig, node: str) -> None:
        self._url = (config.api_url or "").rstrip("/")
        self._node = quote(node, safe="")
        self._token = config.token
        limits = ExchangeLimits(TIMEOUT_S, TIMEOUT_S, max_body_bytes=MAX_BYTES + 1)
        self._client = HttpClient(limits, ca_file=config.ca_file)

    def pods(self) -> dict[tuple[str, str], Pod]:
        """Return the node's pods by namespace and name.

        Raises:
            KubernetesError: The API server did not answer, refused, or answered something else.
        """
        return parse_pods(self._get(_PODS))

    def claimable(self) -> dict[tuple[str, str], str]:
        """Return the UUID of each device that resource claims can name, by pool and device.

        Raises:
            KubernetesError: As `pods`; Kubernetes before 1.34 has no such list.
        """
        return parse_slices(self._get(_SLICES))

    def _get(self, path: str) -> bytes:
        try:
            destination = Destination.parse(f"{self._url}{path}{self._node}")
            # Read again each time: Kubernetes rotates it every hour.
            authorization = bearer(self._token)
            headers = {"Accept": "application/json", **authorization}
            response = self._client.request("GET", destination, headers)
            raise_for_status(response, now_s=0.0, hints=_HINTS, is_tls=destination.is_tls)
        except DeliveryError as error:
            raise KubernetesError(f"the API server: {error.reason}") from None
        return response.body


def parse_pods(body: bytes) -> dict[tuple[str, str], Pod]:
    """Return the pods of a PodList by namespace and name.

    Raises:
        KubernetesError: It is no such document.
    """
    try:
        return {
            (str(item["metadata"]["namespace"]), str(item["metadata"]["name"])): _pod(item)
            for item in _items(body)
        }
    except SHAPE_ERRORS:
        raise KubernetesError("the API server's list of pods has another shape") from None


def parse_slices(body: bytes) -> dict[tuple[str, str], str]:
    """Return the devices' UUIDs of a ResourceSliceList by pool and device.

    Raises:
        KubernetesError: It is no such document.
    """
    try:
        return {
            (str(spec["pool"]["name"]), str(device["name"])): str(
                device["attributes"]["uuid"]["string"]
            )
            for spec in (item["spec"] for item in _items(body))
            for device in spec.get("devices") or ()
            if "uuid" in (device.get("attributes") or {})
        }
    except SHAPE_ERRORS:
        raise KubernetesError("the API server's list of devices has another shape") from None


def _items(body: bytes) -> Iterator[Any]:
    try:
        yield from bounded_object(body)["items"] or ()
    except UnusableInputError as error:
        raise KubernetesError(f"the API server's answer cannot be used: {error}") from None


def _pod(item: Mapping[str, Any]) -> Pod:
    metadata = item["metadata"]
    owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    annotations = metadata.get("annotations") or {}
    status = item.get("status") or {}
    return Pod(
        owner_kind=str(owners[0]["kind"]) if owners else "",
        owner=str(owners[0]["name"]) if owners else "",
        ip=str(status.get("podIP") or ""),
        annotations={
            name.removeprefix(ANNOTATIONS): str(value)
            for name, value in annotations.items()
            if name.startswith(ANNOTATIONS)
        },
        is_ended=status.get("phase") in _ENDED,
        uid=str(metadata.get("uid") or ""),
        container_ids={
            # Of "containerd://<id>" the part behind the runtime.
            str(each["name"]): str(each.get("containerID") or "").rpartition("/")[2]
            # A sidecar is an init container that runs on.
            for kind in ("initContainerStatuses", "containerStatuses")
            for each in status.get(kind) or ()
        },
        hami=_hami(item.get("spec") or {}, str(annotations.get(HAMI) or "")),
    )


def _hami(spec: Mapping[str, Any], annotation: str) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return the devices that HAMi gave to each container; none if the annotation is not HAMi's."""
    kinds = ("initContainers", "containers")
    names = [str(each["name"]) for kind in kinds for each in spec.get(kind) or ()]
    entries = [entry.split(":") for entry in annotation.split(";")[:-1]]
    try:
        return {
            name: tuple(
                (uuid, min(100, max(0, int(cores))))
                for uuid, _, _, cores in (device.split(",") for device in devices if device)
            )
            for name, devices in zip(reversed(names), reversed(entries), strict=False)
        }
    except ValueError:
        return {}


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

    Sources of the ids: NVIDIA/k8s-device-plugin 0.20, internal/rm/devices.go (UUIDs, and `::` before
    the replica of a device that is shared by time-slicing or MPS, also where the resource is
    `nvidia.com/gpu.shared`), GoogleCloudPlatform/container-engine-accelerators (`nvidia0`,
    `nvidia0/vgpu1`, `nvidia0/gi7`, `nvidia0/gi7/vgpu1`).

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

    def hami_device_of(self, device_id: str) -> str | None:
        """Return the device of a replica of HAMi's device plugin; None if it is none of HAMi's."""
        match = _HAMI_ID.fullmatch(device_id)
        return self._by_uuid.get(match[1]) if match else None

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
