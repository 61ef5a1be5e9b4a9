"""What every panel shows of rows with known answers, on a real InfluxDB, and which agents are silent now."""

import time

import pytest
from costprobe.core.line_protocol import render
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from costprobe.ui.grafana.provisioning import INFLUXDB, alert_rules
from fakes import known
from fakes.sending import send, sink_of
from fakes.shown import in_influxql, panels_of, shown_from_influxdb, wrong_panels

PANELS = panels_of(INFLUXDB)


def write(server, database, points):
    server.query(f'CREATE DATABASE "{database}"')
    sink = sink_of("v1", server.url, database=database, timeout_s=60)
    send(sink, "\n".join(render(point) for point in points).encode())
    sink.close()


@pytest.fixture(scope="module")
def query(influxdb):
    write(influxdb, "known", known.points())
    return lambda text: influxdb.query(text, db="known")


def test_every_panel_shows_its_known_answer(query):
    shown = {title: shown_from_influxdb(panel, title, query) for title, panel in PANELS.items()}
    assert wrong_panels(INFLUXDB, shown) == {}
    assert len(shown) > 110


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
    write(influxdb, "now", rows)

    def query(text):
        return influxdb.query(text, db="now")

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
