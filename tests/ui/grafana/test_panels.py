"""Every query of every dashboard, with its variables replaced as Grafana does, on a real InfluxDB.

Each test checks all panels and reports every offender at once.
"""

import re
from functools import cache

import pytest
from costprobe.core.line_protocol import render
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from costprobe.ui.influx_setup.steps import ROLLED
from costprobe.ui.influx_setup.v1 import create_query
from fakes import day
from fakes.sending import send, sink_of
from panels import BOARDS, PANELS, VARIABLES, as_regex, filled, filled_columns, range_of

END_NS = 1_780_012_800 * NS_PER_S
DATABASE = "costprobe"
RANGE = range_of(END_NS - day.DAY_S * NS_PER_S, END_NS)
# InfluxQL functions that InfluxDB 2.x and 3.x have as well as 1.x.
FUNCTIONS = {
    *("abs", "count", "first", "last", "max", "mean", "median", "min", "spread", "sum"),
    *("fill", "non_negative_derivative", "now", "time"),
}
# The day has no row of the day before and no silent agent; test_answers.py has them.
IN_ANSWERS = re.compile(r"home: .*: (24 h|7 d)$|health: Silent now A")


@cache
def points_of_the_day():
    """The generated rows."""
    return list(day.points(END_NS))


@pytest.fixture(scope="module")
def database(influxdb):
    """An InfluxDB with the day's rows, written by the daemon's sink."""
    influxdb.query(f'CREATE DATABASE "{DATABASE}"')
    sink = sink_of("v1", influxdb.url, database=DATABASE, timeout_s=60)
    lines = [render(point) for point in points_of_the_day()]
    for first in range(0, len(lines), 5000):
        send(sink, "\n".join(lines[first : first + 5000]).encode())
    sink.close()
    return influxdb


@pytest.fixture(scope="module")
def hourly(database):
    """The database of hourly rows, computed from the day by the continuous queries' statements."""
    name = f"{DATABASE}_hourly"
    database.query(f'CREATE DATABASE "{name}"')
    for rolled in ROLLED:
        text = create_query(rolled, (DATABASE, "autogen"), (name, "autogen"))
        statement = re.search(r" BEGIN (.+) END$", text)[1]
        joint = "AND" if " WHERE " in statement else "WHERE"
        database.query(statement.replace("GROUP BY", f"{joint} {RANGE} GROUP BY"))
    return name


def values_of(server, board, name, chosen):
    variable = VARIABLES[board, name]
    found = server.query(filled(variable["query"], chosen, RANGE), db=DATABASE)
    return sorted({row[1] for series in found for row in series["values"]})


def chosen_on(server, board, *, everything):
    """Return the variables of a dashboard: the defaults, one value each, several values each."""
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
def test_panel_query_returns_no_empty_column(database, choices, everything):
    offenders = []
    for name, _, target in PANELS:
        chosen = choices[name.partition(":")[0], everything]
        found = database.query(filled(target["query"], chosen, RANGE), db=DATABASE)
        columns = filled_columns(found) if found else {"every column": 0}
        # A column that is absent in all rows would be a panel that is always empty.
        offenders += [
            f"{name}: {column}"
            for column, count in columns.items()
            if not count and not IN_ANSWERS.match(f"{name}: {column}")
        ]
    assert not offenders


def test_graph_query_works_on_hourly_rows(database, choices, hourly):
    offenders = []
    for name, panel, target in PANELS:
        # Budgets and load curves change rarely and are not rolled up.
        is_rolled = not any(f'FROM "{name}"' in target["query"] for name in ("budget", "sweep"))
        if panel["type"] == "timeseries" and is_rolled:
            chosen = choices[name.partition(":")[0], True]
            text = filled(target["query"], chosen, RANGE, "1h")
            found = [row for series in database.query(text, db=hourly) for row in series["values"]]
            if all(row[1] is None for row in found):
                offenders.append(name)
    assert not offenders


@pytest.mark.parametrize("board", BOARDS)
def test_annotation_query_returns_titles_and_texts(database, choices, board):
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
def test_queries_use_only_defined_variables(board):
    there = {v["name"] for v in BOARDS[board]["templating"]["list"]}
    texts = [t["query"] for name, _, t in PANELS if name.startswith(f"{board}:")]
    texts += [a["target"]["query"] for a in BOARDS[board]["annotations"]["list"]]
    texts += [v["query"] for v in BOARDS[board]["templating"]["list"] if v["type"] == "query"]
    texts += [panel["title"] for panel in BOARDS[board]["panels"]]
    named = set(re.findall(r"\$\{?([a-z_]+)", " ".join(texts)))
    assert named - there <= {"timeFilter", "time", "__interval"}
    # An unused variable would be a selection without an effect.
    assert there - named <= {"datasource"}


