"""The containers of a node as claimants of its devices; no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from costprobe.adapters.kubernetes.api_server import Pod
from costprobe.adapters.kubernetes.pod_resources import Container, HeldDevice, NodeDevices
from costprobe.adapters.kubernetes.settings import KubernetesConfig
from costprobe.adapters.kubernetes.workloads import DeviceIds, service_name, workload_name
from costprobe.adapters.serving.model_names import OTHER
from costprobe.adapters.serving.setting_types import MAX_REPLICAS, METRICS_PATH
from costprobe.adapters.serving.settings import ServiceConfig
from costprobe.adapters.system.outside_text import outside_text
from costprobe.app.accounting.claimant import Claimant
from costprobe.core.units import format_duration

TIMEOUT_S: Final = 5.0
# A label as long as Kubernetes' own names.
_LABEL_CHARS: Final = 200

# The engine whose metrics a URL serves; None if it does not answer, or has no known counters.
FindEngine = Callable[[str], str | None]


@dataclass(slots=True)
class PodClaims:
    """What a node's containers claim.

    Attributes:
        claimants: One for each workload and container name, ordered by name.
        unknown: Ids of held devices that are none of this host's.
        problems: Annotations that cannot be used, one line each.
    """

    claimants: list[Claimant] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Workload:
    """A container of all pods of a workload."""

    labels: dict[str, str]
    held: Counter[str] = field(default_factory=Counter)
    urls: dict[str, None] = field(default_factory=dict)
    engine: str = ""


def pod_claims(
    node: NodeDevices,
    pods: Mapping[tuple[str, str], Pod],
    ids: DeviceIds,
    config: KubernetesConfig,
    *,
    configured: Iterable[str],
    find_engine: FindEngine,
    limited: Callable[[str], str],
) -> PodClaims:
    """Return the claims of a node's containers.

    A device that several containers hold is divided by the replicas that each of them holds; without
    a list of replicas, evenly.

    Args:
        node: The containers and the devices' ids.
        pods: What the API server knows of the pods.
        ids: This host's devices.
        config: Length of the windows, and time between two scrapes.
        configured: Devices of configured services, which bear their cost.
        find_engine: Finds the engine of a scraped pod.
        limited: Returns a name, or OTHER for one too many: each is a series in every database.
    """
    claims = PodClaims()
    taken = frozenset(configured)
    total = Counter(
        device for name in node.allocatable if (device := ids.device_of(HeldDevice(name)))
    )
    workloads: dict[str, _Workload] = {}
    for container in node.containers:
        details = pods.get((container.namespace, container.pod))
        if details is not None and details.is_ended:
            continue
        devices = _devices(container, ids, claims)
        if not devices or taken & set(devices):
            continue
        workload = _workload(workloads, container, details, limited)
        workload.held.update(devices)
        if details is not None and _is_scraped(container, details, node.containers):
            workload.urls[_url(details)] = None
            workload.engine = details.annotations.get("engine", "")
    held = sum((workload.held for workload in workloads.values()), Counter[str]())
    for name, workload in sorted(workloads.items()):
        shares = {
            device: count / max(total[device], held[device])
            for device, count in workload.held.items()
            if max(total[device], held[device]) > count or total[device] > 1
        }
        claimant = Claimant(
            name,
            tuple(sorted(workload.held)),
            shares,
            window_s=config.window_s,
            labels=workload.labels,
        )
        claims.claimants.append(
            _served(claimant, workload, config.every_s, find_engine, claims.problems) or claimant
        )
    return claims


def _devices(container: Container, ids: DeviceIds, claims: PodClaims) -> list[str]:
    """Return the device of each replica that a container holds; note the ids without one."""
    found = []
    for held in container.devices:
        device = ids.device_of(held)
        if device is not None:
            found.append(device)
        else:
            claims.unknown.append(outside_text(held.device_id, _LABEL_CHARS))
    return found


def _workload(
    workloads: dict[str, _Workload],
    container: Container,
    details: Pod | None,
    limited: Callable[[str], str],
) -> _Workload:
    namespace, name = (
        outside_text(text, _LABEL_CHARS) for text in (container.namespace, container.name)
    )
    workload = outside_text(workload_name(container.pod, details), _LABEL_CHARS)
    service = limited(service_name(namespace, workload, name))
    if service == OTHER:
        namespace = workload = name = OTHER
    labels = {"namespace": namespace, "workload": workload, "container": name}
    return workloads.setdefault(service, _Workload(labels))


def _is_scraped(container: Container, details: Pod, containers: Sequence[Container]) -> bool:
    """Return whether a pod's annotations name the metrics of this container."""
    annotations = details.annotations
    if annotations.get("scrape") != "true" or not details.ip:
        return False
    # One container of the pod bears the requests: the annotated one, else the first with a device.
    names = [
        other.name
        for other in containers
        if (other.namespace, other.pod) == (container.namespace, container.pod)
    ]
    return container.name == annotations.get("container", names[0])


def _url(details: Pod) -> str:
    """Return the address of a pod's metrics; one without a port if the annotation has none."""
    address = f"[{details.ip}]" if ":" in details.ip else details.ip
    port = details.annotations.get("port", "")
    path = details.annotations.get("path", METRICS_PATH)
    return f"http://{address}:{port}{path}" if port.isdecimal() else ""


def _served(
    claimant: Claimant,
    workload: _Workload,
    every_s: float,
    find_engine: FindEngine,
    problems: list[str],
) -> Claimant | None:
    """Return a claimant whose pods are scraped; None if they are not, or cannot be yet."""
    urls = list(workload.urls)[:MAX_REPLICAS]
    if not urls:
        return None
    if "" in urls:
        problems.append(f"{claimant.name}: costprobe.io/port is not the number of a port")
        return None
    try:
        service = _service(claimant, urls, "vllm", every_s)
        engine = workload.engine or find_engine(service.url[0])
        if engine is None:
            problems.append(f"{claimant.name}: no known engine's metrics at {service.url[0]}")
            return None
        service = _service(claimant, urls, engine, every_s)
    except ValidationError as error:
        reason = outside_text(str(error.errors()[0]["msg"]), _LABEL_CHARS)
        problems.append(f"{claimant.name}: the annotations cannot be used: {reason}")
        return None
    return Claimant(
        claimant.name,
        claimant.devices,
        claimant.shares,
        window_s=claimant.window_s,
        labels=claimant.labels,
        service=service,
    )


def _service(claimant: Claimant, urls: Sequence[str], engine: str, every_s: float) -> ServiceConfig:
    return ServiceConfig.model_validate(
        {
            "name": claimant.name,
            "url": urls,
            "engine": engine,
            "devices": claimant.devices,
            "every": format_duration(every_s),
            "timeout": format_duration(min(TIMEOUT_S, every_s)),
            "window": format_duration(claimant.window_s),
        }
    )
