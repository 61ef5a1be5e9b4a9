"""What one inference and a million tokens cost across a fleet, by model and one more dimension.

What a model costs now is compared with a day and a week before, and has its spread over the
fleet.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from costprobe.adapters.databases.question import Question
from costprobe.core.money import price_scale
from costprobe.core.periods import DAY_NS, WEEK_NS
from costprobe.core.records import SOFTWARE_TAGS, natural
from costprobe.core.schema import ASSUMED, SERVING_RATIOS
from costprobe.fleet.answers import FleetAnswers, hours_of, started, wait_for
from costprobe.fleet.group_rows import ROLE, WHOLE
from costprobe.fleet.groups import FleetGroup, fleet_groups
from costprobe.fleet.spend import spend_parts
from costprobe.spend.query import Group, served_sums

_RATIOS: Final = (
    "cost_per_inference",
    "cost_per_request",
    "cost_per_million_tokens_in",
    "cost_per_million_tokens_out",
    "idle_share",
)
_SUMS: Final = tuple(dict.fromkeys(f for name in _RATIOS for f in SERVING_RATIOS[name].fields))
# In another number of buckets these fields are only if older versions wrote some of the rows.
_TOGETHER: Final = ("cost_idle", "cost_idle_known")
_SERVED: Final = (*_SUMS, *(f"buckets of {field}" for field in _TOGETHER))
_PROBED: Final = ("cost_per_inference", "energy_per_inference_j")
# A host with GPUs of several models, or a device with several versions in the period.
SEVERAL: Final = "several"
# Tags of the software of a run; of servers it is unknown.
SOFTWARE: Final = tuple(SOFTWARE_TAGS)

# Roles of services that have unit costs of their own; services of no group have none.
_COMPLETE: Final = ("", WHOLE)
_MILLION: Final = 1_000_000
# In the order of preference, as on the page of a host: unit, and the number of units of the field.
_MEASURES: Final[tuple[tuple[Literal["token", "inference", "request"], str, int], ...]] = (
    ("token", "cost_per_million_tokens_out", _MILLION),
    ("inference", "cost_per_inference", 1),
    ("request", "cost_per_request", 1),
)
# What identifies a unit cost between periods: basis, model, currency.
_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class FleetUnitCost:
    """The unit costs of a model, in one currency.

    Attributes:
        basis: `probe`: an inference on an otherwise idle device. `serving`: the whole cost of the
            devices, idle time included.
        model: Probe, served model, or service of one model.
        group: Value of the further dimension; empty without one.
        currency: ISO 4217 code.
        cost_per_inference: Of a probe the median over its devices of each one's median; of production
            a ratio of sums. None if it was not counted.
        cost_per_request: As a ratio of sums.
        cost_per_million_tokens_in: As a ratio of sums.
        cost_per_million_tokens_out: As a ratio of sums.
        energy_per_inference_j: Of a probe, like its cost; None for production.
        idle_share: Of production, the part of the cost that paid for idle time.
        series: Number of devices of a probe, or of hosts of a service.
    """

    basis: str
    model: str
    group: str
    currency: str
    cost_per_inference: float | None = None
    cost_per_request: float | None = None
    cost_per_million_tokens_in: float | None = None
    cost_per_million_tokens_out: float | None = None
    energy_per_inference_j: float | None = None
    idle_share: float | None = None
    series: int = 0


@dataclass(frozen=True, slots=True)
class UnitChange:
    """The unit cost of a model in a period, and its change.

    Attributes:
        now: Its unit costs in the period.
        unit: What the cost is divided by.
        cost: Currency per unit.
        scale: Number of units that the cost is written for.
        change_24h_pct: Change against the same period a day before, in percent; None if unknown.
        change_7d_pct: The same against a week before.
        spread: Largest minus smallest cost of a host, as a share of the median; None for one host.
        cost_per_h: What the model costs an hour on all hosts; None for a probe.
        is_assumed: Whether it has costs at an assumed price.
    """

    now: FleetUnitCost
    unit: Literal["token", "inference", "request"]
    cost: float
    scale: int
    change_24h_pct: float | None
    change_7d_pct: float | None
    spread: float | None
    cost_per_h: float | None
    is_assumed: bool


def fleet_unit_costs(answers: FleetAnswers, by: str) -> list[FleetUnitCost]:
    """Return the unit costs of all models, by basis, model and currency, the cheapest first.

    Parts of a group have none of their own: by model the group is listed, else nothing of them.

    Args:
        answers: The database, and the period.
        by: `model` for models only; else the further dimension: `gpu_model`, one of SOFTWARE (of probes
            only), or another tag or label.

    Raises:
        DeliveryError: The database did not answer.
    """
    groups = started(fleet_groups, answers) if by == "model" else None
    found = _unit_costs(answers, by)
    if groups is not None:
        found += [_of_group(group) for group in groups.result() if group.has_parts]
    unpriced = float("inf")
    return sorted(
        found,
        key=lambda one: (
            one.basis,
            one.model,
            one.currency,
            unpriced if one.cost_per_inference is None else one.cost_per_inference,
            natural(one.group),
        ),
    )


def _unit_costs(answers: FleetAnswers, by: str) -> list[FleetUnitCost]:
    """Return the unit costs without those of groups; as `fleet_unit_costs`."""
    probed = started(answers.each, *_probed_questions(by))
    served = started(answers.each, *([] if by in SOFTWARE else _served_questions(by)))
    of_devices = started(_device_models, answers, by)
    wait_for(probed, served, of_devices)
    models = of_devices.result()
    return [
        *_probed(answers, by, models, probed.result()),
        *_served(by, models, served.result()),
    ]


def _of_group(group: FleetGroup) -> FleetUnitCost:
    """Return the unit costs of a group whose members have none of their own."""
    return FleetUnitCost(
        basis="serving",
        model=group.group,
        group="",
        currency=group.currency,
        cost_per_request=group.cost_per_request,
        cost_per_million_tokens_in=group.cost_per_million_tokens_in,
        cost_per_million_tokens_out=group.cost_per_million_tokens_out,
        idle_share=group.idle_share,
        series=group.hosts,
    )


def _probed_questions(by: str) -> list[Question]:
    # The engine computes each device's median; the fleet's devices are few numbers.
    is_joined = by == "gpu_model" or by in SOFTWARE
    further = () if by == "model" or is_joined else (by,)
    tags = ("host", "device", "probe", "currency", *further)
    where = {"basis": "probe"}
    return [Question("cost", field, "median", "median", by=tags, where=where) for field in _PROBED]


def _probed(
    answers: FleetAnswers,
    by: str,
    models: Mapping[Group, str],
    found: Sequence[Mapping[Group, float]],
) -> Iterable[FleetUnitCost]:
    medians = dict(zip(_PROBED, found, strict=True))
    software = _software(answers, by) if by in SOFTWARE and medians["cost_per_inference"] else {}
    values: dict[Group, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for field, groups in medians.items():
        for (host, device, probe, currency, *rest), value in groups.items():
            joined = software.get((host, device, probe), models.get((host, device), ""))
            group = rest[0] if rest else joined
            values[probe, group, currency][field].append(value)
    for (probe, group, currency), by_field in values.items():
        costs, joules = by_field["cost_per_inference"], by_field["energy_per_inference_j"]
        yield FleetUnitCost(
            basis="probe",
            model=probe,
            group=group,
            currency=currency,
            cost_per_inference=statistics.median(costs) if costs else None,
            energy_per_inference_j=statistics.median(joules) if joules else None,
            series=len(costs),
        )


def _dimension(by: str) -> Group:
    return {"model": (), "gpu_model": ("host",)}.get(by, (by,))


def _served_questions(by: str) -> list[Question]:
    dimension = (*_dimension(by), ROLE)
    sums = (one for field in _SUMS for one in served_sums(field, dimension))
    buckets = (
        dataclasses.replace(one, over_time="covered")
        for field in _TOGETHER
        for one in served_sums(field, dimension)
    )
    return [*sums, *buckets, *_counted(dimension)]


def _served(
    by: str, models: Mapping[Group, str], found: Sequence[Mapping[Group, float]]
) -> Iterable[FleetUnitCost]:
    if not found:
        return
    dimension = _dimension(by)
    hosts = _only((host, model) for (host, _), model in models.items())
    of_host = {host: model for (host,), model in hosts.items()}
    sums: dict[Group, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    count = 2 * len(_SERVED)
    parts = zip(_SERVED, found[:count:2], found[1:count:2], strict=True)
    for field, by_model, whole in parts:
        for key, value in _by_model(by_model, whole).items():
            service, currency, *rest, role = key
            if role not in _COMPLETE:
                continue
            group = rest[0] if rest else ""
            sums[service, of_host.get(group, "") if of_host else group, currency][field] += value
    counted = _counted_hosts(found[count:], dimension, of_host)
    for (model, group, currency), fields in _priced(sums).items():
        idle, known = (fields.get(name) for name in _SERVED[-len(_TOGETHER) :])
        if idle != known:
            fields.pop("cost_idle_known", None)
        values = {name: SERVING_RATIOS[name].of(fields) for name in _RATIOS}
        yield FleetUnitCost(
            basis="serving",
            model=model,
            group=group,
            currency=currency,
            series=counted.get((model, group, currency), 0),
            **values,
        )


def _priced(sums: Mapping[Group, dict[str, float]]) -> dict[Group, dict[str, float]]:
    """Return the sums of each currency, with the counts of the same model, which have no currency.

    A model that is paid in several currencies has no unit costs where the database counts its
    requests without the currency: which of them were paid in which is unknown.
    """
    paid: dict[Group, list[Group]] = defaultdict(list)
    for key, fields in sums.items():
        if "cost_total" in fields:
            paid[key[:2]].append(key)
    return {
        key: {**sums.get((*key[:2], ""), {}), **sums[key]} if len(keys) == 1 else sums[key]
        for keys in paid.values()
        for key in keys
    }


def _by_model(by_model: Mapping[Group, float], whole: Mapping[Group, float]) -> dict[Group, float]:
    """Return a sum by (model, currency, dimension); a service of one model has its name.

    Args:
        by_model: The sum by (service, model, currency, dimension).
        whole: That of whole services, by (service, currency, dimension).
    """
    found: dict[Group, float] = defaultdict(float)
    divided = set()
    for (service, model, *rest), value in by_model.items():
        found[(model, *rest)] += value
        divided.add(service)
    for (service, *rest), value in whole.items():
        if service not in divided:
            found[(service, *rest)] += value
    return found


def _counted(dimension: Group) -> list[Question]:
    """Return the questions for the hosts of models, and of whole services."""
    further = ("host", *(tag for tag in dimension if tag != "host"))
    return [
        dataclasses.replace(question, over_time="count", across="count")
        for question in served_sums("cost_total", further)
    ]


def _counted_hosts(
    counted: Sequence[Iterable[Group]], dimension: Group, hosts: Mapping[str, str]
) -> dict[Group, int]:
    """Return the number of hosts by (model, dimension, currency).

    Args:
        counted: The groups of `_counted`.
        dimension: Tags of the further dimension.
        hosts: GPU model by host; empty unless it is the further dimension.
    """
    found: dict[Group, set[str]] = defaultdict(set)
    by_model, whole = counted
    for name, currency, host, *rest, role in (*(group[1:] for group in by_model), *whole):
        if role not in _COMPLETE:
            continue
        group = rest[0] if rest else host if dimension == ("host",) else ""
        found[name, hosts.get(host, "") if hosts else group, currency].add(host)
    return {key: len(names) for key, names in found.items()}


def _software(answers: FleetAnswers, tag: str) -> dict[Group, str]:
    """Return a version that cost rows of probes do not have, by (host, device, probe)."""
    by = ("host", "device", "probe", tag)
    return _only(answers.groups(Question("software", "probe_runs", "count", "count", by=by)))


def _device_models(answers: FleetAnswers, by: str) -> dict[Group, str]:
    """Return the GPU model of each device, by (host, device); nothing unless it is the further dimension."""
    if by != "gpu_model":
        return {}
    tags = ("host", "device", "model")
    return _only(answers.groups(Question("device", "cost", "count", "count", by=tags)))


def _only(groups: Iterable[Group]) -> dict[Group, str]:
    """Return the last value of the groups by the others, `several` where there are more."""
    found: dict[Group, set[str]] = defaultdict(set)
    for *key, value in groups:
        found[tuple(key)].add(value)
    return {key: min(values) if len(values) == 1 else SEVERAL for key, values in found.items()}


def unit_changes(answers: FleetAnswers) -> list[UnitChange]:
    """Return the unit costs of all models, those that cost most first, then probes by their name.

    Args:
        answers: The database, and the period, such as the last hour.

    Raises:
        DeliveryError: The database did not answer.
    """
    period = answers.period
    earlier = [
        _by_key(
            answers.over(
                period._replace(
                    start_ns=period.start_ns - shift_ns, end_ns=period.end_ns - shift_ns
                )
            )
        )
        for shift_ns in (DAY_NS, WEEK_NS)
    ]
    hosts: dict[_Key, list[FleetUnitCost]] = defaultdict(list)
    for one in _unit_costs(answers, "host"):
        hosts[_key(one)].append(one)
    paid, assumed = _paid_per_h(answers), _assumed(answers)
    found = []
    for key, one in _by_key(answers).items():
        measure = next((m for m in _MEASURES if getattr(one, m[1]) is not None), None)
        if measure is None:
            continue
        unit, field, units = measure
        cost = getattr(one, field) / units
        day, week = (getattr(then[key], field) if key in then else None for then in earlier)
        first = next((value / units for value in (week, day) if value), cost)
        found.append(
            UnitChange(
                now=one,
                unit=unit,
                cost=cost,
                scale=_MILLION if unit == "token" else price_scale(first),
                change_24h_pct=_change_pct(day, cost * units),
                change_7d_pct=_change_pct(week, cost * units),
                spread=_spread(hosts[key], field),
                cost_per_h=paid.get((one.model, one.currency)) if one.basis == "serving" else None,
                is_assumed=key in assumed,
            )
        )
    return sorted(found, key=lambda one: (-(one.cost_per_h or 0.0), one.now.basis, one.now.model))


def _key(one: FleetUnitCost) -> _Key:
    return one.basis, one.model, one.currency


def _by_key(answers: FleetAnswers) -> dict[_Key, FleetUnitCost]:
    return {_key(one): one for one in _unit_costs(answers, "model")}


def _paid_per_h(answers: FleetAnswers) -> Mapping[tuple[str, str], float]:
    """Return what models cost an hour, by model and currency, without parts of groups."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for role in _COMPLETE:
        complete = answers.over(answers.period, {**answers.labels, ROLE: role})
        for part in spend_parts(complete, "model"):
            for one in part.costs:
                found[part.group[0], one.currency] += one.cost / hours_of(answers.period)
    return found


def _assumed(answers: FleetAnswers) -> set[_Key]:
    """Return the models that have a cost at an assumed price."""
    tags = ("basis", "currency", "probe", "service", "served_model")
    found = answers.each(
        *(
            Question("cost", field, "count", "count", by=tags, where={"plan": ASSUMED})
            for _, field, _ in _MEASURES
        )
    )
    return {
        (basis, served_model or service or probe, currency)
        for groups in found
        for basis, currency, probe, service, served_model in groups
    }


def _spread(hosts: list[FleetUnitCost], field: str) -> float | None:
    values = [value for one in hosts if (value := getattr(one, field)) is not None]
    middle = statistics.median(values) if values else 0.0
    return (max(values) - min(values)) / middle if len(values) > 1 and middle > 0 else None


def _change_pct(before: float | None, after: float) -> float | None:
    return (after / before - 1) * 100 if before else None
