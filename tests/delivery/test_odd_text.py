"""Any text in a label, name or value arrives at both databases unchanged."""

import itertools

import pytest
from costprobe.core.line_protocol import (
    field_set,
    parse_field_set,
    parse_series_key,
    render,
    series_key,
)
from costprobe.core.records import Point
from fakes.sending import sink_of
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

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
    """Return a point as the databases should return it."""
    measurement, tags = parse_series_key(series_key(point.measurement, point.tags))
    return (measurement, tuple(sorted(tags.items())), point.time_ns), parse_field_set(
        field_set(point.fields)
    )


def same(found, value):
    """Compare values; InfluxDB's JSON omits the decimal point of a whole float."""
    if isinstance(value, float):
        return not isinstance(found, bool | str) and float(found) == value
    return type(found) is type(value) and found == value


def test_any_text_is_read_back_unchanged(influxdb, victoria):
    """InfluxDB rejects malformed lines; VictoriaMetrics drops them silently."""
    judge = sink_of("v1", influxdb.url, database=influxdb.database)
    sink = sink_of("v2", victoria.url)
    number, expected = itertools.count(), {}

    @example([("m", {}, {"text": text, "n": 1.5}) for text in WORDS])
    @settings(max_examples=60, database=None, suppress_health_check=list(HealthCheck))
    @given(POINTS)
    def send(drawn):
        # Each has a unique name; otherwise two of them would give one field different types.
        points = [
            Point(f"{name}{i}", tags, fields, START_NS + i * 10**9)
            for (name, tags, fields), i in zip(drawn, number, strict=False)
        ]
        payload = "\n".join(render(point) for point in points if field_set(point.fields)).encode()
        judge.post(judge.encode(payload))
        sink.post(sink.encode(payload))
        expected.update(written(point) for point in points if field_set(point.fields))

    send()
    judge.close()
    sink.close()
    found = influxdb.points(influxdb.database)
    for key, fields in expected.items():
        # InfluxQL's SELECT * returns a tag in place of a field of the same name.
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
