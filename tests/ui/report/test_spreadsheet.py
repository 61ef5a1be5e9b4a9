"""The report as CSV."""

import csv
import io
from dataclasses import fields

from costprobe.core.columns import columns_of
from costprobe.core.records import Point
from costprobe.ui.report.document import spreadsheet
from costprobe.ui.report.model import Drawn, Report
from costprobe.unit_costs.compare import compared, probe_candidates

CHUNKS = " (chunks of the stream counted as tokens)"


def report_of(token_source):
    """A report of one served model, whose tokens are known from there."""
    tags = {"probe": "chat", "device": "gpu0", "batch": "", "concurrency": "1"}
    probes, costs = [], []
    for time_ns in range(1, 6):
        figures = {"latency_p50_ms": 1.0, "token_source": token_source, "samples": 64}
        probes.append(Point("probe", tags, figures, time_ns))
        cost = {"cost_per_inference": 1.0, "cost_per_million_tokens_out": 7.0}
        costs.append(Point("cost", {**tags, "currency": "USD", "basis": "probe"}, cost, time_ns))
    groups, _ = compared(probe_candidates(columns_of(probes), columns_of(costs), {}))
    given = {"host": "h", "drawn": Drawn(*[None] * 4), "models": groups, "more_changes": 0}
    nothing = {f.name: 0 if f.name.endswith("_ns") else () for f in fields(Report)}
    return Report(**nothing | given)


def test_token_prices_by_chunks_are_marked():
    for source, mark in (("usage", ""), ("chunks", CHUNKS)):
        rows = csv.DictReader(io.StringIO(spreadsheet(report_of(source))))
        figures = {row["figure"]: row["value"] for row in rows if row["section"] == "model (probe)"}
        assert figures == {
            "cost_per_inference": "1.0",
            "latency_p50_ms": "1.0",
            f"cost_per_million_tokens_out{mark}": "7.0",
        }
