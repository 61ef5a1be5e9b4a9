"""Advise a batch size with a lower cost within the same latency bound."""

from __future__ import annotations

from collections.abc import Iterator

from costprobe.domain.advice.device_history import DeviceHistory
from costprobe.domain.advice.hint import Hint, NoHint, in_cents
from costprobe.domain.advice.history import History, busy_s_per_month, days
from costprobe.domain.advice.probe_history import LEAST_RUNS, BatchFigures, ProbeHistory
from costprobe.domain.costing.money import exact
from costprobe.domain.pricing.book import Terms

KIND = "batch"
# A week covers every hour of the weekly load pattern.
LEAST_DAYS = 7.0
# A smaller relative saving is within the noise.
LEAST_SHARE = 0.05


def advise(history: History) -> Iterator[Hint | NoHint]:
    """Compare each probe's batches, from its runs and its last sweep, at today's price."""
    for probe in history.probes:
        device = history.devices.get(probe.device)
        if device is None or device.terms is None:
            yield NoHint(KIND, probe.subject, "its device has no price", _had(probe), "a price")
        else:
            yield _of_probe(probe, device, device.terms)


def _of_probe(probe: ProbeHistory, device: DeviceHistory, terms: Terms) -> Hint | NoHint:
    had = f"{_had(probe)}; {days(device.busy_days)} of {device.name}'s utilization"
    too_little = _too_little(probe, device)
    if too_little:
        return NoHint(KIND, probe.subject, too_little[0], had, too_little[1])
    now = probe.present.cost_per_inference(terms)
    if now is None:
        reason = "electricity is billed separately and its energy is unknown"
        return NoHint(KIND, probe.subject, reason, had, "runs with an energy window")
    bound_ms = probe.present.latency_p50_ms if probe.bound_ms is None else probe.bound_ms
    costs = [
        (cost, other)
        for other in probe.others
        if other.is_enough and other.latency_p50_ms <= bound_ms
        for cost in [other.cost_per_inference(terms)]
        if cost is not None
    ]
    cost, best = min(costs, key=lambda pair: (pair[0], pair[1].batch), default=(now, probe.present))
    if cost > now * (1 - LEAST_SHARE):
        reason = f"no batch within {bound_ms:.4g} ms costs {LEAST_SHARE:.0%} less"
        if probe.bound_ms is None:
            reason += "; without a latency_bound, no batch may be slower than the present one"
        return NoHint(KIND, probe.subject, reason, had)
    return _hint(probe, device, (now, cost, best), had)


def _too_little(probe: ProbeHistory, device: DeviceHistory) -> tuple[str, str] | None:
    """Return why the data is insufficient, and what is needed; None if it suffices."""
    if not probe.present.is_enough:
        return "too few runs at the present batch", f"{LEAST_RUNS} runs"
    if not any(other.is_enough for other in probe.others):
        needed = f"costprobe probe {probe.probe} --sweep, or {LEAST_RUNS} runs at another batch"
        return "no other batch was measured with the present software", needed
    if device.busy_days < LEAST_DAYS:
        return "too little utilization data of the device", f"{days(LEAST_DAYS)} of utilization"
    return None


def _hint(
    probe: ProbeHistory,
    device: DeviceHistory,
    optimum: tuple[float, float, BatchFigures],
    had: str,
) -> Hint | NoHint:
    now, cost, best = optimum
    terms, present = device.terms, probe.present
    per_month = exact(now - cost) * exact(present.throughput_per_s) * busy_s_per_month(device)
    saving = in_cents(per_month)
    if terms is None or saving <= 0:
        return NoHint(KIND, probe.subject, "its device is almost idle: nothing to save", had)
    bound = "as now" if probe.bound_ms is None else f"within {probe.bound_ms:.4g} ms"
    return Hint(
        kind=KIND,
        subject=probe.subject,
        devices=(probe.device,),
        action=f"batch {best.batch} instead of {present.batch}",
        saving_per_month=saving,
        currency=terms.rate.currency,
        evidence=(
            f"cost per inference is {1 - cost / now:.0%} lower at today's price",
            f"p50 {best.latency_p50_ms:.4g} ms instead of {present.latency_p50_ms:.4g} ms, {bound}",
            f"{device.name} is busy {device.busy_share or 0.0:.0%} of the time",
        ),
        had=had,
        assumes=(
            f"{device.name} runs only this model",
            "the freed time is released or used",
        ),
    )


def _had(probe: ProbeHistory) -> str:
    present = f"batch {probe.present.batch}: {probe.present.words}"
    return "; ".join(
        [present, *(f"batch {figures.batch}: {figures.words}" for figures in probe.others)]
    )
