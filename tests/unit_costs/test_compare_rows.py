"""Stored rows become comparable models."""

import pytest
from costprobe.core.columns import columns_of
from costprobe.core.records import Point
from costprobe.unit_costs.compare import Summary, probe_candidates, service_candidates
from fakes.rows import as_known

S = 10**9


def runs(values, *, device="gpu0", probe="ranker", tags=None, currency="USD", **fields):
    """Return a `probe` and a `cost` row for each value, one second apart."""
    own = {"device": device, "probe": probe, "batch": "8", **(tags or {})}
    paid = {"device": device, "probe": probe, "basis": "probe", "currency": currency}
    probes, costs = [], []
    for i, value in enumerate(values):
        measured = {"latency_p50_ms": value, "energy_per_inference_j": value / 10, **fields}
        probes.append(Point("probe", dict(own), measured, i * S))
        costs.append(Point("cost", {**paid, "plan": "spot"}, {"cost_per_inference": value}, i * S))
    return probes, costs


def test_probe_is_summarized_by_medians():
    probes, costs = runs([1.0, 2.0, 3.0, 4.0, 100.0], latency_p99_ms=7.0)
    (one,) = probe_candidates(columns_of(probes), columns_of(costs), {"ranker": 0.91})
    assert one.name == "ranker on gpu0, batch 8"
    assert one.cost_per_inference == one.latency_p50_ms == Summary(3.0, 2.0, 5)
    assert one.energy_per_inference_j.value == pytest.approx(0.3)
    assert one.latency_p99_ms == Summary(7.0, 0.0, 5)
    assert one.cost_per_million_tokens_in is None
    assert (one.quality, one.currency, one.plans, one.carbon_per_inference_g) == (
        0.91,
        "USD",
        ("spot",),
        None,
    )


def test_disturbed_and_older_software_samples_are_excluded():
    probes, costs = runs(range(1, 9), fingerprint="new")
    probes[0].fields["contended"] = True
    probes[1].fields["throttled_pct"] = 1.1
    probes[2].fields["throttled_pct"] = 1.0
    probes[3].fields["fingerprint"] = "old"
    (one,) = probe_candidates(columns_of(probes), columns_of(costs), {})
    assert (one.samples, one.contended_samples, one.throttled_samples, one.outdated_samples) == (
        5,
        1,
        1,
        1,
    )
    assert one.cost_per_inference == Summary(6.0, 2.0, 5)


def test_batches_modes_and_currencies_are_separate_models():
    plain, paid = runs([1.0, 3.0])
    plain[1].tags.update(batch="1", cold="true")
    concurrent, _ = runs([5.0], probe="chat", tags={"batch": "", "concurrency": "4"})
    paid.append(Point("cost", {**paid[0].tags, "currency": "EUR"}, {"cost_per_inference": 2.0}, 0))
    found = probe_candidates(columns_of([*plain, *concurrent]), columns_of(paid), {})
    assert [
        (one.name, one.currency, one.cost_per_inference and one.cost_per_inference.value)
        for one in found
    ] == [
        ("chat on gpu0, 4 at a time", "", None),
        ("ranker on gpu0, batch 1, cold", "USD", 3.0),
        ("ranker on gpu0, batch 8", "EUR", 2.0),
        ("ranker on gpu0, batch 8", "USD", 1.0),
    ]


def test_whole_board_energy_is_excluded_and_repeated_energy_counts_once():
    probes, costs = runs([10.0, 20.0, 30.0])
    probes[0].fields["energy_method"] = "last_known"
    (one,) = probe_candidates(columns_of(probes), columns_of(costs), {})
    assert one.energy_per_inference_j == Summary(2.5, 0.5, 2)
    for row in probes:
        row.fields["energy_scope"] = "parent"
    (one,) = probe_candidates(columns_of(probes), columns_of(costs), {})
    assert one.energy_per_inference_j is None


def window(i, total, per_inference=None, model="", **fields):
    tags = {"device": "gpu0", "service": "chat", "basis": "serving", "currency": "USD"}
    tags |= {"served_model": model} if model else {}
    inferences = total / per_inference if per_inference else 0.0
    fields |= {"cost_total": total, "cost_per_inference": per_inference, "inferences": inferences}
    known = as_known({k: v for k, v in fields.items() if v is not None})
    return Point("cost", tags, known, i * S)


def test_service_cost_is_the_ratio_of_sums_including_idle_windows():
    # 5.00 for 1,000, 5.00 for 10, and 2.00 for none: 12 / 1,010.
    rows = [window(1, 5.0, 0.005), window(2, 5.0, 0.5), window(3, 2.0, cost_idle=2.0)]
    (one,) = service_candidates(columns_of(rows), {"chat": 0.9})
    assert one.cost_per_inference.value == pytest.approx(12 / 1010)
    assert one.cost_per_inference.samples == 2
    assert (one.name, one.samples, one.quality, one.idle_share) == ("chat", 3, 0.9, 1.0)


def test_models_of_a_service_are_separate():
    rows = [window(i, 1.0, 0.1, model) for i, model in enumerate(("", "base", "tuned"))]
    found = service_candidates(columns_of(rows), {"chat": {"base": 0.8, "tuned": 0.9}})
    assert [(one.name, one.quality) for one in found] == [("chat/base", 0.8), ("chat/tuned", 0.9)]
    # A value measured for several models is assigned to none of them.
    assert [one.quality for one in service_candidates(columns_of(rows), {"chat": 0.8})] == [
        None,
        None,
    ]
    alone = service_candidates(columns_of(rows[:1]), {"chat": {"base": 0.8}})
    assert [(one.name, one.quality) for one in alone] == [("chat", 0.8)]
