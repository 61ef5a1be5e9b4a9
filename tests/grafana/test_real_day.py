"""Every query of every dashboard on a day of rows that a real daemon measured and pushed.

The daemon, its children, the driver's library, the store, the sink and InfluxDB 1.6.7 are real; its
calendar is stepped from hour to hour (`fakes.real_day`), so that a day takes about a minute.
"""

import json
from itertools import product

import pytest
from fakes.nvml import require_gcc
from fakes.real_day import HOUR_NS, HOURS, RealDay
from fakes.servers import InfluxDB, running
from panels import BOARDS, PANELS, VARIABLES, as_regex, filled, filled_columns, range_of

from agent.grafana.boards import boards
from agent.series import SCHEMA

DATABASE = "infercost"
pytestmark = pytest.mark.timeout(900)
# What a day without a CUDA device cannot have, with the reason why.
MAY_BE_EMPTY = {
    ("model: Runs A", "contended"): "is told of models on a GPU; a server's neighbour is itself",
}


@pytest.fixture(scope="module")
def influxdb(tmp_path_factory):
    with running(InfluxDB, tmp_path_factory.mktemp("influxdb"), "influxd") as server:
        server.query(f'CREATE DATABASE "{DATABASE}"')
        yield server


@pytest.fixture(scope="module")
def lived(influxdb, tmp_path_factory):
    require_gcc()
    day = RealDay(tmp_path_factory.mktemp("day"), influxdb, DATABASE)
    day.live()
    return day


@pytest.fixture(scope="module")
def when(lived):
    return range_of(lived.start_ns, lived.end_ns)


def choices_of(server, board, when):
    """Every way to choose on a page: all where several may be chosen, else one after the other."""
    ways = []
    for variable in BOARDS[board]["templating"]["list"]:
        name = variable["name"]
        if variable["type"] == "textbox":
            ways.append([(name, variable["query"])])
        elif variable["type"] == "query" and variable.get("includeAll"):
            assert values_of(server, board, name, dict(way[0] for way in ways), when)
            ways.append([(name, variable["allValue"])])
        elif variable["type"] == "query":
            found = values_of(server, board, name, dict(way[0] for way in ways), when)
            assert found, (board, name)
            ways.append([(name, as_regex([value])) for value in found])
    return [dict(way) for way in product(*ways)]


def values_of(server, board, name, chosen, when):
    text = filled(VARIABLES[board, name]["query"], chosen, when)
    return sorted(
        {row[1] for series in server.query(text, db=DATABASE) for row in series["values"]}
    )


@pytest.fixture(scope="module")
def choices(influxdb, when):
    return {board: choices_of(influxdb, board, when) for board in BOARDS}


@pytest.mark.parametrize(("name", "panel", "target"), PANELS, ids=[name for name, _, _ in PANELS])
def test_a_panel_shows_something_of_the_day(influxdb, choices, when, name, panel, target):
    """No query errs, and of what one may choose something fills each column."""
    total = {}
    for chosen in choices[name.partition(":")[0]]:
        found = influxdb.query(filled(target["query"], chosen, when), db=DATABASE)
        for column, count in filled_columns(found).items():
            total[column] = total.get(column, 0) + count
    assert total
    empty = {column for column, count in total.items() if not count}
    assert not {column for column in empty if (name, column) not in MAY_BE_EMPTY}


@pytest.mark.parametrize("board", BOARDS)
def test_an_annotation_marks_what_happened(influxdb, choices, when, board):
    for annotation in BOARDS[board]["annotations"]["list"]:
        target = annotation["target"]
        found = influxdb.query(filled(target["query"], choices[board][0], when), db=DATABASE)
        columns = filled_columns(found)
        rows = sum(len(series["values"]) for series in found)
        assert rows, annotation["name"]
        assert columns[target["titleColumn"]] == rows, annotation["name"]
        assert columns[target["textColumn"]], annotation["name"]
        assert set(target["tagsColumn"].split(",")) <= set(columns)


def test_everything_that_was_stored_was_pushed(lived, influxdb):
    assert {measurement for measurement, _, _ in lived.stored} == set(SCHEMA)
    assert lived.stored <= set(influxdb.points(DATABASE))


def test_the_day_has_its_hours(lived):
    hours = {
        (row.time_ns - lived.start_ns) // HOUR_NS
        for row in lived.daemon.points("probe", probe="chat-latency")
    }
    assert len(hours) >= HOURS - 3
    devices = {row.tags["device"] for row in lived.daemon.points("device")}
    assert devices == {"cpu", "gpu0", "gpu1"}


def test_a_calendar_that_is_stepped_is_no_trouble(lived):
    """It was stepped two dozen times: nothing was said to be silent, and nothing broke."""
    rules = {row.tags["rule"] for row in lived.daemon.points("alert")}
    assert not rules & {"device-silent", "probe-silent", "broken"}
    assert {"hot", "performance", "budget"} <= rules
    text = lived.daemon.output.read_text()
    assert "Traceback" not in text
    # An hour that was skipped was none of a device, of a window, or of money.
    for row in lived.daemon.points("device"):
        assert row.fields["energy_j"] < 400 * 20
    for row in lived.daemon.points("serving"):
        assert row.fields["window_s"] < 60


def test_what_happened_was_found_and_its_cause_named(lived):
    events = lived.daemon.points("event")
    drifts = [row for row in events if row.tags["kind"] == "drift" and row.fields.get("change_pct")]
    # Of cost, latency and throughput, whichever stood out from the noise of this machine.
    found = {(row.tags["probe"], row.fields["cause"]) for row in drifts}
    assert ("chat-latency", "software: server_version") in found
    prices = [row for row in events if row.tags["kind"] == "price"]
    assert {row.tags["device"] for row in prices} == {"gpu0", "gpu1"}


def test_the_boards_are_those_of_the_package():
    assert {name: json.loads(text) for name, text in boards().items()} == {
        f"{name}.json": board for name, board in BOARDS.items()
    }
