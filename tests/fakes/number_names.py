"""Names of numbers in JSON: a field of the series, a name with its unit, or a declared count."""

import re

from costprobe.core.schema import SCHEMA

FIELDS = {name for measurement in SCHEMA.values() for name in measurement.fields}
UNITS = re.compile(
    r"_(ns|ms|s|h|j|w|g|c|mhz|bytes|pct|share|coverage|ratio|points(_total)?|samples|rel_err"
    r"|d|per_(s|h|d|kwh|month))$"
)
# Values of a table that is named by a field: `latency_p50_ms.value`.
SUMMARY = {"value", "iqr", "samples", "low", "high"}
# Numbers without a unit that no series has: what is counted, or its place.
DECLARED = {
    # Number of things.
    "aggregated", "callback_errors", "changes", "deferred", "dropped", "failures", "hints",
    "intensities", "late", "left_out", "without_base", "members", "malformed_lines", "more_changes", "pending_steps", "notifiers",
    "occurrences", "points", "prices", "probes", "queued", "removed", "rolled", "rows", "rules", "runs", "runs_used",
    "sent", "series", "skipped_for_budget", "skipped_for_neighbour", "symptoms_left_out", "unkillable",
    "waiting_notices", "dropped_notices", "busy_devices", "busy_devices_max", "usable_devices", "base_devices", "devices_max",
    "devices_min",
    "hosts", "silent", "spare", "versions", "devices", "faults", "firing",
    "tested", "untested", "updated", "peer_count", "replicas", "hosts_compared", "hosts_not_changed", "hosts_left_out",
    "refused_requests_per_week", "refused_requests_per_week_max",
    # Positions, identifiers and parameters.
    "acked_seq", "batch", "concurrency", "concurrency_max", "parameters_b", "number", "cheapest_threads", "break_even_months", "purchase_price", "purchase_price_low", "purchase_price_high", "cheapest_batch", "hint", "pid", "port", "pue", "quality", "revision",
    # The field is named beside them: `trend`, `replay` and alerts.
    "values", "lows", "highs", "base", "fields", "value", "threshold",
    # By currency, and by part of a price.
    "foreign", "parts",
    # By the requests within a bound.
    "cost_per_request_met",
    # Of a bill.
    "cost_billed", "cost_measured",
}  # fmt: skip


def is_vocabulary(path):
    """Return whether the last name of a path, such as ["models", "[]", "cost"], is in the vocabulary."""
    names = [part for part in path if part not in ("[]", "*")]
    if not names:
        return True
    name = names[-1]
    if name in SUMMARY and len(names) > 1 and path[-2] == names[-2] and is_field(names[-2]):
        return True
    return is_field(name) or name in DECLARED


def is_field(name):
    """Return whether a name is a field, or has a unit; `_before` is the same of the period before."""
    name = name.removesuffix("_before")
    return name in FIELDS or UNITS.search(name) is not None


def numbers_of(document, path=()):
    """Yield the path of every number in a JSON document."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from numbers_of(value, (*path, name))
    elif isinstance(document, list):
        for value in document:
            yield from numbers_of(value, (*path, "[]"))
    elif isinstance(document, int | float) and not isinstance(document, bool):
        yield path
