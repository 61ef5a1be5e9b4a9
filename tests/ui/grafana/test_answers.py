"""What every panel shows of rows with known answers, on a real InfluxDB, and which agents are silent now."""

import re
import time
from pathlib import Path

import pytest
from costprobe.core.line_protocol import parse_line, render
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from costprobe.ui.grafana.provisioning import INFLUXDB, alert_rules
from costprobe.ui.influx_setup.steps import ROLLED
from costprobe.ui.influx_setup.v1 import create_query
from fakes import known
from fakes.known import START_NS
from fakes.sending import send, sink_of
from fakes.shown import (
    ANSWERS,
    RANGE,
    boards_of,
    in_influxql,
    is_answer,
    known_answers,
    panels_of,
    shown_from_influxdb,
    wrong_panels,
)

PANELS = panels_of(INFLUXDB)


def write(server, database, points):
    """Create a database with rows; return what queries it."""
    server.query(f'CREATE DATABASE "{database}"')
    sink = sink_of("v1", server.url, database=database, timeout_s=60)
    send(sink, "\n".join(render(point) for point in points).encode())
    sink.close()
    return lambda text: server.query(text, db=database)


def rolled_up(server, database):
    """Create the database of hourly rows by the statements of the continuous queries."""
    name = f"{database}_hourly"
    server.query(f'CREATE DATABASE "{name}"')
    for rolled in ROLLED:
        text = create_query(rolled, (database, "autogen"), (name, "autogen"))
        statement = re.search(r" BEGIN (.+) END$", text)[1]
        joint = "AND" if " WHERE " in statement else "WHERE"
        server.query(statement.replace("GROUP BY", f"{joint} {RANGE} GROUP BY"), db=database)
    return lambda text: server.query(text, db=name)


@pytest.fixture(scope="module")
def query(influxdb):
    return write(influxdb, "known", known.points())


def test_every_panel_shows_its_known_answer(query):
    shown = {title: shown_from_influxdb(panel, title, query) for title, panel in PANELS.items()}
    assert wrong_panels(INFLUXDB, shown) == {}
    assert len(shown) > 110


def test_energy_and_idle_rows_of_older_versions_do_not_raise_the_ratios(influxdb):
    """Rows of half of the time have energy and an idle part alone, as before these were counted."""
    rows = []
    for point in known.points():
        is_old = point.time_ns < START_NS + 1800 * NS_PER_S
        fields = {
            name: value
            for name, value in point.fields.items()
            if not (is_old and (name.startswith("metered_") or name == "cost_idle_known"))
        }
        rows.append(make_point(point.measurement, point.tags, fields, point.time_ns))
    query, answers = write(influxdb, "updated", rows), known_answers(INFLUXDB)
    of_known = ("Share paid while services wait", "Energy per request", "Energy per million tokens")
    for title in (f"production: {name}" for name in of_known):
        shown = shown_from_influxdb(PANELS[title], title, query)
        assert is_answer(shown, answers[title], set()), (title, shown)


# Of one hourly row there is no rate; sums of an hour do not state which window was the longest.
NOT_HOURLY = {
    "health: CPU, percent of one core",
    "health: Points sent per second",
    "production: Busy share of its devices",
}


def test_graphs_show_the_same_of_hourly_rows(influxdb, query):
    hourly, wrong = rolled_up(influxdb, "known"), {}
    for title, panel in PANELS.items():
        # Budgets and load curves change rarely and are not rolled up.
        text = " ".join(target["query"] for target in panel["targets"])
        if panel["type"] == "timeseries" and not re.search('FROM "(budget|sweep)"', text):
            shown = shown_from_influxdb(panel, title, hourly)
            if not is_answer(shown, known_answers(INFLUXDB)[title], set()):
                wrong[title] = shown
    assert wrong.keys() <= NOT_HOURLY, wrong


def test_variables_and_annotations_are_those_of_the_rows(query):
    for name, board in boards_of(INFLUXDB).items():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                assert query(in_influxql(variable["query"], name)), (name, variable["name"])
        for annotation in board["annotations"]["list"]:
            target = annotation["target"]
            (series,) = query(in_influxql(target["query"], name))
            for key in ("titleColumn", "textColumn"):
                place = series["columns"].index(target[key])
                assert all(row[place] for row in series["values"]), (annotation["name"], key)
            assert set(target["tagsColumn"].split(",")) <= set(series["columns"])


def test_dead_agent_shows_within_two_minutes_in_any_time_range(influxdb):
    """With the server's own clock: one agent wrote a minute ago, one wrote two minutes and a second ago."""
    now_ns = time.time_ns()
    ages_s = {"alive": 60, "dead": 121, "removed": 8 * 86_400}
    rows = [
        make_point(
            "agent",
            {"host": host, "version": "1"},
            {"rss_bytes": 1 << 20, "outbox_lag_s": float(age_s)},
            now_ns - age_s * NS_PER_S,
        )
        for host, age_s in ages_s.items()
    ]
    query = write(influxdb, "now", rows)

    def answers(since_s):
        """What the panels show in a time range of this length that ended an hour ago, or ends now."""
        found = {}
        for end_ns in (now_ns, now_ns - 3600 * NS_PER_S):
            when = f"time >= {end_ns - since_s * NS_PER_S} AND time <= {end_ns}"
            for name in ("Agents reporting", "Agents silent", "Largest delivery lag"):
                (target,) = PANELS[f"health: {name}"]["targets"]
                text = in_influxql(target["query"], "health", when=when, now_ns="now()")
                ((row,),) = [series["values"] for series in query(text)]
                found.setdefault(name, set()).add(row[1])
        return found

    wanted = {"Agents reporting": {1}, "Agents silent": {1}, "Largest delivery lag": {60}}
    assert [answers(since_s) for since_s in (60, 3600, 30 * 86_400)] == [wanted] * 3
    # The rule for Grafana: one series for each agent of the last day, 1 for a silent one.
    (rule,) = alert_rules("costprobe")["groups"][0]["rules"]
    found = query(rule["data"][0]["model"]["query"])
    silent = {series["tags"]["host"]: series["values"][-1][1] for series in found}
    assert silent == {"alive": 0, "dead": 1}


WINDOWS = [*map(parse_line, Path(__file__).with_name("windows.lp").read_text().splitlines())]
RATIOS = ANSWERS["ratios"]


def test_ratios_are_ratios_of_sums(influxdb):
    rows = write(influxdb, "windows", WINDOWS)
    for query, left_out in ((rows, set()), (rolled_up(influxdb, "windows"), NOT_HOURLY)):
        wanted = {title: pytest.approx(RATIOS[title]) for title in RATIOS.keys() - left_out}
        assert {title: shown_from_influxdb(PANELS[title], "", query) for title in wanted} == wanted


def test_nothing_is_divided_by_what_was_not_counted(influxdb):
    """InfluxQL divides by 0 as 0: a service without requests would be the cheapest."""
    idle = [point for point in WINDOWS if point.fields.get("requests") == 0]
    query = write(influxdb, "idle", idle)
    found = {
        title: shown_from_influxdb(PANELS[title], "", query)
        for title in ("home: Services: cost now ($currency)", *RATIOS)
        if title.startswith(("home", "production: Cost", "production: Paid", "production: Share"))
    }
    names = (
        "Cost ($currency)",
        "Paid while services wait ($currency)",
        "Share paid while services wait",
    )
    amounts = dict(zip((f"production: {name}" for name in names), (6.0, 6.0, 100.0), strict=True))
    assert {title: value for title, value in found.items() if value} == amounts
