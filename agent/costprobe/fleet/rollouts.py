"""What changes of software did to cost over a fleet: who changed when, and each change's effect.

The software and labels of hosts over time are read in buckets.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from costprobe.adapters.databases.question import WEIGHTED, Question
from costprobe.core.records import NS_PER_S, SOFTWARE_TAGS
from costprobe.core.units import HOUR_S
from costprobe.fleet.answers import FleetAnswers, FleetPeriod, Group, started, wait_for
from costprobe.fleet.peers import ExcessCost
from costprobe.fleet.updates import ChangeEffect, HostSeries, change_effect, monthly_change
from costprobe.unit_costs.change import CostFactors

# A probe on a host.
Series = tuple[str, str]
# The value of each bucket, None where unknown.
Buckets = list[str | None]

_BOTH: Final = "\0"

# Buckets of the window before and after a change.
WINDOW_BUCKETS: Final = 4
# Changes that are estimated, those on the most hosts.
CHANGES_MAX: Final = 10
_SHORTEST_BUCKET_S: Final = 300


class FleetChange(NamedTuple):
    """A change of software over a fleet.

    Attributes:
        key: What changed: `driver`, `torch`, `cuda`, `dtype`, `weights_hash` or a label.
        before: Its value before.
        after: Its value after.
        first_ns: End of the interval in which the first host changed, UTC in ns.
        last_ns: The same of the last one.
        effect: What it did; None if no host can be compared.
        hosts: Number of hosts that changed, counted in the effect or not.
        beside: What else changed in the same interval, with its number of hosts.
        costs: What the effect on the cost per inference costs a month at the present use of all hosts that
            changed and did not go back, by currency; empty where the effect is unknown.
    """

    key: str
    before: str
    after: str
    first_ns: int
    last_ns: int
    effect: ChangeEffect | None
    hosts: int
    beside: Mapping[str, int]
    costs: tuple[ExcessCost, ...] = ()


def aligned(period: FleetPeriod, window_s: float) -> FleetPeriod:
    """Return the part of a period in whole intervals, four of which make a window.

    Raises:
        ValueError: The period is shorter than two windows and the change between them.
    """
    shortest = _SHORTEST_BUCKET_S
    bucket_s = max(shortest, int(window_s) // WINDOW_BUCKETS // shortest * shortest)
    step_ns = bucket_s * NS_PER_S
    start, end = -(-period.start_ns // step_ns), period.end_ns // step_ns
    if end - start < 2 * WINDOW_BUCKETS + 1:
        raise ValueError("the period must be longer than two windows")
    return FleetPeriod(start * step_ns, end * step_ns, bucket_s, period.now_ns)


def fleet_changes(answers: FleetAnswers, key: str, within: str = "") -> list[FleetChange]:
    """Return the changes of a version or label in a period, those on the most hosts first.

    Args:
        answers: The database, and a period as `aligned` returns it.
        key: A tag of `software`, or a label of the hosts.
        within: Label of the hosts: only those with the same value are compared; empty for none.

    Raises:
        DeliveryError: The database did not answer.
    """
    buckets = answers.period.buckets
    software = {tag: _versions_of(answers, tag) for tag in _changed_tags(answers)}
    hosts = {} if key in SOFTWARE_TAGS else _labels_of(answers, key)
    values: Mapping[Any, Buckets] = software.get(key, {}) if key in SOFTWARE_TAGS else hosts
    changed_in = [bucket for one in values.values() for bucket, *_ in _moves_of(one)]
    if not changed_in:
        return []
    # The windows of the changes, and those before them.
    around = range(
        max(0, min(changed_in) - 2 * WINDOW_BUCKETS - 2),
        min(buckets, max(changed_in) + WINDOW_BUCKETS + 2),
    )
    of_hosts = started(kinds_of_hosts, answers, within)
    used = started(_busy_cost_per_h, answers)
    of_probes = started(_factors, answers, around)
    wait_for(of_hosts, used, of_probes)
    kinds, use = of_hosts.result(), used.result()
    factors, priced = of_probes.result()
    # Each change of a series: what changed, from and to, and its bucket.
    moves: dict[Series, list[tuple[Group, int]]] = {
        series: [
            ((tag, before, after), bucket)
            for tag, values in (
                *((tag, values.get(series, [])) for tag, values in software.items()),
                (key, hosts.get(series[0], [])),
            )
            for bucket, before, after in _moves_of(values)
        ]
        for series in factors
    }
    numbers = Counter(
        move for found in moves.values() for move in {what for what, _ in found if what[0] == key}
    )
    changes = []
    for wanted in sorted(numbers, key=lambda what: (-numbers[what], what))[:CHANGES_MAX]:
        _, before, after = wanted
        changed = {
            series: min(bucket for what, bucket in found if what == wanted)
            for series, found in moves.items()
            if any(what == wanted for what, _ in found)
        }
        listed = [
            HostSeries(
                series[0],
                (series[1], *kinds.get(series[0], ())),
                values,
                changed.get(series),
                frozenset(bucket for _, bucket in moves[series] if bucket != changed.get(series)),
                is_priced=series in priced,
            )
            for series, values in factors.items()
        ]
        beside: dict[str, set[str]] = defaultdict(set)
        for series, at in changed.items():
            for (tag, old, new), bucket in moves[series]:
                if bucket == at and tag != key:
                    beside[f"{tag} {old} → {new}"].add(series[0])
        effect = change_effect(listed, min(WINDOW_BUCKETS, buckets))
        # Those that went back do not have its cost any more.
        kept = {
            series[0]
            for series in changed
            if [new for (tag, _, new), _ in moves[series] if tag == key][-1] == after
        }
        changes.append(
            FleetChange(
                key,
                before,
                after,
                _bucket_end_ns(answers.period, min(changed.values())),
                _bucket_end_ns(answers.period, max(changed.values())),
                effect,
                len({host for host, _ in changed}),
                {text: len(names) for text, names in beside.items()},
                _monthly(use, kept, effect),
            )
        )
    return sorted(changes, key=lambda change: (-change.hosts, change.before, change.after))


def _changed_tags(answers: FleetAnswers) -> list[str]:
    """Return the tags of `software` that have several values on any host."""
    found: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for host, probe, *versions in _software(answers):
        for tag, value in zip(SOFTWARE_TAGS, versions, strict=True):
            if value:
                found[host, probe, tag].add(value)
    changed = {tag for (*_, tag), several in found.items() if len(several) > 1}
    return [tag for tag in SOFTWARE_TAGS if tag in changed]


def _versions_of(answers: FleetAnswers, tag: str) -> dict[Series, Buckets]:
    """Return a tag of `software` of each probe on each host, by bucket."""
    question = Question(
        "software", "probe_runs", "max", "max", by=("host", "probe", tag), present=(tag,)
    )
    found = _by_bucket(answers, question)
    return {(host, probe): values for (host, probe), values in found.items()}


def _labels_of(answers: FleetAnswers, label: str) -> dict[str, Buckets]:
    """Return a label of each host, by bucket."""
    question = Question("device", "util_pct", "max", "max", by=("host", label), present=(label,))
    return {host: values for (host,), values in _by_bucket(answers, question).items()}


def _by_bucket(answers: FleetAnswers, question: Question) -> dict[Group, Buckets]:
    """Return the last tag of a question by the others, by bucket."""
    buckets = answers.period.buckets
    found: dict[Group, Buckets] = defaultdict(lambda: [None] * buckets)
    (rows,) = _timed_each(answers, question)
    for (*subject, value), bucket, _ in rows:
        values = found[tuple(subject)]
        values[bucket] = value if values[bucket] in (None, value) else _BOTH
    return {subject: _settled(values) for subject, values in found.items()}


def _timed_each(
    answers: FleetAnswers, *questions: Question
) -> list[Iterator[tuple[Group, int, float]]]:
    """Return the group, the bucket and the value of each row, for each question."""
    period = answers.period
    step_ns = period.bucket_s * NS_PER_S
    asked = (dataclasses.replace(question, every_s=period.bucket_s) for question in questions)
    return [
        (
            (group, bucket, value)
            for group, value, end_ns in rows
            if 0 <= (bucket := (end_ns - period.start_ns) // step_ns - 1) < period.buckets
        )
        for rows in answers.rows_of_each(*asked)
    ]


def _settled(values: Buckets) -> Buckets:
    """Return the values, where a bucket with both is the first one of the new value."""
    following: str | None = None
    settled: Buckets = []
    for value in reversed(values):
        if value == _BOTH:
            settled.append(following)
        else:
            following = value or following
            settled.append(value)
    return settled[::-1]


def _moves_of(values: Sequence[str | None]) -> Iterator[tuple[int, str, str]]:
    """Yield the buckets in which a value changed, with the value before and after."""
    last: str | None = None
    for bucket, value in enumerate(values):
        if value is None:
            continue
        if last is not None and value != last:
            yield bucket, last, value
        last = value


def kinds_of_hosts(answers: FleetAnswers, within: str = "") -> dict[str, Group]:
    """Return what hosts that are compared have in common: GPU models, each with the value of a label."""
    by = ("host", "model", *((within,) if within else ()))
    found: dict[str, set[Group]] = defaultdict(set)
    for host, *rest in answers.groups(Question("device", "util_pct", "max", "max", by=by)):
        found[host].add(tuple(rest))
    return {host: tuple(" ".join(one) for one in sorted(kinds)) for host, kinds in found.items()}


def _busy_cost_per_h(answers: FleetAnswers) -> dict[Group, float]:
    """Return the cost of devices times their utilization in the last window, by (host, currency)."""
    period = answers.period
    hours = WINDOW_BUCKETS * period.bucket_s / HOUR_S
    last = answers.over(
        period._replace(start_ns=_bucket_end_ns(period, period.buckets - 1 - WINDOW_BUCKETS))
    )
    asked = Question("device", "cost", "weighted", by=("host", "currency"), weight="util_pct")
    return {
        (host, currency): used / 100 / hours
        for (host, currency, part), used in last.groups(asked).items()
        if part == WEIGHTED
    }


def _bucket_end_ns(period: FleetPeriod, bucket: int) -> int:
    """Return the end of a bucket, UTC in ns."""
    return period.start_ns + (bucket + 1) * period.bucket_s * NS_PER_S


def _factors(
    answers: FleetAnswers, around: range
) -> tuple[dict[Series, list[CostFactors | None]], frozenset[Series]]:
    """Return the cost factors of each probe on each host, by bucket, and the series that have prices.

    They are medians over the devices of the host. A series with prices has no factors where they are unknown.

    Args:
        answers: The database, and the period.
        around: The buckets that are needed; the others are None.
    """
    by = ("host", "probe")
    period = answers.period
    asked = answers.over(
        period._replace(
            start_ns=_bucket_end_ns(period, around.start - 1),
            end_ns=_bucket_end_ns(period, around.stop - 1),
        )
    )
    rows = _timed_each(
        asked,
        Question("probe", "throughput_per_s", "median", "median", by=by),
        Question("probe", "energy_per_inference_j", "median", "median", by=by),
        _paid("cost_hardware", by),
        _paid("cost_energy", by),
    )
    unknown: list[float | None] = [None] * period.buckets
    found: list[dict[Series, list[float | None]]] = []
    for timed_rows in rows:
        found.append(defaultdict(unknown.copy))
        for (host, probe), bucket, value in timed_rows:
            found[-1][host, probe][around.start + bucket] = value
    rates, energy, hardware, electricity = found
    factors = {}
    for series, own in rates.items():
        paid = hardware.get(series, [0.0] * period.buckets)
        drawn = energy.get(series, unknown), electricity.get(series, unknown)
        factors[series] = [_factor(*one) for one in zip(own, paid, *drawn, strict=True)]
    return factors, frozenset(hardware)


def _paid(field: str, by: Group) -> Question:
    return Question("cost", field, "median", "median", by=by, where={"basis": "probe"})


def _factor(
    rate: float | None, hardware: float | None, energy_j: float | None, electricity: float | None
) -> CostFactors | None:
    if not rate or hardware is None:
        return None
    electricity_per_j = electricity / energy_j if energy_j and electricity else 0.0
    return CostFactors(hardware * rate, 1 / rate, electricity_per_j, energy_j or 0.0)


def _monthly(
    use: Mapping[Group, float], hosts: Container[str], effect: ChangeEffect | None
) -> tuple[ExcessCost, ...]:
    """Return what an effect costs a month on some hosts, by currency."""
    if effect is None or effect.cost is None:
        return ()
    busy: dict[str, list[float]] = defaultdict(list)
    for (host, currency), cost_per_h in use.items():
        if host in hosts:
            busy[currency].append(cost_per_h)
    return tuple(
        monthly_change(math.fsum(amounts), effect.cost, currency)
        for currency, amounts in sorted(busy.items())
    )


def hosts_with(answers: FleetAnswers, key: str) -> set[str]:
    """Return the hosts that had a value of a tag of `software`, or of a label, in the period."""
    if key not in SOFTWARE_TAGS:
        return set(_labels_of(answers, key))
    return {
        host
        for host, _, *versions in _software(answers)
        if dict(zip(SOFTWARE_TAGS, versions, strict=True))[key]
    }


def _software(answers: FleetAnswers) -> Iterable[Group]:
    by = ("host", "probe", *SOFTWARE_TAGS)
    return answers.groups(Question("software", "probe_runs", "max", "max", by=by))