def test_queries_work_on_all_influxdb_versions():
    called = {
        function
        for _, _, target in PANELS
        for function in re.findall(r"\b([a-z_]+)\(", target["query"])
    }
    assert called <= FUNCTIONS
    assert len(called) >= 8


def has_unit_thresholds_and_position(panel, target):
    defaults = panel["fieldConfig"]["defaults"]
    is_table = panel["type"] == "table"
    return (
        defaults["thresholds"]["steps"][0] == {"color": "green", "value": None}
        and (is_table or defaults["unit"])
        and panel["gridPos"]["w"] + panel["gridPos"]["x"] <= 24
        and target["rawQuery"] is True
        and target["datasource"] == {"type": "influxdb", "uid": "${datasource}"}
        and target["resultFormat"] == ("table" if is_table else "time_series")
    )


def test_panel_has_unit_thresholds_and_position():
    assert not [
        name
        for name, panel, target in PANELS
        if not has_unit_thresholds_and_position(panel, target)
    ]


@pytest.mark.parametrize("board", BOARDS)
def test_panels_do_not_overlap_or_share_an_id(board):
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
    """Return the number that a panel shows, over the whole range."""
    (found,) = [target for title, _, target in PANELS if title == f"{name} A"]
    text = filled(found["query"], choices[name.partition(":")[0], True], RANGE)
    ((row,),) = [series["values"] for series in server.query(text, db=DATABASE)]
    return row[1]


@pytest.mark.parametrize(
    ("figure", "measurement", "reduce"),
    [
        (
            "fleet: Spend in this range ($currency)",
            "device",
            lambda rows: sum(r["cost"] for r in rows),
        ),
        ("energy: Energy", "device", lambda rows: sum(r["energy_j"] for r in rows) / 3.6e6),
        ("energy: CO2-equivalent", "device", lambda rows: sum(r["carbon_g"] for r in rows)),
        (
            "production: Cost ($currency)",
            "cost",
            lambda rows: sum(r.get("cost_total", 0) for r in rows),
        ),
        ("production: Requests", "serving", lambda rows: sum(r.get("requests", 0) for r in rows)),
    ],
)
def test_panel_value_equals_the_aggregate_of_the_rows(
    database, choices, figure, measurement, reduce
):
    # The rows of a service's models repeat its own.
    day = [p for p in points_of_the_day() if "served_model" not in p.tags]
    rows = [p.fields for p in day if p.measurement == measurement]
    assert answer_of(database, choices, figure) == pytest.approx(reduce(rows))


def test_stats_beside_each_other_divide(database, choices):
    cost, idle = (
        answer_of(database, choices, f"production: {name} ($currency)")
        for name in ("Cost", "Idle cost")
    )
    assert answer_of(database, choices, "production: Idle share") == pytest.approx(
        100 * idle / cost
    )


def test_current_values_sum_the_newest_row_of_each_device(database, choices):
    newest = [p for p in points_of_the_day() if p.measurement == "device" and p.time_ns == END_NS]
    assert answer_of(database, choices, "fleet: Devices reporting") == len(newest) == 4
    assert answer_of(
        database, choices, "fleet: Current price per hour ($currency)"
    ) == pytest.approx(4 * 2.176)
    power_w = sum(p.fields["power_w"] for p in newest)
    assert answer_of(database, choices, "fleet: Current power") == pytest.approx(power_w)


def test_what_if_prices_the_measured_throughput(database, choices):
    (target,) = [
        t
        for name, _, t in PANELS
        if name.startswith("prices: Cost per 1,000") and "A" in t["alias"]
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
        for p in points_of_the_day()
        if p.measurement == "probe"
    }
    assert found == expected


MONEY = re.compile(r'"(cost\w*|price_rate_per_h|rolling_\w+)"')
PRICED = {"device", "cost", "allocation"}


def test_currencies_are_never_summed():
    offenders = []
    for name, _, target in PANELS:
        text = target["query"]
        source = re.search(r'FROM "(\w+)"', text)[1]
        selected = text.rpartition(f' FROM "{source}"')[0]
        by_currency = re.search(r'"currency" =~ /\^\$currency\$/|GROUP BY .*"currency"', text)
        if source in PRICED and MONEY.search(selected) and not by_currency:
            offenders.append(name)
    assert not offenders


