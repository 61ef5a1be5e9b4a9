"""The contract of the fleet's readers: the same answers as a computation over the simulated rows."""

from contextlib import closing
from functools import cache

import pytest
from costprobe.adapters.databases import reader
from costprobe.adapters.databases.kinds import fleet_reader
from costprobe.adapters.databases.question import FleetConfig, Question
from costprobe.core.records import NS_PER_S
from fakes import fleet
from fakes.clock import FakeClock
from fakes.fleet_answers import answered

DATABASE, HOURLY = "costprobe", "costprobe_hourly"
START_S, END_S = fleet.END_S - 7200, fleet.END_S
SERVING = {"basis": "serving", "served_model": ""}
QUESTIONS = {
    "cost by host": Question("device", "cost", "sum", by=("host", "currency")),
    "cost by rack": Question("device", "cost", "sum", by=("rack", "currency")),
    "cost by model": Question("device", "cost", "sum", by=("model", "currency")),
    "energy": Question("device", "energy_j", "sum"),
    "carbon by host": Question("device", "carbon_g", "sum", by=("host",)),
    "cost of an hour": Question("device", "cost", "sum", by=("currency",), every_s=3600),
    "devices": Question("device", "cost", "count", "count", by=("model",)),
    "covered hours": Question("device", "cost", "covered", by=("host",), bucket_s=3600),
    "covered buckets": Question("device", "cost", "covered", by=("host",), bucket_s=300),
    "used cost": Question("device", "cost", "weighted", by=("currency",), weight="util_pct"),
    "cost of metered devices": Question(
        "device", "cost", "weighted", by=("host",), weight="carbon_g"
    ),
    "allocation": Question("allocation", "cost", "sum", by=("service", "part", "currency")),
    "tenants": Question("tenant", "cost", "sum", by=("tenant", "currency")),
    "service": Question("cost", "cost_total", "sum", by=("service", "currency"), where=SERVING),
    "tokens": Question("cost", "tokens_out", "sum", by=("service",), where=SERVING),
    "models": Question(
        "cost",
        "cost_total",
        "sum",
        by=("served_model", "currency"),
        where={"basis": "serving"},
        present=("served_model",),
    ),
    "latency": Question(
        "probe", "latency_p50_ms", "median", "median", by=("host", "device", "probe", "batch")
    ),
    "typical cost": Question(
        "cost", "cost_per_inference", "median", "median", by=("probe",), where={"basis": "probe"}
    ),
    "hottest": Question("device", "temp_c", "max", "max", by=("host", "device")),
    "clocks": Question("probe", "sm_clock_mhz", "mean", "mean", by=("host", "device")),
    "runs": Question("probe", "latency_p50_ms", "count", by=("host",)),
    "faults": Question("event", "title", "count", by=("host",), where={"kind": "fault"}),
    "newest": Question("agent", "rss_bytes", "newest", by=("host", "version")),
}
RELATIVE_ERROR = 1e-9


@cache
def expected(name):
    """The answer to a question, computed over the rows."""
    return answered(QUESTIONS[name], fleet.rows(), START_S, END_S)


def test_reader_answers_as_computed_over_the_rows(config):
    database = fleet_reader(config, FakeClock(END_S * NS_PER_S))
    wrong = {}
    for name, question in QUESTIONS.items():
        answer = database.ask(question, START_S * NS_PER_S, END_S * NS_PER_S, END_S * NS_PER_S)
        found = {(row.tags, row.time_ns): row.value for row in answer.rows}
        if name == "newest":
            found = {key: pytest.approx(value, abs=15) for key, value in found.items()}
        wanted = expected(name)
        if answer.problems or found != pytest.approx(wanted, rel=RELATIVE_ERROR):
            wrong[name] = answer.problems, found, wanted
    database.close()
    assert not wrong


def test_hourly_rows_and_rows_add_up_to_the_same(influxdb, monkeypatch):
    """One hour from the continuous queries' rows, the other from the rows themselves."""
    monkeypatch.setattr(reader, "_HOURLY_FROM_NS", 0)
    monkeypatch.setattr(reader, "_HOURLY_LATE_NS", reader.HOUR_NS)
    section = {"kind": "influxql", "url": influxdb.url, "database": DATABASE}
    hourly = FleetConfig.model_validate({**section, "hourly_database": HOURLY})
    # The row at the start is of the hour before for us, and of the first hour for InfluxDB.
    start_ns, end_ns = START_S * NS_PER_S - 1, END_S * NS_PER_S
    wrong = {}
    for name, question in QUESTIONS.items():
        if question.over_time in ("sum", "weighted") and not question.every_s:
            with closing(fleet_reader(hourly, FakeClock(end_ns))) as one:
                found = one.ask(question, START_S * NS_PER_S, end_ns, end_ns)
            with closing(
                fleet_reader(FleetConfig.model_validate(section), FakeClock(end_ns))
            ) as one:
                wanted = one.ask(question, start_ns, end_ns, end_ns)
            values = [
                {row.tags: row.value for row in answer.rows if row.tags[-1:] != ("weighted",)}
                for answer in (found, wanted)
            ]
            if values[0] != pytest.approx(values[1], rel=RELATIVE_ERROR):
                wrong[name] = values
    assert not wrong
