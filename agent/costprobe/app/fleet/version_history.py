"""Which software and labels hosts had over time, in buckets, and when they changed."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from costprobe.adapters.fleet.question import GroupValue, Question
from costprobe.app.fleet.answers import FleetAnswers, FleetPeriod, Group
from costprobe.core.records import NS_PER_S
from costprobe.domain.costing.probe.software_tags import SOFTWARE_TAGS

# A probe on a host.
Series = tuple[str, str]
# The value of each bucket, None where unknown.
Buckets = list[str | None]


def bucket_end_ns(period: FleetPeriod, bucket: int) -> int:
    """Return the end of a bucket, UTC in ns."""
    return period.start_ns + (bucket + 1) * period.bucket_s * NS_PER_S


def moves_of(values: Sequence[str | None]) -> Iterator[tuple[int, str, str]]:
    """Yield the buckets in which a value changed, with the value before and after."""
    last: str | None = None
    for bucket, value in enumerate(values):
        if value is None:
            continue
        if last is not None and value != last:
            yield bucket, last, value
        last = value


def timed_each(
    answers: FleetAnswers, *questions: Question
) -> list[Iterator[tuple[Group, int, float]]]:
    """Return the group, the bucket and the value of each row, for each question."""
    every_s = answers.period.bucket_s
    asked = (dataclasses.replace(question, every_s=every_s) for question in questions)
    return [_in_buckets(answers.period, rows) for rows in answers.rows_of_each(*asked)]


def _in_buckets(
    period: FleetPeriod, rows: Iterable[GroupValue]
) -> Iterator[tuple[Group, int, float]]:
    step_ns, buckets = period.bucket_s * NS_PER_S, period.buckets
    for group, value, end_ns in rows:
        bucket = (end_ns - period.start_ns) // step_ns - 1
        if 0 <= bucket < buckets:
            yield group, bucket, value


def changed_tags(answers: FleetAnswers) -> list[str]:
    """Return the tags of `software` that have several values on any host."""
    found: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for host, probe, *versions in _software(answers):
        for tag, value in zip(SOFTWARE_TAGS, versions, strict=True):
            if value:
                found[host, probe, tag].add(value)
    changed = {tag for (*_, tag), several in found.items() if len(several) > 1}
    return [tag for tag in SOFTWARE_TAGS if tag in changed]


def hosts_with(answers: FleetAnswers, key: str) -> set[str]:
    """Return the hosts that had a value of a tag of `software`, or of a label, in the period."""
    if key not in SOFTWARE_TAGS:
        return set(labels_of(answers, key))
    return {
        host
        for host, _, *versions in _software(answers)
        if dict(zip(SOFTWARE_TAGS, versions, strict=True))[key]
    }


def _software(answers: FleetAnswers) -> Iterable[Group]:
    by = ("host", "probe", *SOFTWARE_TAGS)
    return answers.groups(Question("software", "probe_runs", "max", "max", by=by))


def versions_of(answers: FleetAnswers, tag: str) -> dict[Series, Buckets]:
    """Return a tag of `software` of each probe on each host, by bucket."""
    question = Question(
        "software", "probe_runs", "max", "max", by=("host", "probe", tag), present=(tag,)
    )
    buckets = answers.period.buckets
    found: dict[Series, Buckets] = defaultdict(lambda: [None] * buckets)
    (rows,) = timed_each(answers, question)
    for (host, probe, value), bucket, _ in rows:
        _take(found[host, probe], bucket, value)
    return {series: _settled(values) for series, values in found.items()}


def labels_of(answers: FleetAnswers, label: str) -> dict[str, Buckets]:
    """Return a label of each host, by bucket."""
    question = Question("device", "util_pct", "max", "max", by=("host", label), present=(label,))
    buckets = answers.period.buckets
    found: dict[str, Buckets] = defaultdict(lambda: [None] * buckets)
    (rows,) = timed_each(answers, question)
    for (host, value), bucket, _ in rows:
        _take(found[host], bucket, value)
    return {host: _settled(values) for host, values in found.items()}


_BOTH: Final = "\0"


def _take(values: Buckets, bucket: int, value: str) -> None:
    values[bucket] = value if values[bucket] in (None, value) else _BOTH


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
