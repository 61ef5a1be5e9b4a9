"""Candidates of a comparison, from rows of `probe` and `cost`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from costprobe.core.device_names import natural
from costprobe.core.records import FieldValue
from costprobe.core.row_columns import RowColumns, numbers_of
from costprobe.domain.costing.comparison.compare import Candidate, Summary, summarized
from costprobe.domain.costing.serving.serving_change import ratio_of_columns
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
        parts: Rows of `probe` that count, of each series; empty if none does.
        contended: Another process used the device.
        throttled: The device was throttled.
        outdated: They are of older software than the newest.
    """

    parts: Sequence[RowColumns]
    contended: int
    throttled: int
    outdated: int


def sifted(parts: Iterable[RowColumns]) -> Sifted:
    """Separate disturbed samples, and those of other software than the newest row."""
    parts = [part for part in parts if part.times_ns]
    if not parts:
        return Sifted((), 0, 0, 0)
    newest = newest_part(parts).column("fingerprint")[-1]
    current = [part.where([one == newest for one in part.column("fingerprint")]) for part in parts]
    alone = [part.where([one is not True for one in part.column("contended")]) for part in current]
    counted = [
        part.where([not _is_throttled(one) for one in part.column("throttled_pct")])
        for part in alone
    ]
    of_all, of_current, of_alone, of_counted = map(_rows_in, (parts, current, alone, counted))
    return Sifted(
        [part for part in counted if part.times_ns],
        of_current - of_alone,
        of_alone - of_counted,
        of_all - of_current,
    )


def newest_part(parts: Iterable[RowColumns]) -> RowColumns:
    """Return the part with the newest row; none is empty."""
    return max(parts, key=lambda part: part.times_ns[-1])


def _is_throttled(pct: FieldValue | None) -> bool:
    return isinstance(pct, int | float) and not isinstance(pct, bool) and pct > THROTTLED_PCT


def _rows_in(parts: Iterable[RowColumns]) -> int:
    return sum(len(part) for part in parts)


def probe_candidates(
    probes: Iterable[RowColumns],
    costs: Iterable[RowColumns],
    qualities: Mapping[str, float | None],
) -> list[Candidate]:
    """Return a candidate for each probe, device, batch and execution mode, by name.

    Args:
        probes: Rows of `probe`.
        costs: Rows of `cost`; those of the serving basis are ignored.
        qualities: The configured quality of each probe.
    """
    priced: dict[Key, list[RowColumns]] = {}
    for part in costs:
        if part.tags.get("basis") == "probe":
            priced.setdefault(_place(part.tags), []).append(part)
    groups: dict[Key, list[RowColumns]] = {}
    for part in probes:
        if part.times_ns:
            groups.setdefault(tuple(part.tags.get(tag, "") for tag in _TELLING), []).append(part)
    candidates = []
    for parts in groups.values():
        counted, tags = sifted(parts), parts[0].tags
        times_ns = {time_ns for part in counted.parts for time_ns in part.times_ns}
        by_currency: dict[str, list[RowColumns]] = {}
        for part in priced.get(_place(tags), ()):
            paid = part.where([time_ns in times_ns for time_ns in part.times_ns])
            if paid.times_ns:
                by_currency.setdefault(paid.tags.get("currency", ""), []).append(paid)
        quality = qualities.get(tags.get("probe", ""))
        for currency, paid_parts in sorted(by_currency.items()) or [("", [])]:
            candidates.append(_probe_candidate(tags, counted, currency, paid_parts, quality))
    return sorted(candidates, key=lambda one: natural(one.name, one.currency))


def _place(tags: Mapping[str, str]) -> Key:
    return tags.get("host", ""), tags.get("device", ""), tags.get("probe", "")


