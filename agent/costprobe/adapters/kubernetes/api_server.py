"""This node at the API server: owners, addresses and annotations of its pods, and claimable devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from costprobe.adapters.kubernetes.errors import KubernetesError
from costprobe.adapters.kubernetes.settings import KubernetesConfig
from costprobe.adapters.net.client import HttpClient
from costprobe.adapters.net.destination import Destination
from costprobe.adapters.net.errors import DeliveryError
from costprobe.adapters.net.limits import ExchangeLimits
from costprobe.adapters.net.secret import Secret
from costprobe.adapters.net.status import Hints, raise_for_status
from costprobe.core.bounded import SHAPE_ERRORS, UnusableInputError, bounded_object

TIMEOUT_S: Final = 10.0
MAX_BYTES: Final = 16 << 20
ANNOTATIONS: Final = "costprobe.io/"
# spec.nodeName selects the objects of a node in both lists.
_PODS: Final = "/api/v1/pods?limit=1000&fieldSelector=spec.nodeName%3D"
_SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices?limit=500&fieldSelector=spec.nodeName%3D"
_ENDED: Final = ("Succeeded", "Failed")
_HINTS: Final = Hints(
    unauthorized="check token_file, and the permissions of the service account",
    not_found="check api_url",
)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of this node.

    Attributes:
        owner_kind: Kind of its controller: "ReplicaSet", "StatefulSet", "Job"; "" without one.
        owner: Name of its controller.
        ip: Its address; "" while it has none.
        annotations: Its annotations under `costprobe.io/`, by the rest of their names.
        is_ended: Whether all of its containers have ended.
    """

    owner_kind: str = ""
    owner: str = ""
    ip: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    is_ended: bool = False


class ApiServer:
    """Reads a node's pods and resource slices.

    Args:
        config: URL, certificates and token of the API server.
        node: Name of the node.
    """

    def __init__(self, config: KubernetesConfig, node: str) -> None:
        self._url = (config.api_url or "").rstrip("/")
        self._node = quote(node, safe="")
        self._token = Secret("token", config.token_file)
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
        headers, secrets = {"Accept": "application/json"}, []
        try:
            destination = Destination.parse(f"{self._url}{path}{self._node}")
            if self._token.is_given:
                # Read again each time: Kubernetes rotates it every hour.
                secrets.append(self._token.read_ascii())
                headers["Authorization"] = f"Bearer {secrets[0]}"
            response = self._client.request("GET", destination, headers)
            raise_for_status(
                response, now_s=0.0, secrets=secrets, hints=_HINTS, is_tls=destination.is_tls
            )
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
        yield from bounded_object(body, MAX_BYTES)["items"] or ()
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
    )
