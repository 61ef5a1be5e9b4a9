"""How much more time and energy than its peers each GPU needs, listed as an outlier or not."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from costprobe.domain.fleet.outliers import FleetMetric, FleetOutliers


@dataclass(frozen=True, slots=True)
class GpuExcess:
    """What a GPU needs more than its peers, as shares: 0.05 for 5 % more.

    Attributes:
        time: Time per inference; None if it was not compared.
        energy: Energy per inference; None if it was not compared.
        is_listed: Whether the GPU, or its host, is an outlier.
    """

    time: float | None
    energy: float | None
    is_listed: bool


def gpu_excesses(found: FleetOutliers) -> Mapping[tuple[str, str], GpuExcess]:
    """Return the excess of each tested GPU, by host and device.

    A listed GPU has the excess that is listed. Of several probes on another GPU the largest deviation
    counts, whatever its sign. The GPUs of a host that is listed as a whole are compared with each other:
    the excess of their host is added.

    Args:
        found: The outliers, with all tests.
    """
    own: dict[tuple[str, str], dict[FleetMetric, float]] = defaultdict(dict)
    for test in found.tests:
        one = test.deviation
        of_gpu = own[one.host, one.device]
        if one.device and abs(one.log_excess) >= abs(of_gpu.get(test.metric, 0.0)):
            of_gpu[test.metric] = one.log_excess
    of_host: dict[str, dict[FleetMetric, float]] = defaultdict(dict)
    listed = set()
    for outlier in found.outliers:
        listed.add((outlier.host, outlier.device))
        for metric in ("time", "energy"):
            excess = outlier.time if metric == "time" else outlier.energy
            if excess is None:
                continue
            if outlier.device:
                own[outlier.host, outlier.device][metric] = math.log1p(excess.mean)
            else:
                of_host[outlier.host][metric] = math.log1p(excess.mean)

    def share(key: tuple[str, str], metric: FleetMetric) -> float | None:
        value = own[key].get(metric)
        return None if value is None else math.expm1(value + of_host[key[0]].get(metric, 0.0))

    return {
        key: GpuExcess(share(key, "time"), share(key, "energy"), bool({key, (key[0], "")} & listed))
        for key in list(own)
        if key[1]
    }