def _probe_candidate(
    tags: Mapping[str, str],
    counted: Sifted,
    currency: str,
    paid: Sequence[RowColumns],
    quality: float | None,
) -> Candidate:
    parts = counted.parts
    return Candidate(
        name=probe_name(tags),
        basis="probe",
        device=tags.get("device", ""),
        currency=currency,
        cost_per_inference=_median(paid, "cost_per_inference"),
        latency_p50_ms=_median(parts, "latency_p50_ms"),
        latency_p99_ms=_median(parts, "latency_p99_ms"),
        energy_per_inference_j=_energy(parts, "energy_per_inference_j"),
        carbon_per_inference_g=_median(paid, "carbon_per_inference_g"),
        quality=quality,
        cost_per_million_tokens_in=_median(paid, "cost_per_million_tokens_in"),
        cost_per_million_tokens_out=_median(paid, "cost_per_million_tokens_out"),
        energy_per_million_tokens_in_j=_energy(parts, "energy_per_million_tokens_in_j"),
        energy_per_million_tokens_out_j=_energy(parts, "energy_per_million_tokens_out_j"),
        plans=_plans(part.tags for part in paid),
        samples=_rows_in(parts),
        contended_samples=counted.contended,
        throttled_samples=counted.throttled,
        outdated_samples=counted.outdated,
        counts_chunks=any("chunks" in part.columns.get("token_source", ()) for part in parts),
    )


def _median(parts: Iterable[RowColumns], field: str) -> Summary | None:
    return summarized(numbers_of(parts, field))


def probe_name(tags: Mapping[str, str]) -> str:
    """Return the display name of a series of `probe`."""
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


def _energy(parts: Sequence[RowColumns], field: str) -> Summary | None:
    """Return an energy; None if it is that of the whole board of a MIG device."""
    own = [
        part.where([scope != "parent" for scope in part.column("energy_scope")]) for part in parts
    ]
    # An energy that is carried over to later rows would count several times.
    measured = [
        part.where([one != "last_known" for one in part.column("energy_method")]) for part in own
    ]
    return _median(measured, field) or _median(own, field)


def service_candidates(
    costs: Iterable[RowColumns], qualities: Mapping[str, float | Mapping[str, float] | None]
) -> list[Candidate]:
    """Return a candidate for each service, or for each of its models if it serves several.

    Args:
        costs: Rows of `cost`; those of the probe basis are ignored.
        qualities: The configured quality of each service or model.
    """
    served = [part for part in costs if part.tags.get("basis") == "serving"]
    return [
        _service_candidate(parts, service, model, currency, qualities.get(service))
        for (service, model, currency), parts in service_groups(served).items()
    ]


def _service_candidate(
    parts: Sequence[RowColumns],
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
    return Candidate(
        name=f"{service}/{model}" if model else service,
        basis="serving",
        device=newest_part(parts).tags.get("device", ""),
        currency=currency,
        cost_per_inference=_ratio(parts, "cost_per_inference"),
        energy_per_inference_j=_ratio(parts, "energy_per_inference_j"),
        carbon_per_inference_g=_ratio(parts, "carbon_per_inference_g"),
        quality=quality,
        cost_per_million_tokens_in=_ratio(parts, "cost_per_million_tokens_in"),
        cost_per_million_tokens_out=_ratio(parts, "cost_per_million_tokens_out"),
        energy_per_million_tokens_in_j=_ratio(parts, "energy_per_million_tokens_in_j"),
        energy_per_million_tokens_out_j=_ratio(parts, "energy_per_million_tokens_out_j"),
        idle_share=ratio_of_columns(parts, "idle_share"),
        plans=_plans(part.tags for part in parts),
        samples=_rows_in(parts),
    )


def _ratio(parts: Sequence[RowColumns], field: str) -> Summary | None:
    """Return a ratio over all windows, idle ones included, with the spread of the windows' own."""
    spread = _median(parts, field)
    ratio = ratio_of_columns(parts, field)
    return spread if spread is None or not ratio else Summary(ratio, spread.iqr, spread.samples)


def _plans(tags_of_rows: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    return tuple(sorted({tags["plan"] for tags in tags_of_rows if tags.get("plan")}))
