"""The containers that hold this Kubernetes node's devices, as claimants of their cost."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import ValidationError

from costprobe.adapters.engines.exposition import ScrapeError
from costprobe.adapters.engines.scrape import OTHER, MetricsFetcher, ModelNames, engine_of_page
from costprobe.adapters.engines.settings import MAX_REPLICAS
from costprobe.adapters.engines.tables import METRICS_PATH
from costprobe.adapters.host.redaction import outside_text
from costprobe.adapters.kubernetes.api_server import (
    HAMI,
    ApiServer,
    DeviceIds,
    KubernetesConfig,
    Pod,
    service_name,
    workload_name,
)
from costprobe.adapters.kubernetes.pod_resources import (
    Container,
    HeldDevice,
    KubernetesError,
    NodeDevices,
    PodResources,
)
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S, Device, Event
from costprobe.core.units import format_duration
from costprobe.serving.device_costs import Claimant
from costprobe.serving.settings import ServiceConfig

logger = logging.getLogger(__name__)

# A label as long as Kubernetes' own names.
_LABEL_CHARS: Final = 200

# The engine whose metrics a URL serves; None if it does not answer, or has no known counters.
FindEngine = Callable[[str], str | None]
# A pod without known metrics is asked again after this time.
RETRY_ENGINE_S: Final = 300.0
# Workloads with names of their own, of those that are seen within a week.
MAX_WORKLOADS: Final = 256
# URLs whose engine is remembered.
MAX_ENGINES: Final = 1024
# Problems that a fault lists.
MAX_LISTED: Final = 8


@dataclass(slots=True)
class PodClaims:
    """What a node's containers claim.

    Attributes:
        claimants: One for each workload and container name, ordered by name.
        names: Their names by the ids of their containers, and of pods in which one container has
            devices; "" for other pods.
        unknown: Ids of held devices that are none of this host's.
        problems: Annotations that cannot be used, one line each.
    """

    claimants: list[Claimant] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Workload:
    """A container of all pods of a workload.

    Attributes:
        labels: Namespace, workload and container.
        held: Replicas of devices that it holds.
        cores: HAMi's limits of its use of devices, in percent.
        is_traced: Whether the ids of all its containers are known, or will be once they run.
        urls: Addresses of its metrics.
        engine: The engine of its annotations.
        group: The keys `group` and `role` of its annotations.
    """

    labels: dict[str, str]
    held: Counter[str] = field(default_factory=Counter)
    cores: Counter[str] = field(default_factory=Counter)
    is_traced: bool = True
    urls: dict[str, None] = field(default_factory=dict)
    engine: str = ""
    group: dict[str, str] = field(default_factory=dict)


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

    A device that several containers hold is divided by HAMi's limits of cores, or by the replicas
    that each of them holds; without a list of replicas, evenly.

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
        device
        for name in node.allocatable
        if (device := ids.device_of(HeldDevice(name)) or ids.hami_device_of(name))
    )
    workloads: dict[str, _Workload] = {}
    for container in node.containers:
        details = pods.get((container.namespace, container.pod))
        if details is not None and details.is_ended:
            continue
        replicas, cores = _devices(container, details, ids, claims)
        if not (replicas or cores) or taken & {*replicas, *cores}:
            continue
        service = _service(workloads, container, details, limited)
        workload = workloads[service]
        workload.held.update(replicas)
        workload.cores.update(cores)
        workload.is_traced &= details is not None
        if details is not None:
            claims.names[details.container_ids.get(container.name, "")] = service
            is_only = claims.names.setdefault(details.uid, service) == service
            claims.names[details.uid] = service if is_only else ""
            annotations = details.annotations
            is_scraped = _is_scraped(container, details, node.containers)
            if is_scraped:
                workload.urls[_url(details)] = None
            if is_scraped or "group" in annotations:
                workload.engine = annotations.get("engine", "") or workload.engine
                keys = {"group", "role"} & annotations.keys()
                workload.group |= {key: annotations[key] for key in keys}
    held = sum((workload.held for workload in workloads.values()), Counter[str]())
    for name, workload in sorted(workloads.items()):
        shares, bases = _shares(workload, total, held)
        claimant = Claimant(
            name,
            tuple(sorted({*workload.held, *workload.cores})),
            shares,
            window_s=config.window_s,
            labels=workload.labels,
            bases=bases,
            is_traced=workload.is_traced,
        )
        claims.claimants.append(
            _served(claimant, workload, config.every_s, find_engine, claims.problems) or claimant
        )
    return claims


def _shares(
    workload: _Workload, total: Counter[str], held: Counter[str]
) -> tuple[dict[str, float], dict[str, str]]:
    """Return a workload's share of each shared device, and its basis.

    Args:
        workload: The workload.
        total: Replicas of each device.
        held: Those that workloads hold.
    """
    shares, bases = {}, {}
    for device, count in workload.held.items():
        whole = max(total[device], held[device])
        if whole > count or total[device] > 1:
            shares[device] = count / whole
            bases[device] = "replicas" if total[device] > 1 else "even"
    for device, percent in workload.cores.items():
        shares[device] = min(1.0, shares.get(device, 0.0) + percent / 100)
        bases[device] = "cores"
    return shares, bases


def _devices(
    container: Container, details: Pod | None, ids: DeviceIds, claims: PodClaims
) -> tuple[list[str], Counter[str]]:
    """Return the device of each replica that a container holds, and HAMi's limits of its devices.

    Ids of no device are noted.
    """
    held = [(each, 0) for each in container.devices]
    if any(ids.hami_device_of(each.device_id) for each in container.devices):
        given = details.hami.get(container.name, ()) if details is not None else ()
        held = [(HeldDevice(uuid), cores) for uuid, cores in given]
        if not given:
            pod = outside_text(f"{container.namespace}/{container.pod}", _LABEL_CHARS)
            why = "api_url is required" if details is None else "it is missing or malformed"
            claims.problems.append(
                f"{pod}: the devices that it got are in HAMi's annotation {HAMI}: {why}"
            )
    replicas: list[str] = []
    limits: Counter[str] = Counter()
    for each, cores in held:
        device = ids.device_of(each)
        if device is None:
            claims.unknown.append(outside_text(each.device_id, _LABEL_CHARS))
        elif cores:
            limits[device] += cores
        else:
            replicas.append(device)
    return replicas, limits


def _service(
    workloads: dict[str, _Workload],
    container: Container,
    details: Pod | None,
    limited: Callable[[str], str],
) -> str:
    """Return the service of a container, and add its workload."""
    namespace, name = (
        outside_text(text, _LABEL_CHARS) for text in (container.namespace, container.name)
    )
    workload = outside_text(workload_name(container.pod, details), _LABEL_CHARS)
    service = limited(service_name(namespace, workload, name))
    if service == OTHER:
        namespace = workload = name = OTHER
    labels = {"namespace": namespace, "workload": workload, "container": name}
    workloads.setdefault(service, _Workload(labels))
    return service


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
    """Return a claimant whose pods are scraped, or belong to a group; None if they cannot be yet."""
    urls = list(workload.urls)[:MAX_REPLICAS]
    if not (urls or workload.group):
        return None
    if "" in urls:
        problems.append(f"{claimant.name}: costprobe.io/port is not the number of a port")
        return None
    if not (urls or workload.engine):
        problems.append(f"{claimant.name}: costprobe.io/engine is needed, as it is not scraped")
        return None
    keys = {
        "name": claimant.name,
        **({"url": urls} if urls else {}),
        **workload.group,
        "engine": workload.engine or "vllm",
        "devices": claimant.devices,
        "every": format_duration(every_s),
        "window": format_duration(claimant.window_s),
    }
    try:
        service = ServiceConfig.model_validate(keys)
        if urls and not workload.engine:
            engine = find_engine(service.url[0])
            if engine is None:
                problems.append(f"{claimant.name}: no known engine's metrics at {service.url[0]}")
                return None
            service = ServiceConfig.model_validate({**keys, "engine": engine})
    except ValidationError as error:
        reason = outside_text(str(error.errors()[0]["msg"]), _LABEL_CHARS)
        problems.append(f"{claimant.name}: the annotations cannot be used: {reason}")
        return None
    return replace(claimant, service=service)


class Pods:
    """Reads the pods of this node, and reports their claims when these change.

    Args:
        config: The section [kubernetes].
        node: Name of the node at the API server.
        devices: The host's devices.
        services: The configured services, which bear the cost of their devices.
        clock: The host's clocks.
        on_change: Receives the claimants, first after the first reading.
        on_containers: Receives the names of containers and pods by their ids, after each reading.
        on_event: Receives the event of a failure, and of its end.
    """

    def __init__(  # noqa: PLR0913 - what it reads, and who receives it
        self,
        config: KubernetesConfig,
        node: str,
        devices: Sequence[Device],
        services: Sequence[ServiceConfig],
        clock: Clock,
        *,
        on_change: Callable[[Sequence[Claimant]], None],
        on_containers: Callable[[Mapping[str, str]], None] = lambda _: None,
        on_event: Callable[[Event], None],
    ) -> None:
        self._config = config
        self._devices = tuple(devices)
        self._configured = frozenset(name for service in services for name in service.devices)
        self._clock = clock
        self._on_change = on_change
        self._on_containers = on_containers
        self._on_event = on_event
        self._kubelet = PodResources(config.socket)
        self._api = ApiServer(config, node) if config.api_url else None
        self._known: dict[tuple[str, str], Pod] = {}
        self._claims: PodClaims | None = None
        self._names = ModelNames(clock.time_ns, names_max=MAX_WORKLOADS)
        self._engines: dict[str, tuple[str | None, int]] = {}
        self._read_ns: int | None = None
        self._start_ns = clock.monotonic_ns()
        self._fault: str | None = None

    def refresh(self) -> None:
        """Read the pods; the claims of the last reading hold for a window after a failure."""
        problems = []
        pods, claimable = self._known, {}
        if self._api is not None:
            try:
                pods = self._known = self._api.pods()
            except KubernetesError as error:
                problems.append(str(error))
        try:
            node = self._kubelet.read()
            if self._api is not None and any(
                device.pool for container in node.containers for device in container.devices
            ):
                claimable = self._api.claimable()
        except KubernetesError as error:
            self._set_fault("; ".join([*problems, str(error)]))
            self._forget_old()
            return
        claims = pod_claims(
            node,
            pods,
            DeviceIds(self._devices, claimable),
            self._config,
            configured=self._configured,
            find_engine=self._engine,
            limited=self._names.name,
        )
        self._read_ns = self._clock.monotonic_ns()
        unknown = [f"{name} is none of this host's devices" for name in claims.unknown]
        self._set_fault("; ".join([*problems, *(claims.problems + unknown)[:MAX_LISTED]]) or None)
        self._on_containers({key: name for key, name in claims.names.items() if key})
        self._take(claims)

    def status(self) -> dict[str, Any]:
        """Return the status for `costprobe status`."""
        claims = self._claims or PodClaims()
        age_ns = None if self._read_ns is None else self._clock.monotonic_ns() - self._read_ns
        return {
            "read_ns": None if age_ns is None else self._clock.time_ns() - age_ns,
            "fault": self._fault,
            "workloads": [
                {
                    "service": claimant.name,
                    **claimant.labels,
                    "devices": list(claimant.devices),
                    "engine": claimant.service.engine if claimant.service else None,
                }
                for claimant in claims.claimants
            ],
        }

    def _take(self, claims: PodClaims) -> None:
        before, self._claims = self._claims, claims
        if before is None or before.claimants != claims.claimants:
            self._on_change(claims.claimants)

    def _forget_old(self) -> None:
        """Drop claims that may be wrong by now: their devices' cost is unallocated."""
        since_ns = self._start_ns if self._read_ns is None else self._read_ns
        if self._clock.monotonic_ns() - since_ns > self._config.window_s * NS_PER_S:
            self._take(PodClaims())

    def _engine(self, url: str) -> str | None:
        """Return the engine at a URL; a failure is remembered for RETRY_ENGINE_S."""
        found, at_ns = self._engines.get(url, (None, 0))
        now_ns = self._clock.monotonic_ns()
        if found is None and (not at_ns or now_ns - at_ns > RETRY_ENGINE_S * NS_PER_S):
            probed = ServiceConfig.model_validate(
                {"name": "pod", "url": url, "engine": "vllm", "devices": ["gpu0"]}
            )
            try:
                found = engine_of_page(MetricsFetcher(probed)(url))
            except ScrapeError as error:
                logger.info("%s: %s", url, error)
            # Those of pods that are gone are the oldest.
            self._engines.pop(url, None)
            self._engines[url] = (found, now_ns)
            for oldest in list(self._engines)[:-MAX_ENGINES]:
                del self._engines[oldest]
        return found

    def _set_fault(self, fault: str | None) -> None:
        before, self._fault = self._fault, fault
        if (before is None) == (fault is None):
            return
        if fault is not None:
            logger.warning("kubernetes: %s", fault)
        self._on_event(
            Event(
                kind="fault",
                severity="info" if fault is None else "warning",
                title="kubernetes: the pods can be read again"
                if fault is None
                else "kubernetes: the pods cannot be read completely",
                time_ns=self._clock.time_ns(),
                detail="" if fault is None else f"{fault}. Their devices' cost may be unallocated.",
                cause="" if fault is None else "kubernetes",
            )
        )
