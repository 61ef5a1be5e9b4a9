"""The monotonic counters of `/metrics`, from the totals in the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import groupby
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from costprobe.core.counters import COUNTERS, PREFIX, RUN_LATENCY, RUN_LATENCY_HELP, StoredSample
from costprobe.daemon.http.labels import labels_of

_HELP: Final = {
    name: counter.help
    for counters in COUNTERS.values()
    for counter in counters
    for name in (counter.name, counter.name.replace("service_", "model_", 1))
}
_SINCE: Final = " since the store was created"


def counter_families(totals: Sequence[StoredSample]) -> Iterator[Metric]:
    """Return the totals as metrics.

    Args:
        totals: In the order of their names.
    """
    for name, samples in groupby(totals, key=lambda amount: amount.name):
        if name.startswith(RUN_LATENCY):
            continue
        family_name = name.removesuffix("_total")
        # A total of a version that counted more is not shown.
        if family_name not in _HELP:
            continue
        words = f"{_HELP[family_name]}{_SINCE}"
        family = CounterMetricFamily(f"{PREFIX}{family_name}", words)
        for sample in samples:
            family.add_sample(f"{PREFIX}{name}", labels_of(sample.labels), float(sample.value))
        yield family
    yield _histogram(amount for amount in totals if amount.name.startswith(RUN_LATENCY))


def _histogram(totals: Iterable[StoredSample]) -> Metric:
    family = HistogramMetricFamily(f"{PREFIX}{RUN_LATENCY}", RUN_LATENCY_HELP)
    found: dict[tuple[tuple[str, str], ...], tuple[dict[Decimal, int], float]] = {}
    for amount in totals:
        labels = labels_of(amount.labels)
        bound = labels.pop("le", None)
        buckets, sum_s = found.get(tuple(labels.items()), ({}, 0.0))
        if bound is None:
            sum_s = float(amount.value)
        else:
            buckets[Decimal(bound)] = int(amount.value)
        found[tuple(labels.items())] = (buckets, sum_s)
    for labels_key, (buckets, sum_s) in found.items():
        labels = dict(labels_key)
        for bound_s, count in sorted(buckets.items()):
            le = "+Inf" if bound_s.is_infinite() else repr(float(bound_s))
            family.add_sample(f"{family.name}_bucket", {**labels, "le": le}, count)
        # Without the last bucket a total would be incomplete; all are committed together.
        family.add_sample(f"{family.name}_count", labels, max(buckets.values(), default=0))
        family.add_sample(f"{family.name}_sum", labels, sum_s)
    return family
