"""Every query of every dashboard, as Grafana would fill it, on a real InfluxDB with a day of rows."""

import re

import pytest
from fakes import day
from fakes.sending import send
from fakes.servers import InfluxDB, running
from panels import BOARDS, PANELS, VARIABLES, as_regex, filled, filled_columns, range_of

from agent.influx_setup.influxql import create_query
from agent.influx_setup.rollup import ROLLED
from agent.lineprotocol import render
from agent.model import NS_PER_S
from agent.sinks.registry import build_sink
from agent.sinks.settings import SinkSettings

END_NS = 1_780_012_800 * NS_PER_S
DATABASE = "infercost"
RANGE = range_of(END_NS - day.DAY_S * NS_PER_S, END_NS)
# What InfluxDB 3.x and the InfluxQL of 2.x have too, beside what 1.x has.
FUNCTIONS = {
    *("count", "max", "mean", "median", "spread", "sum"),
    *("fill", "last", "non_negative_derivative", "time"),
}


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """An InfluxDB that holds the day, written by the daemon's own sink."""
    with running(InfluxDB, tmp_path_factory.mktemp("influxdb"), "influxd") as server:
        server.query(f'CREATE DATABASE "{DATABASE}"')
        sink = build_sink(SinkSettings(api="v1", url=server.url, database=DATABASE, timeout_s=60))
        lines = [render(point) for point in day.points(END_NS)]
        for first in range(0, len(lines), 5000):
            send(sink, "\n".join(lines[first : first + 5000]).encode())
        sink.close()
        yield server


@pytest.fixture(scope="module")
def hourly(database):
    """The database of rows of an hour, made from the day by the continuous queries' statements."""
    name = f"{DATABASE}_hourly"
    database.query(f'CREATE DATABASE "{name}"')
    for measurement in ROLLED:
        text = create_query(measurement, (DATABASE, "autogen"), (name, "autogen"), 3600)
        statement = re.search(r" BEGIN (.+) END$", text)[1]
        database.query(statement.replace("GROUP BY", f"WHERE {RANGE} GROUP BY"))
    return name


def values_of(server, board, name, chosen):
    variable = VARIABLES[board, name]
    found = server.query(filled(variable["query"], chosen, RANGE), db=DATABASE)
    return sorted({row[1] for series in found for row in series["values"]})


def chosen_on(server, board, *, everything):
    """The variables of a dashboard as they are at first, or with one value, or several, each."""
    chosen = {}
    for variable in BOARDS[board]["templating"]["list"]:
        name = variable["name"]
        if variable["type"] == "textbox":
            chosen[name] = variable["query"]
        elif variable["type"] == "query":
            found = values_of(server, board, name, chosen)
            assert found, (board, name)
            if variable.get("includeAll") and everything:
                chosen[name] = variable["allValue"]
            elif variable.get("multi"):
                chosen[name] = as_regex(found)
            else:
                preferred = {"probe": "ranker", "currency": "USD"}.get(name, found[0])
                assert preferred in found
                chosen[name] = as_regex([preferred])
    return chosen


@pytest.fixture(scope="module")
def choices(database):
    return {
        (board, everything): chosen_on(database, board, everything=everything)
        for board in BOARDS
        for everything in (True, False)
    }


@pytest.mark.parametrize("everything", [True, False], ids=["all", "some"])
@pytest.mark.parametrize(("name", "panel", "target"), PANELS, ids=[name for name, _, _ in PANELS])
def test_a_panel_has_an_answer_with_no_empty_column(
    database, choices, name, panel, target, everything
):
    chosen = choices[name.partition(":")[0], everything]
    found = database.query(filled(target["query"], chosen, RANGE), db=DATABASE)
    assert found
    columns = filled_columns(found)
    # What is absent in all rows would be a panel that shows nothing, for ever.
    assert [column for column, count in columns.items() if not count] == []


@pytest.mark.parametrize(
    ("name", "panel", "target"),
    [pytest.param(*one, id=one[0]) for one in PANELS if one[1]["type"] == "timeseries"],
)
def test_a_graph_is_drawn_from_the_rows_of_an_hour_too(
    database, choices, hourly, name, panel, target
):
    chosen = choices[name.partition(":")[0], True]
    text = filled(target["query"], chosen, RANGE, "1h")
    found = [row for series in database.query(text, db=hourly) for row in series["values"]]
    assert any(row[1] is not None for row in found)


@pytest.mark.parametrize("board", BOARDS)
def test_an_annotation_has_marks_with_title_and_text(database, choices, board):
    for annotation in BOARDS[board]["annotations"]["list"]:
        target = annotation["target"]
        (series,) = database.query(
            filled(target["query"], choices[board, True], RANGE), db=DATABASE
        )
        for key in ("titleColumn", "textColumn"):
            place = series["columns"].index(target[key])
            assert all(row[place] for row in series["values"]), (annotation["name"], key)
        assert set(target["tagsColumn"].split(",")) <= set(series["columns"])


