"""The unit of a workload, and what a device does of it."""

from __future__ import annotations

from collections.abc import Sequence

from costprobe.domain.advice.probe_history import ProbeHistory
from costprobe.domain.advice.service_history import ServiceHistory
from costprobe.domain.advice.workload import Unit


def unit_of(
    services: Sequence[ServiceHistory], device_count: int, own: ProbeHistory | None
) -> Unit | None:
    """Return the unit of a service's work; None where only utilization can be compared.

    What a device can do of it is at least what it did in the service's highest minute, and for
    inferences what the probe of the model measured on it. Work of several services does not add up.

    Args:
        services: Services that use the devices.
        device_count: Number of devices.
        own: The probe of the service's model on one of them; None if there is none.
    """
    if len(services) != 1 or services[0].unit is None:
        return None
    name = services[0].unit
    most_per_s = services[0].most_per_s(name) / device_count
    if own is not None and name == "inferences" and own.present.is_enough:
        probed = own.present
        if probed.throughput_per_s > most_per_s:
            return Unit(name, probed.throughput_per_s, f"{own.subject}, batch {probed.batch}")
    return Unit(name, most_per_s, f"the highest minute of {services[0].name}")
