"""Candidates of a comparison, from rows of `probe` and `cost`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from costprobe.core.records import Point
from costprobe.core.row_values import keyed, number, numbers
from costprobe.domain.costing.comparison.compare import Candidate, Summary, summarized
from costprobe.domain.costing.serving.serving_change import ratio_of_sums
from costprobe.domain.costing.serving.token_prices import service_groups

# A sample is throttled if the device was throttled for more than this share of its window.
THROTTLED_PCT = 1.0
_WAYS = ("cold", "compile", "cuda_graph", "weights")
# Tags that identify a candidate.
_TELLING = ("host", "device", "probe", "batch", "concurrency", *_WAYS)

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sifted:
    """The samples that count, and the number of others by reason.

    Attributes:
        rows: Rows of `probe` that count, oldest first.
        contended: Another process used the device.
        throttled: The device was throttled.
        outdated: They are of older software than the newest.
    """

    rows: Sequence[Point]
    contended: int
    throttled: int
    outdated: int


def sifted(rows: Sequence[Point]) -> Sifted:
    """Separate disturbed samples, and those of other software than the newest row."""
    if not rows:
        return Sifted((), 0, 0, 0)
    newest = max(rows, key=attrgetter("time_ns")).fields.get("fingerprint")
    current = [row for row in rows if row.fields.get("fingerprint") == newest]
    alone = [row for row in current if row.fields.get("contended") is not True]
    unthrottled = [
        row
        for row in alone
        if not row.fields.get("throttled_pct")
        or (number(row, "throttled_pct") or 0.0) <= THROTTLED_PCT
    ]
    unthrottled.sort(key=attrgetter("time_ns"))
    return Sifted(
        unthrottled,
        len(current) - len(alone),
        len(alone) - len(unthrottled),
        len(rows) - len(current),
    )


def probe_candidates(
    probes: Iterable[Point], costs: Iterable[Point], qualities: Mapping[str, float | None]
) -> list[Candidate]:
    """Return a candidate for each probe, device, batch and execution mode, by name.

    Args:
        probes: Rows of `probe`.
        costs: Rows of `cost`; those of the serving basis are ignored.
        qualities: The configured quality of each probe.
    """
    priced: dict[Key, dict[int, list[Point]]] = {}
    for place, row in keyed(costs, lambda tags: tags.get("basis") == "probe" and _place(tags)):
        if place:
            priced.setdefault(place, {}).setdefault(row.time_ns, []).append(row)
    groups: dict[Key, list[Point]] = {}
    for key, row in keyed(probes, lambda tags: tuple(tags.get(tag, "") for tag in _TELLING)):
        groups.setdefault(key, []).append(row)
    candidates = []
    for rows in groups.values():
        counted = sifted(rows)
        by_series: dict[str, list[Point]] = {}
        at_place = priced.get(_place(rows[0].tags), {})
        for row in counted.rows:
            for cost in at_place.get(row.time_ns, ()):
                by_series.setdefault(cost.tags.get("currency", ""), []).append(cost)
        quality = qualities.get(rows[0].tags.get("probe", ""))
        for currency, paid in sorted(by_series.items()) or [("", [])]:
            candidates.append(_probe_candidate(rows[0], counted, currency, paid, quality))
    return sorted(candidates, key=lambda candidate: (candidate.name, candidate.currency))


def _place(tags: Mapping[str, str]) -> Key:
    return tags.get("host", ""), tags.get("device", ""), tags.get("probe", "")


def _probe_candidate(
    any_row: Point,
    counted: Sifted,
    currency: str,
    paid: Sequence[Point],
    quality: float | None,
) -> Candidate:
    rows = counted.rows
    return Candidate(
        name=probe_name(any_row),
        basis="probe",
        device=any_row.tags.get("device", ""),
        currency=currency,
        cost_per_inference=_summary(paid, "cost_per_inference"),
        latency_p50_ms=_summary(rows, "latency_p50_ms"),
        latency_p99_ms=_summary(rows, "latency_p99_ms"),
        energy_per_inference_j=_energy(rows, "energy_per_inference_j"),
        carbon_per_inference_g=_summary(paid, "carbon_per_inference_g"),
        quality=quality,
        cost_per_million_tokens_in=_summary(paid, "cost_per_million_tokens_in"),
        cost_per_million_tokens_out=_summary(paid, "cost_per_million_tokens_out"),
        energy_per_million_tokens_in_j=_energy(rows, "energy_per_million_tokens_in_j"),
        energy_per_million_tokens_out_j=_energy(rows, "energy_per_million_tokens_out_j"),
        plans=_plans(paid),
        samples=len(rows),
        contended_samples=counted.contended,
        throttled_samples=counted.throttled,
        outdated_samples=counted.outdated,
        counts_chunks=any(row.fields.get("token_source") == "chunks" for row in rows),
    )


def probe_name(row: Point) -> str:
    """Return the display name of a row of `probe`."""
    tags = row.tags
    words = [f"{tags.get('probe', '?')} on {tags.get('device', '?')}"]
    if tags.get("batch"):
        words.append(f"batch {tags['batch']}")
    if tags.get("concurrency"):
        words.append(f"{tags['concurrency']} at a time")
    for way in _WAYS:
        value = tags.get(way)
        if value:
            words.append(way if value == "true" else f"{value} {way}")
    return ", ".join(words)


def _energy(rows: Sequence[Point], field: str) -> Summary | None:
    """Return an energy; None if it is that of the whole board of a MIG device."""
    own_energy_rows = [row for row in rows if row.fields.get("energy_scope") != "parent"]
    # An energy that is carried over to later rows would count several times.
    measured = [row for row in own_energy_rows if row.fields.get("energy_method") != "last_known"]
    return _summary(measured, field) or _summary(own_energy_rows, field)


def service_candidates(
    costs: Iterable[Point], qualities: Mapping[str, float | Mapping[str, float] | None]
) -> list[Candidate]:
    """Return a candidate for each service, or for each of its models if it serves several.

    Args:
        costs: Rows of `cost`; those of the probe basis are ignored.
        qualities: The configured quality of each service or model.
    """
    served = [row for row in costs if row.tags.get("basis") == "serving"]
    return [
        _service_candidate(rows, service, model, currency, qualities.get(service))
        for (service, model, currency), rows in service_groups(served).items()
    ]


def _service_candidate(
    rows: Sequence[Point],
    service: str,
    model: str,
    currency: str,
    quality: float | Mapping[str, float] | None,
) -> Candidate:
    if isinstance(quality, Mapping):
        only = next(iter(quality.values())) if len(quality) == 1 else None
        quality = quality.get(model) if model else only
    elif model:
        quality = None  # one quality for several models applies to none of them
    newest = max(rows, key=lambda row: row.time_ns)
    return Candidate(
        name=f"{service}/{model}" if model else service,
        basis="serving",
        device=newest.tags.get("device", ""),
        currency=currency,
        cost_per_inference=_ratio(rows, "cost_per_inference"),
        energy_per_inference_j=_ratio(rows, "energy_per_inference_j"),
        carbon_per_inference_g=_ratio(rows, "carbon_per_inference_g"),
        quality=quality,
        cost_per_million_tokens_in=_ratio(rows, "cost_per_million_tokens_in"),
        cost_per_million_tokens_out=_ratio(rows, "cost_per_million_tokens_out"),
        energy_per_million_tokens_in_j=_ratio(rows, "energy_per_million_tokens_in_j"),
        energy_per_million_tokens_out_j=_ratio(rows, "energy_per_million_tokens_out_j"),
        idle_share=ratio_of_sums(rows, "idle_share"),
        plans=_plans(rows),
        samples=len(rows),
    )


def _ratio(rows: Sequence[Point], field: str) -> Summary | None:
    """Return a ratio over all windows, idle ones included, with the spread of the windows' own."""
    spread = _summary(rows, field)
    ratio = ratio_of_sums(rows, field)
    return spread if spread is None or not ratio else Summary(ratio, spread.iqr, spread.samples)


def _summary(rows: Sequence[Point], field: str) -> Summary | None:
    return summarized(numbers(rows, field))


def _plans(rows: Sequence[Point]) -> tuple[str, ...]:
    return tuple(sorted({row.tags["plan"] for row in rows if row.tags.get("plan")}))
