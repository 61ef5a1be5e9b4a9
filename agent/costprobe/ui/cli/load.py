"""Measuring the load curve of a server: consent, the loops, and what is stored."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from costprobe.adapters.probing.served_settings import ServedProbeConfig
from costprobe.app.configuration import Config
from costprobe.app.measuring.load_curve import (
    DEADLINE_MARGIN_S,
    LoadPlan,
    load_plan,
    longest_point_s,
    measured_loops,
)
from costprobe.core.money_text import money
from costprobe.core.units import counted
from costprobe.core.weekly_hours import is_within
from costprobe.domain.alerting.matching import matches
from costprobe.domain.costing.load.curve import LoadCurve
from costprobe.domain.costing.load.point import LoadPoint, LoadStep, point_of
from costprobe.domain.costing.load.rows import curve_from_rows, is_load_row
from costprobe.domain.pricing.book import Terms
from costprobe.ui.cli.bench import open_bench
from costprobe.ui.cli.support.known_names import check_names
from costprobe.ui.cli.support.loaded_config import LoadedConfig, bad_input, reader_of
from costprobe.ui.cli.support.output import echo
from costprobe.ui.text import ago

END_OF_TIME_NS = 2**63 - 1


def measured_curve(
    settings: LoadedConfig, probe: ServedProbeConfig, device: str | None, *, agreed: bool
) -> LoadCurve:
    """Measure the load curve of a probe.

    Args:
        settings: The configuration.
        probe: The probe.
        device: Name of the device; None for all that the probe names.
        agreed: Whether the operator agreed to the load.

    Raises:
        click.ClickException: There is no consent, or no point was measured.
    """
    plan = load_plan(probe)
    deadline_s = longest_point_s(probe) + DEADLINE_MARGIN_S
    probe = probe.model_copy(update={"deadline_s": deadline_s})
    with open_bench(settings, probe, device) as bench:
        labels = {**bench.tags, "device": bench.device, "probe": probe.name}
        echo(_announcement(probe, bench.device, plan, bench.terms), err=True)
        if not agreed and not in_maintenance(settings.config, labels, time.time_ns()):
            raise bad_input(
                "a load curve takes the whole capacity of the server: add --yes, or run it within"
                " a [[maintenance]] window"
            )
        fingerprints: list[str] = []

        def measure(step: LoadStep) -> LoadPoint:
            run = bench.run(probe, load=step)
            report = bench.priced(run)
            fingerprints.append(run.result.fingerprint)
            return point_of(step, run, report)

        loops = measured_loops(probe.load_curve, measure, lambda: None)
        bench.bar.clear()
        terms = bench.terms
    return LoadCurve(
        probe=probe.name,
        device=bench.device,
        currency=terms.rate.currency if terms else "",
        fingerprint=fingerprints[-1],
        time_ns=time.time_ns(),
        bounds_ms=_bounds_ms(probe),
        points=tuple(loops.points),
        ends=loops.ends,
        stopped=loops.stopped,
        tags={**bench.tags, **probe.labels},
    )


def stored(settings: LoadedConfig, probe: ServedProbeConfig, device: str | None) -> LoadCurve:
    """Return the last stored load curve of a probe.

    Raises:
        click.ClickException: There is none.
    """
    tags = {"probe": probe.name, **({"device": device} if device else {})}
    with reader_of(settings) as reader:
        check_names(reader, settings.config, {"device": device})
        rows = [row for row in reader.points("sweep", 0, END_OF_TIME_NS, tags) if is_load_row(row)]
    if not rows:
        raise click.ClickException(
            f"no load curve of {probe.name} is stored; run: costprobe probe {probe.name} --load"
        )
    return curve_from_rows(rows, _bounds_ms(probe))


def in_maintenance(config: Config, labels: Mapping[str, str], time_ns: int) -> bool:
    """Return whether an instant lies in a maintenance window that applies to these labels."""
    return any(
        matches(window.match, labels)
        and is_within(window.days, window.start, window.end, window.timezone, time_ns)
        for window in config.maintenance
    )


def curve_document(curve: LoadCurve) -> dict[str, Any]:
    """Return a curve as JSON."""
    cheapest, front = curve.cheapest, curve.front
    return {
        "probe": curve.probe,
        "device": curve.device,
        "currency": curve.currency,
        "fingerprint": curve.fingerprint,
        "time_ns": curve.time_ns,
        "slo_ms": dict(curve.bounds_ms),
        "saturated": curve.is_saturated,
        "loop_ends": dict(curve.ends),
        "stopped": curve.stopped or None,
        "points": [
            {
                **{k: v for k, v in asdict(point).items() if k != "figures"},
                **point.figures,
                "meets_slo": point.meets(curve.bounds_ms) if curve.bounds_ms else None,
                "front": point in front,
                "cheapest": point == cheapest,
            }
            for point in curve.points
        ],
    }


def _bounds_ms(probe: ServedProbeConfig) -> dict[str, float]:
    return probe.slo.bounds_ms if probe.slo else {}


def _announcement(
    probe: ServedProbeConfig, device: str, plan: LoadPlan, terms: Terms | None
) -> str:
    """Return what a load curve takes in time and money."""
    cost = ""
    if terms is not None:
        expected, longest = (
            money(terms.per_s * seconds, terms.rate.currency)
            for seconds in (plan.expected_s, plan.longest_s)
        )
        cost = f"; {expected} at the present price, at most {longest}"
    return (
        f"load curve of {probe.name} on {device}: up to {counted(plan.points, 'point')}, about"
        f" {ago(plan.expected_s)}, at most {ago(plan.longest_s)}{cost}"
    )
