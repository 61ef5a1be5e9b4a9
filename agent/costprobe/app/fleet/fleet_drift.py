"""The check for drift that most hosts of a fleet share."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from costprobe.adapters.fleet.question import Question
from costprobe.adapters.fleet.watch_settings import FleetWatchConfig
from costprobe.adapters.net.errors import DeliveryError
from costprobe.app.fleet.answers import ARRIVED_NS, FleetAnswers
from costprobe.app.fleet.check import FleetCheck, FleetQuery, PartialAnswerError
from costprobe.app.fleet.rollouts import FleetChange, aligned, fleet_changes
from costprobe.core.incident import Fault
from costprobe.core.records import NS_PER_S
from costprobe.core.units import counted, format_duration
from costprobe.domain.costing.probe.software_tags import SOFTWARE_TAGS
from costprobe.domain.fleet.common_drift import CommonDrift, DriftKey, HostCost, common_drifts

_DAY_NS: Final = 86_400 * NS_PER_S
# The same time of day: prices and temperatures have a daily pattern.
_DAYS_BEFORE: Final = tuple(range(1, 8))
# The same time of the same weekday: the work of services has a weekly pattern.
_WEEKS_BEFORE: Final = (7, 14, 21)
_BUCKET_S: Final = 300
# Windows before the present one in which a cause is sought.
_CAUSE_WINDOWS: Final = 4
UNKNOWN: Final = "unknown"

# Cost by workload, host and currency.
_Costs = dict[tuple[str, str, str], float]


class FleetDrift(FleetCheck):
    """Compares the cost of each probe and service with that of the same time before, on all hosts.

    Of a probe it is the cost per inference, of a service the cost without idle time per generated token, or
    per inference.

    Args:
        config: The section [fleet.watch].
    """

    name = "drift"

    def __init__(self, config: FleetWatchConfig) -> None:
        self._config = config
        self._window_s = max(_BUCKET_S, int(config.drift_window_s) // _BUCKET_S * _BUCKET_S)
        self._faults: dict[DriftKey, Fault] = {}

    def evaluate(self, query: FleetQuery) -> None:
        """See `FleetCheck.evaluate`."""
        costs = [
            *self._host_costs(query, _probe_costs, _DAYS_BEFORE),
            *self._host_costs(query, _service_costs, _WEEKS_BEFORE),
        ]
        drifts = common_drifts(costs, self._config.drift_at_least, self._faults)
        faults = {}
        for drift in drifts:
            before = self._faults.get(drift.key)
            if before is not None and before.cause != UNKNOWN:
                cause, detail = before.cause, before.detail
            else:
                cause, detail = self._coincidence(query, drift)
            faults[drift.key] = _fault(drift, cause, detail, self._window_s)
        self._faults = faults

    def faults(self) -> list[Fault]:
        """Return a fault for each drift."""
        return list(self._faults.values())

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the drifts."""
        return [
            [*key, [fault.text, fault.cause, fault.detail, fault.value]]
            for key, fault in self._faults.items()
        ]

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Replace the state."""
        self._faults = {}
        for workload, model, currency, (text, cause, detail, value) in document:
            key = DriftKey(workload, model, currency)
            self._faults[key] = _fault_of(key, text, cause, detail, value)

    def _host_costs(
        self,
        query: FleetQuery,
        costs_of: Callable[[FleetAnswers], _Costs],
        days_before: tuple[int, ...],
    ) -> list[HostCost]:
        """Return the present and the usual cost of each workload on each host."""
        end_ns = query.now_ns - ARRIVED_NS
        window_ns = self._window_s * NS_PER_S
        with query.over(end_ns - window_ns, end_ns) as answers:
            after = costs_of(answers)
            models = _models(answers) if after else {}
        if not after:
            return []
        before: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        for days in days_before:
            then_ns = end_ns - days * _DAY_NS
            with query.over(then_ns - window_ns, then_ns) as answers:
                found = costs_of(answers)
            for series, cost in found.items():
                before[series].append(cost)
        return [
            HostCost(DriftKey(workload, models.get(host, ""), currency), host, usual, cost)
            for (workload, host, currency), cost in after.items()
            if cost > 0 and (usual := _usual(before.get((workload, host, currency)))) > 0
        ]

    def _coincidence(self, query: FleetQuery, drift: CommonDrift) -> tuple[str, str]:
        """Return what changed on most of the hosts at the time, as a cause and a sentence."""
        end_ns = query.now_ns - ARRIVED_NS
        window_ns = self._window_s * NS_PER_S
        try:
            with query.over(end_ns - _CAUSE_WINDOWS * window_ns, end_ns) as answers:
                answers.period = aligned(answers.period, self._window_s)
                for key in SOFTWARE_TAGS:
                    for change in fleet_changes(answers, key):
                        if 2 * change.hosts >= len(drift.hosts):
                            return key, _change_words(change)
        except (DeliveryError, PartialAnswerError):
            # Asked again at the next evaluation; the drift itself is known.
            return UNKNOWN, ""
        return UNKNOWN, "no version of driver, PyTorch, CUDA, dtype or weights changed on them"


def _probe_costs(answers: FleetAnswers) -> _Costs:
    by = ("probe", "host", "currency")
    where = {"basis": "probe"}
    groups = answers.groups(
        Question("cost", "cost_per_inference", "median", "median", by=by, where=where)
    )
    return {(probe, host, currency): cost for (probe, host, currency), cost in groups.items()}


def _service_costs(answers: FleetAnswers) -> _Costs:
    where = {"basis": "serving", "served_model": ""}
    paid, counts = ("service", "host", "currency"), ("service", "host")
    sums = {
        field: answers.groups(Question("cost", field, "sum", by=paid, where=where))
        for field in ("cost_total", "cost_idle")
    }
    if not sums["cost_total"]:
        return {}
    done = {
        field: answers.groups(Question("cost", field, "sum", by=counts, where=where))
        for field in ("tokens_out", "inferences")
    }
    found = {}
    for (service, host, currency), total in sums["cost_total"].items():
        busy = total - sums["cost_idle"].get((service, host, currency), 0.0)
        made = done["tokens_out"].get((service, host)) or done["inferences"].get((service, host))
        # Counts of /metrics have no currency.
        if currency and made and busy > 0:
            found[service, host, currency] = busy / made
    return found


def _models(answers: FleetAnswers) -> dict[str, str]:
    """Return the GPU models of each host."""
    found: dict[str, set[str]] = defaultdict(set)
    for host, model in answers.groups(
        Question("device", "util_pct", "max", "max", by=("host", "model"))
    ):
        found[host].add(model)
    return {host: ", ".join(sorted(models)) for host, models in found.items()}


def _usual(costs: list[float] | None) -> float:
    return median(costs) if costs else 0.0


def _fault(drift: CommonDrift, cause: str, detail: str, window_s: float) -> Fault:
    key = drift.key
    on = f" on {key.model}" if key.model else ""
    text = (
        f"{key.workload}{on}: cost {drift.change * 100:+.1f} % on {len(drift.hosts):,} of"
        f" {counted(drift.compared, 'host')} in the last {format_duration(window_s)}, compared with the"
        " same time before"
    )
    return _fault_of(key, text, cause, detail, drift.change * 100)


def _fault_of(key: DriftKey, text: str, cause: str, detail: str, value: float) -> Fault:
    labels = {name: value for name, value in key._asdict().items() if value}
    subject = " ".join(labels.values())
    return Fault(
        "fleet_drift", subject, text, "warning", labels, cause=cause, detail=detail, value=value
    )


def _change_words(change: FleetChange) -> str:
    words = f"{change.key} {change.before} → {change.after} on {counted(change.hosts, 'host')}"
    beside = [f"{text} on {counted(hosts, 'host')}" for text, hosts in change.beside.items()]
    cost = change.effect.cost or change.effect.time if change.effect else None
    if cost is None:
        effect = "too few other hosts to know its effect"
    else:
        ends = (cost.mean - cost.half_width, cost.mean + cost.half_width)
        low, high = (f"{math.expm1(end) * 100:+.1f}" for end in ends)
        effect = (
            f"its effect, compared with hosts that did not change yet: {math.expm1(cost.mean) * 100:+.1f} %"
            f" ({low} to {high} %)"
        )
    return "; ".join((words, *beside, effect))
