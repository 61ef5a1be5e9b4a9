"""A reader of a scripted fleet database, and the documents of each kind of database."""

import urllib.parse
from contextlib import closing

from costprobe.adapters.databases.kinds import fleet_reader
from costprobe.adapters.databases.question import FleetConfig, Question
from costprobe.core.records import NS_PER_S
from fakes.clock import FakeClock
from fakes.fleet import END_S

HOUR_S = 3600
COST = Question("device", "cost", "sum", by=("host",))
MEDIAN = Question("device", "temp_c", "median", "median", by=("host",))
KINDS = {
    "influxql": {"kind": "influxql", "database": "d"},
    "victoriametrics": {"kind": "victoriametrics"},
    "prometheus": {"kind": "prometheus"},
}


def ask(kind, server, question=COST, hours=8, **more):
    """Ask about the last hours before END_S."""
    section = FleetConfig.model_validate({**KINDS[kind], "url": server.url, **more})
    with closing(fleet_reader(section, FakeClock(END_S * NS_PER_S))) as reader:
        start_ns = (END_S - hours * HOUR_S) * NS_PER_S
        return reader.ask(question, start_ns, END_S * NS_PER_S, END_S * NS_PER_S)


def form_of(body):
    """The fields of a request."""
    return {name: texts[0] for name, texts in urllib.parse.parse_qs(body.decode()).items()}


def hours_of(body):
    """The length of the span that a request asks about, in hours."""
    form = form_of(body)
    if "q" in form:
        words = form["q"].split()
        start_ns, end_ns = (int(words[words.index(sign) + 1]) for sign in (">", "<="))
        return (end_ns - start_ns) // NS_PER_S // HOUR_S
    return int(form["query"].partition("[")[2].partition("s")[0]) // HOUR_S


def document(kind, value, **more):
    """The answer of a database: a number for the host `a`."""
    if kind == "influxql":
        series = {"name": "device", "tags": {"host": "a"}, "columns": ["time", "v"]}
        return {"results": [{"series": [{**series, "values": [[0, value]]}], **more}]}
    result = [{"metric": {"host": "a"}, "value": [END_S, str(value)]}]
    return {"status": "success", "data": {"resultType": "vector", "result": result}, **more}
