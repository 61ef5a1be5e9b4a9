"""The kubelet's PodResources API: which container holds which devices of this node.

Source: kubernetes/kubernetes, staging/src/k8s.io/kubelet/pkg/apis/podresources/v1/api.proto. Only
the fields below are declared; protobuf skips all others.

The failures of the Kubernetes APIs are here as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from costprobe.adapters.host.redaction import outside_text

# Of each request to the kubelet or the API server.
TIMEOUT_S: Final = 10.0
MAX_BYTES: Final = 16 << 20
_PACKAGE: Final = "v1"
_SERVICE: Final = "/v1.PodResourcesLister/"
_REASON_CHARS: Final = 200
# Each message's fields: name, number, type ("string", or a message), and whether it is repeated.
_MESSAGES: Final = {
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": (("pod_resources", 1, "PodResources", True),),
    "AllocatableResourcesRequest": (),
    "AllocatableResourcesResponse": (("devices", 1, "ContainerDevices", True),),
    "PodResources": (
        ("name", 1, "string", False),
        ("namespace", 2, "string", False),
        ("containers", 3, "ContainerResources", True),
    ),
    "ContainerResources": (
        ("name", 1, "string", False),
        ("devices", 2, "ContainerDevices", True),
        ("dynamic_resources", 5, "DynamicResource", True),
    ),
    "ContainerDevices": (
        ("resource_name", 1, "string", False),
        ("device_ids", 2, "string", True),
    ),
    "DynamicResource": (("claim_resources", 4, "ClaimResource", True),),
    "ClaimResource": (
        ("pool_name", 3, "string", False),
        ("device_name", 4, "string", False),
    ),
}


class KubernetesError(Exception):
    """The kubelet or the API server did not answer, or not as documented; the text has the fix."""


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device that a container holds.

    Attributes:
        device_id: Its id by the device plugin: "GPU-<uuid>", "MIG-<uuid>", "GPU-<uuid>::2",
            "nvidia0"; or its name in a resource claim: "gpu-0".
        pool: Pool of the resource claim; "" for a device plugin's device.
    """

    device_id: str
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Container:
    """A container that holds devices.

    Attributes:
        namespace: Namespace of its pod.
        pod: Name of its pod.
        name: Its name.
        devices: The devices.
    """

    namespace: str
    pod: str
    name: str
    devices: tuple[HeldDevice, ...]


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """The devices of a node, as its kubelet reports them.

    Attributes:
        containers: The containers that hold devices.
        allocatable: Ids of all devices of the device plugins, held or not.
    """

    containers: tuple[Container, ...]
    allocatable: tuple[str, ...]


class PodResources:
    """Reads the PodResources API.

    Args:
        socket: The kubelet's socket.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def read(self) -> NodeDevices:
        """Return the containers that hold devices.

        A connection is opened for each call: the kubelet replaces its socket when it restarts.

        Raises:
            KubernetesError: No answer within TIMEOUT_S, or one beyond the limits; or grpcio is not
                installed.
        """
        grpc = _library()
        options = [
            ("grpc.max_receive_message_length", MAX_BYTES),
            # Channels share connections otherwise, and with them the back-off of one that failed.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        with grpc.insecure_channel(f"unix:{self._socket}", options=options) as channel:
            pods = self._call(channel, "List", "ListPodResources").pod_resources
            containers = tuple(_containers(pods))
            devices = self._call(channel, "GetAllocatableResources", "AllocatableResources")
        allocatable = tuple(name for part in devices.devices for name in part.device_ids)
        return NodeDevices(containers, allocatable)

    def _call(self, channel: Any, method: str, messages: str) -> Any:  # noqa: ANN401 - untyped library
        grpc, types = _library(), _types()
        call = channel.unary_unary(
            f"{_SERVICE}{method}",
            request_serializer=types[f"{messages}Request"].SerializeToString,
            response_deserializer=types[f"{messages}Response"].FromString,
        )
        try:
            return call(types[f"{messages}Request"](), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise KubernetesError(f"{self._socket}: {_reason(error)}") from None


def _containers(pods: Iterable[Any]) -> Iterator[Container]:
    for pod in pods:
        for container in pod.containers:
            devices = [HeldDevice(name) for part in container.devices for name in part.device_ids]
            devices += [
                HeldDevice(resource.device_name, resource.pool_name)
                for claim in container.dynamic_resources
                for resource in claim.claim_resources
            ]
            if devices:
                yield Container(pod.namespace, pod.name, container.name, tuple(devices))


def _reason(error: Any) -> str:  # noqa: ANN401 - untyped library
    """Return why a call failed, in one line."""
    code = error.code().name.lower().replace("_", " ")
    return f"{code}: {outside_text(error.details() or '', _REASON_CHARS)}"


def _library() -> Any:  # noqa: ANN401 - untyped library
    try:
        import grpc  # noqa: PLC0415 - 18 MB, and an optional dependency
    except ImportError:
        raise KubernetesError(
            f"[kubernetes] needs two packages: {sys.executable} -m pip install grpcio protobuf"
        ) from None
    return grpc


@cache
def _types() -> dict[str, Any]:
    """Return the class of each message."""
    from google.protobuf import (  # noqa: PLC0415 - an optional dependency
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="costprobe/podresources.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind, is_repeated in fields:
            field = message.field.add(
                name=field_name,
                number=number,
                label=kinds.LABEL_REPEATED if is_repeated else kinds.LABEL_OPTIONAL,
            )
            if kind == "string":
                field.type = kinds.TYPE_STRING
            else:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }
