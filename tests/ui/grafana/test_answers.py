"""What every panel shows of rows with known answers, on a real InfluxDB, and which agents are silent now."""

import re
import time

import pytest
from costprobe.core.line_protocol import render
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from costprobe.ui.grafana.provisioning import INFLUXDB, alert_rules
from costprobe.ui.influx_setup.steps import ROLLED
from costprobe.ui.influx_setup.v1 import create_query
from fakes import known
from fakes.known import START_NS
from fakes.sending import send, sink_of
from fakes.shown import (
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


# Windows of five minutes by hand: one busy, one idle, one with half of the requests.
WINDOWS = (
    {"total": 6.0, "idle": 1.0, "requests": 8.0, "in": 4.0, "out": 2.0, "busy": (0.9, 300.0)},
    {"total": 6.0, "idle": 6.0, "requests": 0.0, "in": 0.0, "out": 0.0, "busy": (0.0, 300.0)},
    {"total": 6.0, "idle": 3.0, "requests": 4.0, "in": 2.0, "out": 4.0, "busy": (0.3, 600.0)},
)
# Of the 18.00 spent, 6 of 12 parts are for tokens in.
RATIOS = {
    "production: Cost per 1,000 requests ($currency)": {"h chat": 18.0 / 12 * 1000},
    "production: Cost per 1,000 inferences ($currency)": {"h chat": 18.0 / 12 * 1000},
    "production: Cost per million tokens ($currency)": {
        "h chat in": 18.0 * 6 / 12 / 6,
        "h chat out": 18.0 * 6 / 12 / 3,
    },
    "production: Cost ($currency)": 18.0,
    "production: Paid while services wait ($currency)": 10.0,
    "production: Share paid while services wait": 100 * 10 / 18,
    "production: Busy share of its devices": {"h chat": (0.9 * 300 + 0.3 * 600) / 1200},
    "energy: CO2-equivalent per kWh": 400.0,
    "energy: CO2-equivalent per kWh, with PUE": {"h": 400.0},
    "energy: Energy with CO2-equivalent": 100 / 3,
}


def windows():
    """Rows of a service by its windows, and of a device that knows its carbon half of the time."""
    tags = {"host": "h", "service": "chat", "basis": "serving", "currency": "USD", "plan": "owned"}
    for index, one in enumerate(WINDOWS):
        time_ns = known.START_NS + (index + 1) * 300 * NS_PER_S
        requests = one["requests"]
        fields = {
            "cost_total": one["total"],
            "cost_idle": one["idle"],
            "cost_idle_known": one["total"],
            "idle_share": one["idle"] / one["total"],
            "requests": requests,
            "inferences": requests,
            "tokens_in": requests * 5e5,
            "tokens_out": requests * 2.5e5,
            "cost_tokens_in": one["in"],
            "cost_tokens_out": one["out"],
            "window_s": 300.0,
        }
        if requests:
            fields["cost_per_request"] = fields["cost_per_inference"] = one["total"] / requests
            fields["cost_per_million_tokens_in"] = one["in"] / requests * 2
            fields["cost_per_million_tokens_out"] = one["out"] / requests * 4
        yield make_point("cost", tags, fields, time_ns)
        shares = dict(zip(("busy_share", "window_s"), one["busy"], strict=True))
        yield make_point("serving", {"host": "h", "service": "chat"}, shares, time_ns)
        drawn = {"energy_j": 3.6e6} | (
            {} if index else {"carbon_g": 400.0, "carbon_energy_j": 3.6e6}
        )
        yield make_point("device", {"host": "h", "device": "gpu0"}, drawn, time_ns)


def test_ratios_are_ratios_of_sums(influxdb):
    rows = write(influxdb, "windows", windows())
    for query, left_out in ((rows, set()), (rolled_up(influxdb, "windows"), NOT_HOURLY)):
        wanted = {title: pytest.approx(RATIOS[title]) for title in RATIOS.keys() - left_out}
        assert {title: shown_from_influxdb(PANELS[title], "", query) for title in wanted} == wanted


def test_nothing_is_divided_by_what_was_not_counted(influxdb):
    """InfluxQL divides by 0 as 0: a service without requests would be the cheapest."""
    idle = [point for point in windows() if point.fields.get("requests") == 0]
    query = write(influxdb, "idle", idle)
    found = {
        title: shown_from_influxdb(PANELS[title], "", query)
        for title in ("home: Services: cost now ($currency)", *RATIOS)
        if title.startswith(("home", "production: Cost", "production: Paid", "production: Share"))
    }
    amounts = {
        "production: Cost ($currency)": 6.0,
        "production: Paid while services wait ($currency)": 6.0,
    }
    amounts["production: Share paid while services wait"] = 100.0
    assert {title: value for title, value in found.items() if value} == amounts
