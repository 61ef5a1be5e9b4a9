"""Line protocol: every string round-trips, and a point is always one line."""

import math
from enum import IntEnum

import pytest
from costprobe.core.line_protocol import (
    INT_MAX,
    INT_MIN,
    NAME_CHARS_MAX,
    STRING_CHARS_MAX,
    field_set,
    fields_reader,
    number_reader,
    parse_field_set,
    parse_series_key,
    render,
    series_key,
    written_tags,
)
from costprobe.core.outside import UnusableInputError
from costprobe.core.records import Point
from hypothesis import example, given
from hypothesis import strategies as st

ANYTHING = st.text(max_size=12) | st.text(alphabet=' ,="\\\n\r\t#/_aé\ud800\u2028', max_size=8)
# Names that line protocol keeps unchanged: no control characters, backslashes and quotation marks.
CARRIED = st.text(
    alphabet=st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp"), exclude_characters='\\"'),
    min_size=1,
    max_size=12,
).filter(lambda text: text not in {"time", "_field", "_measurement"})
STRINGS = st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=12)
VALUES = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(INT_MIN, INT_MAX)
    | STRINGS
    | st.booleans()
)


def sections(line):
    """Split a line as the InfluxDB reference defines: quotation marks matter only in fields."""
    found, quoted, skip = [""], False, False
    for character in line:
        if skip or character == "\\":
            skip = not skip
        elif character == '"' and len(found) > 1:
            quoted = not quoted
        elif character == " " and not quoted:
            found.append("")
            continue
        found[-1] += character
    return found


@given(ANYTHING.filter(bool), st.dictionaries(ANYTHING, ANYTHING))
def test_any_series_key_round_trips_to_a_stable_form(measurement, tags):
    key = series_key(measurement, tags)
    name, read = parse_series_key(key)
    assert read == written_tags(tags)
    assert list(read) == sorted(read)
    assert series_key(name, read) == key


@given(st.dictionaries(CARRIED, VALUES))
def test_fields_round_trip_with_their_types(fields):
    read = parse_field_set(field_set(fields))
    assert read == fields
    assert {name: type(value) for name, value in read.items()} == {
        name: type(value) for name, value in fields.items()
    }


@given(
    ANYTHING.filter(bool),
    st.dictionaries(ANYTHING, ANYTHING),
    st.dictionaries(ANYTHING, VALUES | ANYTHING),
)
def test_point_is_one_line_of_three_parts_in_valid_utf8(measurement, tags, fields):
    line = render(Point(measurement, tags, fields, 17))
    assert line.encode("utf-8").decode("utf-8").splitlines() == [line]
    assert not line.startswith("#")
    if field_set(fields):
        assert sections(line) == [series_key(measurement, tags), field_set(fields), "17"]


NAMES = st.sampled_from(["a", "b", "c", "note", "z"])
TEXTS = st.sampled_from(
    ["x", "", "b=1", 'x",b=1', ",b=1,", 'b=2,c="', "\\", '\\",b=3.0,', "a,c=d", "x,z=9"]
)
ROWS = st.lists(st.dictionaries(NAMES, VALUES | TEXTS, min_size=1, max_size=4), max_size=12)
# Rows with the fields of the one before: with a text, with more fields, and of other types.
ALIKE = [
    {"a": 1.5, "b": 2, "c": True, "note": "x"},
    {"a": -2e-07, "b": -3, "c": False, "note": 'y",b=1'},
    {"a": 2e300, "b": 4, "c": True, "note": "y,b=1"},
    {"a": 0.5, "b": 4, "c": True, "note": "", "z": 1.0},
    {"a": 5, "b": 0.5, "c": "true", "note": False},
]


@given(ROWS, st.frozensets(NAMES))
@example(ALIKE, frozenset({"a", "b", "c", "note", "z"}))
@example(ALIKE, frozenset({"b", "z"}))
def test_wanted_fields_and_single_numbers_equal_those_of_the_whole_row(rows, wanted):
    """Also after rows with other fields, and with texts that look like fields."""
    read = fields_reader(wanted)
    for text in map(field_set, rows):
        whole = parse_field_set(text)
        assert read(text) == {name: whole[name] for name in wanted & whole.keys()}, text
        for name in wanted:
            value = whole.get(name)
            number = None if isinstance(value, bool | str | None) else float(value)
            assert number_reader(name)(text) == number, text


def test_line_matches_the_reference():
    point = Point(
        "device",
        {"model": "NVIDIA H200", "device": "gpu0", "rack": "a=1,b"},
        {"power_w": 70.5, "processes": 2, "energy_method": 'say "C:\\"', "on": True},
        1_700_000_000_000_000_000,
    )
    assert render(point) == (
        r"device,device=gpu0,model=NVIDIA\ H200,rack=a\=1\,b"
        r' energy_method="say \"C:\\\"",on=true,power_w=70.5,processes=2i 1700000000000000000'
    )


class Code(IntEnum):
    LOST = 15


def test_what_databases_reject_is_omitted_and_what_they_change_is_written_in_a_similar_form():
    rejected = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 2**63, "e": -(2**63) - 1, "": 1}
    fields = (
        (rejected, ""),
        ({"f": INT_MAX, "g": INT_MIN}, f"f={INT_MAX}i,g={INT_MIN}i"),
        ({"code": Code.LOST}, "code=15i"),
        ({"time": 1}, "time_=1i"),
        ({"detail": "one\ntwo\r\nthree"}, 'detail="one two  three"'),
        ({"d": "x" * 10**6}, f'd="{"x" * STRING_CHARS_MAX}"'),
    )
    assert [field_set(given) for given, _ in fields] == [text for _, text in fields]
    tags = (
        ({"device": "gpu0", "probe": "", "": "x"}, "m,device=gpu0"),
        ({"time": "a", "_field": "b"}, "m,_field_=b,time_=a"),
        # Two of one escaped name are written once.
        ({"a\n": "x", "a\t": "x"}, r"m,a\ =x"),
        ({"t": "x" * 10**6}, f"m,t={'x' * NAME_CHARS_MAX}"),
    )
    assert [series_key("m", given) for given, _ in tags] == [key for _, key in tags]
    with pytest.raises(ValueError, match="has no measurement name"):
        series_key("", {})


def test_invalid_field_sets_and_series_keys_are_rejected():
    for text in ("a", "a=", "=1", 'a="x', "a=1,", "a=nan", "a=1_0", "a=1,,b=2", 'a="x"y', "a=tru"):
        with pytest.raises(ValueError, match=r"no field set|could not convert"):
            parse_field_set(text)
    for key in (",a=b", "m,a", "m,a=", "m,=b", "m,a=b,", "m,a=b=c"):
        with pytest.raises(ValueError, match=r"no series key|no tag"):
            parse_series_key(key)
    # SQLite stores any type in any column.
    for read in (parse_field_set, number_reader("a"), fields_reader(frozenset({"a"}))):
        for damaged in (b"a=1", 7, None):
            with pytest.raises(UnusableInputError, match="not text"):
                read(damaged)
