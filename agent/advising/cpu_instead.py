"""A processor instead of an accelerator, where a probe of the same model costs less on it."""

from __future__ import annotations

from collections.abc import Iterator

from agent.advising.device_history import DeviceHistory
from agent.advising.hint import Hint, Unsaid, in_cents
from agent.advising.history import History, busy_s_per_month, days
from agent.advising.probe_history import LEAST_RUNS, BatchFigures, ProbeHistory
from agent.costing.money import exact
from agent.pricing.book import Terms

KIND = "cpu"
LEAST_DAYS = 7.0
# Below this share saved the two cost the same but for noise.
LEAST_SHARE = 0.05


def advise(history: History) -> Iterator[Hint | Unsaid]:
    """Compares each model on an accelerator with the same model on a processor of this host."""
    kinds = {name: device.device.kind for name, device in history.devices.items()}
    on_cpu = [probe for probe in history.probes if kinds.get(probe.device) == "cpu"]
    for probe in history.probes:
        if kinds.get(probe.device) not in ("gpu", "mig"):
            continue
        same = [other for other in on_cpu if other.model == probe.model]
        if not same:
            had = f"{probe.present.words} on {probe.device}, none on a processor"
            needed = f'{LEAST_RUNS} runs of the same model with devices = ["cpu"]'
            yield Unsaid(KIND, probe.subject, "no probe of it runs on a processor", had, needed)
        for other in same:
            yield _compared(probe, other, history)


def _compared(probe: ProbeHistory, other: ProbeHistory, history: History) -> Hint | Unsaid:
    device, cpu = history.devices[probe.device], history.devices[other.device]
    had = (
        f"{probe.present.words} on {device.name}, {other.present.words} on {cpu.name};"
        f" {days(device.busy_days)} of {device.name}'s utilization"
    )
    if device.terms is None or cpu.terms is None:
        return Unsaid(KIND, probe.subject, "nothing prices one of the two", had, "both prices")
    too_little = _too_little(probe, other, device)
    if too_little:
        return Unsaid(KIND, probe.subject, too_little[0], had, too_little[1])
    if device.terms.rate.currency != cpu.terms.rate.currency:
        return Unsaid(KIND, probe.subject, "the two cost in two currencies", had, "one currency")
    now = probe.present.cost_per_inference(device.terms)
    if now is None:
        reason = "electricity is paid for apart and its energy is not known"
        return Unsaid(KIND, probe.subject, reason, had, "runs with an energy window")
    found = _cheapest(other, cpu.terms, probe.bound_ms)
    if found is None or found[0] > now * (1 - LEAST_SHARE):
        return Unsaid(KIND, probe.subject, _not_cheaper(cpu.name, found, now), had)
    return _hint(probe, (device, cpu), (now, *found), had)


def _too_little(
    probe: ProbeHistory, other: ProbeHistory, device: DeviceHistory
) -> tuple[str, str] | None:
    """Why there is too little data, and what is needed; None where there is enough."""
    if not (probe.present.is_enough and other.present.is_enough):
        return "too few runs", f"{LEAST_RUNS} runs on each"
    if device.busy_days < LEAST_DAYS:
        reason = "how busy the accelerator is is not known well"
        return reason, f"{days(LEAST_DAYS)} of utilization"
    return None


def _not_cheaper(cpu: str, found: tuple[float, BatchFigures] | None, now: float) -> str:
    if found is None:
        return f"no batch on {cpu} that can be priced is within its latency bound"
    times = f"{found[0] / now:.3g} times as much" if now else "more"
    return f"{cpu} is not {LEAST_SHARE:.0%} cheaper: an inference costs {times}"


def _cheapest(
    other: ProbeHistory, terms: Terms, bound_ms: float | None
) -> tuple[float, BatchFigures] | None:
    """The batch on the processor that costs least within the accelerator's bound."""
    found = [
        (cost, figures)
        for figures in (other.present, *other.others)
        if figures.is_enough and (bound_ms is None or figures.latency_p50_ms <= bound_ms)
        for cost in [figures.cost_per_inference(terms)]
        if cost is not None
    ]
    return min(found, key=lambda pair: (pair[0], pair[1].batch), default=None)


def _hint(
    probe: ProbeHistory,
    devices: tuple[DeviceHistory, DeviceHistory],
    found: tuple[float, float, BatchFigures],
    had: str,
) -> Hint | Unsaid:
    device, cpu = devices
    now, cost, figures = found
    present, busy = probe.present, device.busy_share or 0.0
    per_month = exact(now - cost) * exact(present.throughput_per_s) * busy_s_per_month(device)
    saving = in_cents(per_month)
    if device.terms is None or saving <= 0:
        return Unsaid(KIND, probe.subject, "its device hardly works: nothing to save", had)
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
            f"an inference costs {1 - cost / now:.0%} less on {cpu.name} at today's prices",
            f"{latency} instead of {present.latency_p50_ms:.4g} ms",
            f"the work would keep {needed:.2g} of such processors busy",
        ),
        had=had,
        assumes=(
            f"{device.name}'s work is this model's",
            f"{device.name} is given back, or put to use",
        ),
    )
