"""The event of a changed load curve, from what the store has of its device and of production."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from costprobe.adapters.store.read import StoreReader
from costprobe.configuration import Config
from costprobe.core.columns import number
from costprobe.core.records import NS_PER_S, TOGETHER, Event
from costprobe.drift.load_curve import PresentLoad, conditions_of, load_curve_event, newest_shift
from costprobe.drift.runs import Conditions
from costprobe.probing.load_curve import LoadCurve
from costprobe.savings.gather import probes_of
from costprobe.ui.cli.support.loaded_config import LoadedConfig, reader_of

# The present load is that of so long before a curve.
_PRESENT_NS: Final = 86_400 * NS_PER_S


def change_event(settings: LoadedConfig, curves: Sequence[LoadCurve]) -> Event | None:
    """Return the event of a newest curve that differs from the level before, or is back; None if neither.

    Args:
        settings: The configuration.
        curves: All curves of a probe on its devices, in order of time; at least one.
    """
    shift = newest_shift(curves)
    if shift is None:
        return None
    with reader_of(settings) as reader:
        before, after = (_conditions(reader, curve) for curve in (shift.baseline, shift.newest))
        load = _present_load(reader, settings.config, shift.newest)
    return load_curve_event(shift, before, after, load)


def _conditions(reader: StoreReader, curve: LoadCurve) -> Conditions:
    """Return the conditions of the first device of a curve in the windows of its points."""
    tags = {"device": curve.device.split(TOGETHER)[0]}
    rows = reader.points("device", _start_ns(curve), curve.time_ns, tags)
    return conditions_of(rows, curve)


def _present_load(reader: StoreReader, config: Config, curve: LoadCurve) -> PresentLoad | None:
    """Return the load of the service whose server was measured; None without one."""
    unit = "tokens_out" if curve.fastest["tokens_out_per_s"] else "requests"
    # The requests of the curve are in the server's counters, too; its warm-ups take time as well.
    until_ns = curve.time_ns - 2 * (curve.time_ns - _start_ns(curve))
    for service in config.service:
        if all(probe.name != curve.probe for probe in probes_of(config.probe, service)):
            continue
        rows = [
            row
            for row in reader.points(
                "serving",
                until_ns - _PRESENT_NS,
                until_ns,
                {"service": service.name},
            )
            if "served_model" not in row.tags
        ]
        covered_s = math.fsum(number(row, "window_s") or 0.0 for row in rows)
        work = math.fsum(number(row, unit) or 0.0 for row in rows)
        if covered_s and work:
            return PresentLoad(work / covered_s, len(service.url))
    return None


def _start_ns(curve: LoadCurve) -> int:
    """Return UTC in ns from which on the points of a curve, without their warm-ups, were measured."""
    windows_s = math.fsum(point["window_s"] or 0.0 for point in curve.points)
    return curve.time_ns - int(windows_s * NS_PER_S)
