"""Advise a CPU instead of an accelerator if a probe of the same model costs less on it."""

from __future__ import annotations

from collections.abc import Iterator

from costprobe.domain.advice.device_history import DeviceHistory
from costprobe.domain.advice.hint import Hint, NoHint, in_cents
from costprobe.domain.advice.history import History, busy_s_per_month, days
from costprobe.domain.advice.probe_history import LEAST_RUNS, BatchFigures, ProbeHistory
from costprobe.domain.costing.money import exact
from costprobe.domain.pricing.book import Terms

KIND = "cpu"
LEAST_DAYS = 7.0
# A smaller relative saving is within the noise.
LEAST_SHARE = 0.05


def advise(history: History) -> Iterator[Hint | NoHint]:
    """Compare each model on an accelerator with the same model on this host's CPU."""
    devices = {name: device.device for name, device in history.devices.items()}
    on_cpu = [
        probe for probe in history.probes if (host := devices.get(probe.device)) and host.is_host
    ]
    for probe in history.probes:
        device = devices.get(probe.device)
        if device is None or device.is_host:
            continue
        same = [other for other in on_cpu if other.model == probe.model]
        if not same:
            had = f"{probe.present.words} on {probe.device}, none on a CPU"
            needed = f'{LEAST_RUNS} runs of the same model with devices = ["cpu"]'
            yield NoHint(KIND, probe.subject, "no probe of the model runs on a CPU", had, needed)
        for other in same:
            yield _compared(probe, other, history)


def _compared(probe: ProbeHistory, other: ProbeHistory, history: History) -> Hint | NoHint:
    device, cpu = history.devices[probe.device], history.devices[other.device]
    had = (
        f"{probe.present.words} on {device.name}, {other.present.words} on {cpu.name};"
        f" {days(device.busy_days)} of {device.name}'s utilization"
    )
    if device.terms is None or cpu.terms is None:
        return NoHint(KIND, probe.subject, "one of the two has no price", had, "both prices")
    too_little = _too_little(probe, other, device)
    if too_little:
        return NoHint(KIND, probe.subject, too_little[0], had, too_little[1])
    if device.terms.rate.currency != cpu.terms.rate.currency:
        return NoHint(
            KIND, probe.subject, "the two prices have different currencies", had, "one currency"
        )
    now = probe.present.cost_per_inference(device.terms)
    if now is None:
        reason = "electricity is billed separately and its energy is unknown"
        return NoHint(KIND, probe.subject, reason, had, "runs with an energy window")
    cheapest = _cheapest(other, cpu.terms, probe.bound_ms)
    if cheapest is None or cheapest[0] > now * (1 - LEAST_SHARE):
        return NoHint(KIND, probe.subject, _not_cheaper(cpu.name, cheapest, now), had)
    return _hint(probe, (device, cpu), (now, *cheapest), had)


def _too_little(
    probe: ProbeHistory, other: ProbeHistory, device: DeviceHistory
) -> tuple[str, str] | None:
    """Return why the data is insufficient, and what is needed; None if it suffices."""
    if not (probe.present.is_enough and other.present.is_enough):
        return "too few runs", f"{LEAST_RUNS} runs on each"
    if device.busy_days < LEAST_DAYS:
        reason = "too little utilization data of the accelerator"
        return reason, f"{days(LEAST_DAYS)} of utilization"
    return None


def _not_cheaper(cpu: str, cheapest: tuple[float, BatchFigures] | None, now: float) -> str:
    if cheapest is None:
        return f"no priced batch on {cpu} is within its latency bound"
    times = f"{cheapest[0] / now:.3g} times as high" if now else "higher"
    return f"{cpu} is not {LEAST_SHARE:.0%} cheaper: cost per inference is {times}"


def _cheapest(
    other: ProbeHistory, terms: Terms, bound_ms: float | None
) -> tuple[float, BatchFigures] | None:
    """Return the cheapest batch on the CPU within the accelerator's latency bound."""
    costs = [
        (cost, figures)
        for figures in (other.present, *other.others)
        if figures.is_enough and (bound_ms is None or figures.latency_p50_ms <= bound_ms)
        for cost in [figures.cost_per_inference(terms)]
        if cost is not None
    ]
    return min(costs, key=lambda pair: (pair[0], pair[1].batch), default=None)


def _hint(
    probe: ProbeHistory,
    devices: tuple[DeviceHistory, DeviceHistory],
    cheapest: tuple[float, float, BatchFigures],
    had: str,
) -> Hint | NoHint:
    device, cpu = devices
    now, cost, figures = cheapest
    present, busy = probe.present, device.busy_share or 0.0
    per_month = exact(now - cost) * exact(present.throughput_per_s) * busy_s_per_month(device)
    saving = in_cents(per_month)
    if device.terms is None or saving <= 0:
        return NoHint(KIND, probe.subject, "its device is almost idle: nothing to save", had)
    needed = busy * present.throughput_per_s / figures.throughput_per_s
    latency = f"p50 {figures.latency_p50_ms:.4g} ms (batch {figures.batch})"
    return Hint(
        kind=KIND,
        subject=probe.subject,
        devices=(device.name,),
        action=f"{cpu.name} instead of {device.name}",
        saving_per_month=saving,
        currency=device.terms.rate.currency,
        evidence=(
            f"cost per inference is {1 - cost / now:.0%} lower on {cpu.name} at today's prices",
            f"{latency} instead of {present.latency_p50_ms:.4g} ms",
            f"the load equals {needed:.2g} such CPUs at full utilization",
        ),
        had=had,
        assumes=(
            f"{device.name} runs only this model",
            f"{device.name} is released or used otherwise",
        ),
    )