@pytest.mark.parametrize("board", BOARDS)
def test_the_variables_that_queries_name_are_those_of_the_page(board):
    there = {v["name"] for v in BOARDS[board]["templating"]["list"]}
    texts = [t["query"] for name, _, t in PANELS if name.startswith(f"{board}:")]
    texts += [a["target"]["query"] for a in BOARDS[board]["annotations"]["list"]]
    texts += [v["query"] for v in BOARDS[board]["templating"]["list"] if v["type"] == "query"]
    texts += [panel["title"] for panel in BOARDS[board]["panels"]]
    named = set(re.findall(r"\$\{?([a-z_]+)", " ".join(texts)))
    assert named - there <= {"timeFilter", "time", "__interval"}
    # A variable that nothing asks for would be a choice without an effect.
    assert there - named <= {"datasource"}


def test_queries_keep_to_what_all_three_generations_answer():
    called = {
        function
        for _, _, target in PANELS
        for function in re.findall(r"\b([a-z_]+)\(", target["query"])
    }
    assert called <= FUNCTIONS
    assert len(called) >= 8


@pytest.mark.parametrize(("name", "panel", "target"), PANELS, ids=[name for name, _, _ in PANELS])
def test_a_panel_has_a_unit_and_thresholds_and_a_place(name, panel, target):
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["thresholds"]["steps"][0] == {"color": "green", "value": None}
    assert panel["type"] == "table" or defaults["unit"]
    assert panel["gridPos"]["w"] + panel["gridPos"]["x"] <= 24
    assert target["rawQuery"] is True
    assert target["datasource"] == {"type": "influxdb", "uid": "${datasource}"}
    assert target["resultFormat"] == ("table" if panel["type"] == "table" else "time_series")


@pytest.mark.parametrize("board", BOARDS)
def test_no_two_panels_overlap_or_share_a_number(board):
    panels = BOARDS[board]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def answer_of(server, choices, name):
    """The number that a figure shows, over everything."""
    (found,) = [target for title, _, target in PANELS if title == f"{name} A"]
    text = filled(found["query"], choices[name.partition(":")[0], True], RANGE)
    ((row,),) = [series["values"] for series in server.query(text, db=DATABASE)]
    return row[1]


@pytest.mark.parametrize(
    ("figure", "measurement", "reduce"),
    [
        (
            "fleet: Spent in this range ($currency)",
            "device",
            lambda rows: sum(r["cost"] for r in rows),
        ),
        ("energy: Energy", "device", lambda rows: sum(r["energy_j"] for r in rows) / 3.6e6),
        ("energy: CO2-equivalent", "device", lambda rows: sum(r["carbon_g"] for r in rows)),
        ("production: Cost ($currency)", "allocation", lambda rows: sum(r["cost"] for r in rows)),
        ("production: Requests", "serving", lambda rows: sum(r.get("requests", 0) for r in rows)),
    ],
)
def test_a_figure_is_what_the_rows_come_to(database, choices, figure, measurement, reduce):
    rows = [p.fields for p in day.points(END_NS) if p.measurement == measurement]
    assert answer_of(database, choices, figure) == pytest.approx(reduce(rows))


def test_figures_of_now_add_up_the_newest_of_each_device(database, choices):
    newest = [p for p in day.points(END_NS) if p.measurement == "device" and p.time_ns == END_NS]
    assert answer_of(database, choices, "fleet: Devices") == len(newest) == 4
    assert answer_of(
        database, choices, "fleet: Price of an hour, now ($currency)"
    ) == pytest.approx(4 * 2.176)
    power_w = sum(p.fields["power_w"] for p in newest)
    assert answer_of(database, choices, "fleet: Power, now") == pytest.approx(power_w)


def test_what_if_prices_the_measured_throughput(database, choices):
    (target,) = [
        t for name, _, t in PANELS if name.startswith("prices: 1,000") and "A" in t["alias"]
    ]
    text = filled(target["query"], {**choices["prices", True], "price_a": "3.6"}, RANGE)
    found = {
        (s["tags"]["host"], s["tags"]["device"], s["tags"]["probe"], row[0]): row[1]
        for s in database.query(text, db=DATABASE)
        for row in s["values"]
    }
    expected = {
        (p.tags["host"], p.tags["device"], p.tags["probe"], p.time_ns): pytest.approx(
            1 / p.fields["throughput_per_s"]
        )
        for p in day.points(END_NS)
        if p.measurement == "probe"
    }
    assert found == expected


MONEY = re.compile(r'"(cost\w*|price_rate_per_h|rolling_\w+)"')
PRICED = {"device", "cost", "allocation"}


@pytest.mark.parametrize(("name", "panel", "target"), PANELS, ids=[name for name, _, _ in PANELS])
def test_two_currencies_are_never_added(name, panel, target):
    text = target["query"]
    source = re.search(r'FROM "(\w+)"', text)[1]
    selected = text.rpartition(f' FROM "{source}"')[0]
    if source in PRICED and MONEY.search(selected):
        assert re.search(r'"currency" =~ /\^\$currency\$/|GROUP BY .*"currency"', text), name
