"""Readings of devices as rows of the series, with what they cost."""

from __future__ import annotations

from collections.abc import Mapping

from costprobe.core.records import Device, FieldValue, Point, Reading
from costprobe.core.schema import make_point
from costprobe.core.units import HOUR_S
from costprobe.domain.costing.carbon import Emission
from costprobe.domain.costing.charges import Charge

# Fields of a reading that are totals of its interval.
_TOTALS = frozenset({"energy_j", "dram_energy_j", "throttle_power_s", "throttle_thermal_s"})


def device_point(
    reading: Reading,
    device: Device,
    charge: Charge | None,
    tags: Mapping[str, str],
    time_ns: int,
    emitted: Emission | None = None,
) -> Point:
    """Return a row of `device`: the reading, and the device's cost in its interval.

    Args:
        reading: Telemetry of an interval.
        device: The device.
        charge: Its cost in the interval; None, or without terms, where nothing prices the device.
        tags: Host and static labels.
        time_ns: UTC in ns of the interval's end.
        emitted: Emissions of its electricity; None if unknown.
    """
    fields: dict[str, FieldValue | None] = dict(reading.fields)
    if emitted is not None:
        fields |= {
            "carbon_g": emitted.g,
            "carbon_energy_j": reading.fields.get("energy_j"),
            "carbon_method": emitted.method,
        }
    terms = None if charge is None else charge.terms
    if charge is not None and terms is not None:
        fields["price_rate_per_h"] = terms.per_s * HOUR_S
        fields["price_stale"] = terms.rate.is_stale or None
        fields["cost"] = None if charge.cost is None else float(charge.cost)
    own_tags = {
        "device": device.name,
        "kind": device.kind,
        "uuid": device.uuid,
        "model": device.model,
        "currency": terms.rate.currency if terms is not None else "",
    }
    return make_point("device", {**tags, **own_tags}, fields, time_ns)


def reading_within(reading: Reading, charge: Charge) -> Reading:
    """Return the part of a reading that a charge covers: totals by its share of the time."""
    if (charge.start_ns, charge.end_ns) == (reading.start_ns, reading.end_ns):
        return reading
    share = (charge.end_ns - charge.start_ns) / (reading.end_ns - reading.start_ns)
    fields = {
        name: value * share if name in _TOTALS and isinstance(value, float) else value
        for name, value in reading.fields.items()
    }
    return Reading(reading.device, charge.start_ns, charge.end_ns, fields)
