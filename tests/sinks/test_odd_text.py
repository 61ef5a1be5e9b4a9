"""Every text that a label, a name or a value may hold arrives at both databases as written."""

import itertools

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent.lineprotocol import field_set, parse_field_set, parse_series_key, render, series_key
from agent.model import Point
from agent.sinks.registry import build_sink
from agent.sinks.settings import SinkSettings

START_NS = 1_700_000_000 * 10**9
MARKS = ",= \"\\'#\n\t\r\0é😀\x85\u2028/_:."
WORDS = [
    "time",
    "_field",
    "_measurement",
    "name",
    "#x",
    "-1",
    "1i",
    "true",
    " a",
    "NaN",
    "-Infinity",
    "inf",
]
TEXT = st.one_of(
    st.text(max_size=30), st.text(alphabet=MARKS, max_size=8), st.sampled_from(["", *WORDS])
)
NAME = TEXT.filter(bool)
# VictoriaMetrics keeps a decimal exponent of limited range.
NUMBER = st.one_of(
    st.floats(-1e200, 1e200).filter(lambda x: x == 0 or abs(x) > 1e-200),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
)
POINTS = st.lists(
    st.tuples(
        NAME,
        st.dictionaries(TEXT, TEXT, max_size=3),
        st.dictionaries(NAME, TEXT | NUMBER, min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=20,
)


def written(point):
    """A point as the databases should give it back."""
    measurement, tags = parse_series_key(series_key(point.measurement, point.tags))
    return (measurement, tuple(sorted(tags.items())), point.time_ns), parse_field_set(
        field_set(point.fields)
    )


def same(found, value):
    """InfluxDB's JSON writes a float of a whole number without a point."""
    if isinstance(value, float):
        return not isinstance(found, bool | str) and float(found) == value
    return type(found) is type(value) and found == value


def test_every_text_arrives_as_written(influxdb, victoria):
    """InfluxDB refuses what is malformed; VictoriaMetrics drops it in silence."""
    judge = build_sink(SinkSettings("v1", influxdb.url, database=influxdb.database))
    sink = build_sink(SinkSettings("v2", victoria.url, org="o", bucket="b"))
    number, expected = itertools.count(), {}

    @example([("m", {}, {"text": text, "n": 1.5}) for text in WORDS])
    @settings(max_examples=60, database=None, suppress_health_check=list(HealthCheck))
    @given(POINTS)
    def send(drawn):
        # A name of its own for each, or two of them would differ in the type of one field.
        points = [
            Point(f"{name}{i}", tags, fields, START_NS + i * 10**9)
            for (name, tags, fields), i in zip(drawn, number, strict=False)
        ]
        payload = "\n".join(render(point) for point in points if field_set(point.fields)).encode()
        judge.post(judge.pack(payload))
        sink.post(sink.pack(payload))
        expected.update(written(point) for point in points if field_set(point.fields))

    send()
    judge.close()
    sink.close()
    found = influxdb.points(influxdb.database)
    for key, fields in expected.items():
        # InfluxQL's SELECT * gives a tag that has a field's name in the field's place.
        if not set(fields) & {name for name, _ in key[1]}:
            assert set(found[key]) == set(fields)
            assert all(same(found[key][name], value) for name, value in fields.items()), key
    samples = victoria.samples()
    numbers = {
        (f"{measurement}_{name}", tags, time_ns // 10**6): pytest.approx(float(value), rel=1e-9)
        for (measurement, tags, time_ns), fields in expected.items()
        for name, value in fields.items()
        if not isinstance(value, str)
    }
    assert {key: samples.get(key) for key in numbers} == numbers