# Windows of five minutes by hand: one busy, one idle, one with half of the requests.
WINDOWS = (
    {"total": 6.0, "idle": 1.0, "requests": 8.0, "tokens_in": 4e6, "in": 4.0, "out": 2.0},
    {"total": 6.0, "idle": 6.0, "requests": 0.0, "tokens_in": 0.0, "in": 0.0, "out": 0.0},
    {"total": 6.0, "idle": 3.0, "requests": 4.0, "tokens_in": 2e6, "in": 2.0, "out": 4.0},
)
LEDGER_NS = END_NS - 3600 * NS_PER_S


def ledger():
    """Rows of a service by its windows, and of a device that knows its carbon half of the time."""
    tags = {"host": "h", "service": "chat", "basis": "serving", "currency": "USD", "plan": "owned"}
    for index, one in enumerate(WINDOWS):
        time_ns = LEDGER_NS + (index + 1) * 300 * NS_PER_S
        fields = {
            "cost_total": one["total"],
            "cost_idle": one["idle"],
            "idle_share": one["idle"] / one["total"],
            "requests": one["requests"],
            "inferences": one["requests"],
            "tokens_in": one["tokens_in"],
            "tokens_out": one["tokens_in"] / 2,
            "cost_tokens_in": one["in"],
            "cost_tokens_out": one["out"],
            "window_s": 300.0,
        }
        if one["requests"]:
            fields["cost_per_request"] = one["total"] / one["requests"]
            fields["cost_per_inference"] = fields["cost_per_request"]
            fields["cost_per_million_tokens_in"] = one["in"] / one["tokens_in"] * 1e6
            fields["cost_per_million_tokens_out"] = one["out"] / one["tokens_in"] * 2e6
        yield make_point("cost", tags, fields, time_ns)
        shares = {"busy_share": (0.9, 0.0, 0.3)[index], "window_s": (300.0, 300.0, 600.0)[index]}
        yield make_point("serving", {"host": "h", "service": "chat"}, shares, time_ns)
        drawn = {
            "energy_j": 3.6e6,
            **({"carbon_g": 400.0, "carbon_energy_j": 3.6e6} if index == 0 else {}),
        }
        yield make_point("device", {"host": "h", "device": "gpu0"}, drawn, time_ns)


# Of the 18.00 spent, 6 of 12 parts are for tokens in.
RATIOS = {
    "production: Cost per 1,000 requests ($currency) A": 18.0 / 12 * 1000,
    "production: Cost per 1,000 inferences ($currency) A": 18.0 / 12 * 1000,
    "production: Cost per million tokens ($currency) A": 18.0 * 6 / 12 / 6,
    "production: Cost per million tokens ($currency) B": 18.0 * 6 / 12 / 3,
    "production: Idle share A": 100 * 10 / 18,
    "production: Busy share of its devices A": (0.9 * 300 + 0.3 * 600) / 1200,
    "energy: CO2-equivalent per kWh A": 400.0,
    "energy: CO2-equivalent per kWh, with PUE A": 400.0,
    "energy: Energy with CO2-equivalent A": 100 / 3,
}


@pytest.mark.parametrize("where", ["rows", "hourly"])
def test_ratios_are_ratios_of_sums(database, where):
    name = f"ledger_{where}"
    database.query(f'CREATE DATABASE "{name}"')
    sink = sink_of("v1", database.url, database=name, timeout_s=60)
    send(sink, "\n".join(render(point) for point in ledger()).encode())
    sink.close()
    if where == "hourly":
        database.query(f'CREATE DATABASE "{name}_1h"')
        for rolled in ROLLED:
            text = create_query(rolled, (name, "autogen"), (f"{name}_1h", "autogen"))
            statement = re.search(r" BEGIN (.+) END$", text)[1]
            joint = "AND" if " WHERE " in statement else "WHERE"
            database.query(statement.replace("GROUP BY", f"{joint} {RANGE} GROUP BY"), db=name)
        name = f"{name}_1h"
    wrong = {}
    for title, _, target in PANELS:
        wanted = RATIOS.get(title)
        if wanted is None or (where == "hourly" and title.startswith("production: B")):
            continue
        chosen = dict.fromkeys(("host", "service", "device", "probe", "currency"), ".*")
        text = filled(target["query"], chosen, RANGE, "1h")
        values = [
            value
            for series in database.query(text, db=name)
            for value in (row[1] for row in series["values"])
            if value is not None
        ]
        if values != pytest.approx([wanted]):
            wrong[title] = (values, wanted)
    assert not wrong
