"""The containers that hold this node's devices, as claimants of their cost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from costprobe.adapters.kubernetes.api_server import ApiServer, Pod
from costprobe.adapters.kubernetes.errors import KubernetesError
from costprobe.adapters.kubernetes.pod_resources import PodResources
from costprobe.adapters.kubernetes.settings import KubernetesConfig
from costprobe.adapters.kubernetes.workloads import DeviceIds
from costprobe.adapters.serving.engine_detection import engine_of_page
from costprobe.adapters.serving.errors import ScrapeError
from costprobe.adapters.serving.fetch import MetricsFetcher
from costprobe.adapters.serving.model_names import ModelNames
from costprobe.adapters.serving.settings import ServiceConfig
from costprobe.app.accounting.claimant import Claimant
from costprobe.app.accounting.pod_claimants import PodClaims, pod_claims
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S, Device, Event

logger = logging.getLogger(__name__)

# A pod without known metrics is asked again after this time.
RETRY_ENGINE_S: Final = 300.0
# Those that are seen within a week.
MAX_WORKLOADS: Final = 256
MAX_ENGINES: Final = 1024
MAX_LISTED: Final = 8


class Pods:
    """Reads the pods of this node, and reports their claims when these change.

    Args:
        config: The section [kubernetes].
        node: Name of the node at the API server.
        devices: The host's devices.
        services: The configured services, which bear the cost of their devices.
        clock: The host's clocks.
        on_change: Receives the claimants, first after the first reading.
        on_event: Receives the event of a failure, and of its end.
    """

    def __init__(
        self,
        config: KubernetesConfig,
        node: str,
        devices: Sequence[Device],
        services: Sequence[ServiceConfig],
        clock: Clock,
        *,
        on_change: Callable[[Sequence[Claimant]], None],
        on_event: Callable[[Event], None],
    ) -> None:
        self._config = config
        self._devices = tuple(devices)
        self._configured = frozenset(name for service in services for name in service.devices)
        self._clock = clock
        self._on_change = on_change
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
                found = engine_of_page(MetricsFetcher(probed, None)(url))
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
