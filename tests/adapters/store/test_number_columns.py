"""Numbers that SQLite extracts and sums equal those of rows that are parsed."""

import math

import pytest
from costprobe.adapters.store.hours import WantedCells
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.core.columns import RowEnd
from costprobe.core.line_protocol import field_set, fields_reader, parse_field_set
from costprobe.core.records import Point
from fakes import long_host
from fakes.clock import FakeClock
from fakes.long_host import COARSE, DAY_NS, HOUR_NS

S = 10**9
NOW_NS = 1_790_000_000 * S // HOUR_NS * HOUR_NS


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """Raw rows of two days, then hours; `agent` is of no importance."""
    folder = tmp_path_factory.mktemp("long")
    long_host.made(folder, NOW_NS, 40, COARSE)
    reader = StoreReader.open(folder / "costprobe.db")
    yield reader
    reader.close()


def test_hourly_sums_equal_the_sums_of_all_rows(reader):
    cut_ns = NOW_NS - 5 * HOUR_NS + 1700 * S
    for measurement, field in (("device", "cost"), ("device", "energy_j"), ("allocation", "cost")):
        span = (NOW_NS - 35 * DAY_NS, NOW_NS + 1)
        rows = {str(one.tags): one for one in reader.values(measurement, field, *span)}
        hours = reader.hourly_sums(measurement, (field,), *span, cuts_ns=(cut_ns,))[field]
        assert len(hours) == len(rows)
        for one in hours:
            own = rows[str(one.tags)]
            assert math.fsum(one.values) == pytest.approx(math.fsum(own.values), rel=1e-9)
            assert sum(end.rows for end in one.ends) == sum(end.rows for end in own.ends)
            assert one.ends[-1].end_ns == own.ends[-1].end_ns
            before = math.fsum(
                value for at, value in zip(own.times_ns, own.values, strict=True) if at < cut_ns
            )
            summed = zip(one.times_ns, one.values, strict=True)
            assert math.fsum(v for at, v in summed if at < cut_ns) == pytest.approx(before)


def test_numbers_equal_the_fields_of_points(reader):
    span, tags = (NOW_NS - 33 * DAY_NS, NOW_NS + 1), {"device": "gpu3"}
    names = ("carbon_g", "cost", "util_pct", "mem_used_bytes", "no_such_field")
    _, rows = reader.loads("device", names, *span, tags, highest=("mem_used_bytes",), edge_ns=0)
    (found,) = rows.values()
    points = list(reader.points("device", *span, tags))
    assert len(found) == len(points) > 900
    for (time_ns, end, values), point in zip(found, points, strict=True):
        assert time_ns == point.time_ns
        assert end.end_ns >= time_ns
        assert values == tuple(point.fields.get(name) for name in names)


def test_fields_that_lack_in_some_rows_are_absent(tmp_path):
    rows = [
        {"cost": 1.5e-07, "util_pct": 3.0},
        {"util_pct": -4.25},
        {"a_first": 1, "cost": 2.0, "energy_method": "counter"},
    ]
    store = Store.open(tmp_path / "costprobe.db", FakeClock())
    store.append([Point("device", {"device": "gpu0"}, f, i * S) for i, f in enumerate(rows, 1)])
    store.close()
    reader = StoreReader.open(tmp_path / "costprobe.db")
    _, rows = reader.loads("device", ("cost", "util_pct", "a_first"), 0, 10 * S, edge_ns=0)
    (found,) = rows.values()
    ((hour,),) = reader.hourly_sums("device", ("cost",), 0, 10 * S).values()
    reader.close()
    assert [values for _, _, values in found] == [
        (1.5e-07, 3.0, None),
        (None, -4.25, None),
        (2.0, None, 1.0),
    ]
    assert (hour.values, hour.ends) == ([2.00000015], [RowEnd(3 * S, 2, 2 * S)])


def test_wanted_fields_equal_those_of_the_whole_row():
    wanted = frozenset({"a", "cost", "note", "flag", "count"})
    rows = [
        {"a": 1.5, "cost": -2.5e-07, "count": 12, "flag": True, "note": "plain"},
        {"a": 2.5, "cost": 3.0, "count": 13, "flag": False, "note": "other", "z": 1.0},
        {"a": 2.5, "cost": 3.0, "count": 13, "flag": False, "note": "", "z": 2.0},
        {
            "a": 0.0,
            "cost": 1.0,
            "count": 1,
            "flag": True,
            "note": 'with "quotes", cost=9,a=8',
            "z": 3.0,
        },
        {"b": "x,cost=7,y", "cost": 1.0},
        {"b": "x", "cost": 2.0},
        {"note": "back\\slash", "cost": 1.0},
        {"z": 1.0},
    ]
    read = fields_reader(wanted)
    for fields in [*rows, *reversed(rows)]:
        text = field_set(fields)
        whole = parse_field_set(text)
        assert read(text) == {name: whole[name] for name in wanted & whole.keys()}, text


def test_cells_of_a_layout_that_was_created_while_a_report_reads_are_decoded():
    created = {2: ["carbon_g", "cost"]}
    cells = WantedCells(frozenset({"cost"}), {1: ["cost", "power_w"]}, created.__getitem__)
    names, (row,) = cells.decoded(2, ["[3.0,0.5]"])
    assert dict(zip(names, row, strict=True)) == {"carbon_g": 3.0, "cost": 0.5}
