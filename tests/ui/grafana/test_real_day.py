"""Every query of every dashboard on a day of rows that a real daemon measured and sent.

The daemon, its children, the store, the sink and InfluxDB 1.6.7 are real, the NVML library is the fake.
The wall clock is stepped from hour to hour (`fakes.real_day`), so that a day takes about a minute.
`make soak` runs this file; test_panels.py checks the same queries on generated rows.
"""

import json
import re
from itertools import product

import pytest
from costprobe.core.schema import SCHEMA
from costprobe.ui.grafana.provisioning import boards
from fakes.nvml import require_gcc
from fakes.real_day import HOUR_NS, HOURS, RealDay
from fakes.servers import InfluxDB, running
from panels import BOARDS, PANELS, VARIABLES, as_regex, filled, filled_columns, range_of

DATABASE = "costprobe"
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
# Columns that a day without a CUDA device cannot have, with the reason.
MAY_BE_EMPTY = {
    (
        "model: Runs A",
        "contended",
    ): "only models on a GPU have it: the neighbour of a server is itself",
}
# The home dashboard needs a day and a week before, a monthly budget, and incidents at the end; no agent is
# silent; a day is too short for a forecast.
ELSEWHERE = re.compile(r"home: |health: Silent now A|prices: (Budgets now|Spent and forecast)")


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
    # What is now has the newest rows.
    return range_of(lived.start_ns, max(time_ns for _, _, time_ns in lived.stored))


def choices_of(server, board, when):
    """Return all combinations of a page's variables: "All" if possible, else each value."""
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


def test_panel_query_returns_rows_of_the_day(influxdb, choices, when):
    """No query fails, and every column has a value for one of the page's combinations."""
    offenders = []
    for name, _, target in PANELS:
        total = {}
        for chosen in choices[name.partition(":")[0]]:
            found = influxdb.query(filled(target["query"], chosen, when), db=DATABASE)
            for column, count in filled_columns(found).items():
                total[column] = total.get(column, 0) + count
        empty = [column for column, count in total.items() if not count] if total else ["all"]
        offenders += [
            f"{name}: {column}"
            for column in empty
            if (name, column) not in MAY_BE_EMPTY and not ELSEWHERE.match(name)
        ]
    assert not offenders


@pytest.mark.parametrize("board", BOARDS)
def test_annotation_query_returns_the_events(influxdb, choices, when, board):
    for annotation in BOARDS[board]["annotations"]["list"]:
        target = annotation["target"]
        found = influxdb.query(filled(target["query"], choices[board][0], when), db=DATABASE)
        columns = filled_columns(found)
        rows = sum(len(series["values"]) for series in found)
        assert rows, annotation["name"]
        assert columns[target["titleColumn"]] == rows, annotation["name"]
        assert columns[target["textColumn"]], annotation["name"]
        assert set(target["tagsColumn"].split(",")) <= set(columns)


def test_every_stored_row_was_sent(lived, influxdb):
    # Beside production, as on this day, nothing is calibrated.
    assert {measurement for measurement, _, _ in lived.stored} == set(SCHEMA) - {"calibration"}
    assert lived.stored <= set(influxdb.points(DATABASE))


def test_hourly_probe_ran_in_nearly_every_hour(lived):
    hours = {
        (row.time_ns - lived.start_ns) // HOUR_NS
        for row in lived.daemon.points("probe", probe="chat-latency")
    }
    assert len(hours) >= HOURS - 3
    devices = {row.tags["device"] for row in lived.daemon.points("device")}
    assert devices == {"cpu", "gpu0", "gpu1"}


def test_clock_steps_raise_no_alert(lived):
    """Two dozen steps caused no silence alert and no traceback."""
    rules = {row.tags["rule"] for row in lived.daemon.points("alert")}
    assert not rules & {"device-silent", "probe-silent", "broken"}
    assert {"hot", "performance", "budget"} <= rules
    text = lived.daemon.output.read_text()
    assert "Traceback" not in text
    # A skipped hour is counted in no energy, window or cost.
    for row in lived.daemon.points("device"):
        assert row.fields["energy_j"] < 400 * 20
    for row in lived.daemon.points("serving"):
        assert row.fields["window_s"] < 60


def test_drift_and_price_events_are_found_with_their_causes(lived):
    events = lived.daemon.points("event")
    drifts = [row for row in events if row.tags["kind"] == "drift" and row.fields.get("change_pct")]
    # Drift of cost, latency or throughput, depending on the noise of this machine.
    found = {(row.tags["probe"], row.fields["cause"]) for row in drifts}
    assert ("chat-latency", "software: server_version") in found
    prices = [row for row in events if row.tags["kind"] == "price"]
    assert {row.tags["device"] for row in prices} == {"gpu0", "gpu1"}


def test_tested_dashboards_are_those_of_the_package():
    assert {name: json.loads(text) for name, text in boards().items()} == {
        f"{name}.json": board for name, board in BOARDS.items()
    }
