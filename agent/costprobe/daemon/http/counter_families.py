"""The monotonic counters of `/metrics`, from the totals in the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import groupby
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from costprobe.core.counters import (
    BUCKETS_S,
    COUNTERS,
    PREFIX,
    RUN_LATENCY,
    RUN_LATENCY_HELP,
    StoredSample,
)
from costprobe.daemon.http.labels import labels_of

_HELP: Final = {
    name: counter.help
    for counters in COUNTERS.values()
    for counter in counters
    for name in (counter.name, counter.name.replace("service_", "model_", 1))
}
_Labels = tuple[tuple[str, str], ...]
_SINCE: Final = " since the store was created"


def kept(totals: Sequence[StoredSample], limit: int) -> list[StoredSample]:
    """Return at most `limit` totals; the counters with the most series lose theirs first."""
    ranked = (
        (rank, total)
        for _, samples in groupby(totals, key=lambda total: total.name)
        for rank, total in enumerate(samples)
    )
    chosen = sorted(ranked, key=lambda pair: pair[0])[:limit]
    return sorted((total for _, total in chosen), key=lambda total: total.name)


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
    buckets: dict[_Labels, dict[Decimal, int]] = {}
    sums_s: dict[_Labels, float] = {}
    for total in totals:
        labels = labels_of(total.labels)
        bound = labels.pop("le", None)
        if bound is None:
            sums_s[tuple(labels.items())] = float(total.value)
        else:
            of_series = buckets.setdefault(tuple(labels.items()), {})
            of_series[Decimal(bound)] = int(total.value)
    for key, sum_s in sums_s.items():
        counts = sorted(buckets.get(key, {}).items())
        # The limit of series may have cut it.
        if len(counts) < len(BUCKETS_S):
            continue
        labels = dict(key)
        for bound_s, count in counts:
            le = "+Inf" if bound_s.is_infinite() else repr(float(bound_s))
            family.add_sample(f"{family.name}_bucket", {**labels, "le": le}, count)
        family.add_sample(f"{family.name}_count", labels, counts[-1][1])
        family.add_sample(f"{family.name}_sum", labels, sum_s)
    return family
