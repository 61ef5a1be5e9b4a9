"""A batch that costs less within the same latency bound."""

from __future__ import annotations

from collections.abc import Iterator

from agent.advising.device_history import DeviceHistory
from agent.advising.hint import Hint, Unsaid, in_cents
from agent.advising.history import History, busy_s_per_month, days
from agent.advising.probe_history import LEAST_RUNS, BatchFigures, ProbeHistory
from agent.costing.money import exact
from agent.pricing.book import Terms

KIND = "batch"
# A week has every hour that a month has.
LEAST_DAYS = 7.0
# Below this share saved the two batches cost the same but for noise.
LEAST_SHARE = 0.05


def advise(history: History) -> Iterator[Hint | Unsaid]:
    """Looks at each probe's other batches, from its runs and its last sweep, at today's price."""
    for probe in history.probes:
        device = history.devices.get(probe.device)
        if device is None or device.terms is None:
            yield Unsaid(KIND, probe.subject, "nothing prices its device", _had(probe), "a price")
        else:
            yield _of_probe(probe, device, device.terms)


def _of_probe(probe: ProbeHistory, device: DeviceHistory, terms: Terms) -> Hint | Unsaid:
    had = f"{_had(probe)}; {days(device.busy_days)} of {device.name}'s utilization"
    too_little = _too_little(probe, device)
    if too_little:
        return Unsaid(KIND, probe.subject, too_little[0], had, too_little[1])
    now = probe.present.cost_per_inference(terms)
    if now is None:
        reason = "electricity is paid for apart and its energy is not known"
        return Unsaid(KIND, probe.subject, reason, had, "runs with an energy window")
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
            reason += "; it has no latency_bound, so that none may be slower than now"
        return Unsaid(KIND, probe.subject, reason, had)
    return _hint(probe, device, (now, cost, best), had)


def _too_little(probe: ProbeHistory, device: DeviceHistory) -> tuple[str, str] | None:
    """Why there is too little data, and what is needed; None where there is enough."""
    if not probe.present.is_enough:
        return "too few runs at the present batch", f"{LEAST_RUNS} runs"
    if not any(other.is_enough for other in probe.others):
        needed = f"infercost probe {probe.probe} --sweep, or {LEAST_RUNS} runs at another batch"
        return "no other batch was measured with the present software", needed
    if device.busy_days < LEAST_DAYS:
        return "how busy the device is is not known well", f"{days(LEAST_DAYS)} of utilization"
    return None


def _hint(
    probe: ProbeHistory,
    device: DeviceHistory,
    found: tuple[float, float, BatchFigures],
    had: str,
) -> Hint | Unsaid:
    now, cost, best = found
    terms, present = device.terms, probe.present
    per_month = exact(now - cost) * exact(present.throughput_per_s) * busy_s_per_month(device)
    saving = in_cents(per_month)
    if terms is None or saving <= 0:
        return Unsaid(KIND, probe.subject, "its device hardly works: nothing to save", had)
    bound = "as now" if probe.bound_ms is None else f"within {probe.bound_ms:.4g} ms"
    return Hint(
        kind=KIND,
        subject=probe.subject,
        devices=(probe.device,),
        action=f"batch {best.batch} instead of {present.batch}",
        saving_per_month=saving,
        currency=terms.rate.currency,
        evidence=(
            f"an inference costs {1 - cost / now:.0%} less at today's price",
            f"p50 {best.latency_p50_ms:.4g} ms instead of {present.latency_p50_ms:.4g} ms, {bound}",
            f"{device.name} works {device.busy_share or 0.0:.0%} of the time",
        ),
        had=had,
        assumes=(
            f"{device.name}'s work is this model's",
            "the time that it frees is given back, or put to use",
        ),
    )


def _had(probe: ProbeHistory) -> str:
    present = f"batch {probe.present.batch}: {probe.present.words}"
    return "; ".join([present, *(f"batch {one.batch}: {one.words}" for one in probe.others)])
