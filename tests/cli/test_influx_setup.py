"""`infercost influx setup`, on a real InfluxDB 1.x and on the HTTP API of 2.x."""

import json
import re
import stat
import urllib.error

import pytest
from fakes import day
from fakes.command import called
from fakes.influx_v2 import ORG_ID, TOKEN, InfluxV2
from fakes.sending import send
from fakes.servers import InfluxDB, get, running

from agent.influx_setup.flux import deadman_task, rollup_task
from agent.influx_setup.rollup import ROLLED
from agent.lineprotocol import render
from agent.model import NS_PER_S
from agent.sinks.registry import build_sink, check_sink
from agent.sinks.settings import SinkSettings

END_NS = 1_780_012_800 * NS_PER_S
ADMIN_PASSWORD = "correct horse battery"  # noqa: S105 - of a server that lives for a test


@pytest.fixture
def infercost(tmp_path):
    """Runs `infercost influx` with a sink; what it says and its exit code."""

    def run(sink, *arguments, code=0):
        config = tmp_path / "infercost.toml"
        config.write_text("[[sink]]\n" + "".join(f"{line}\n" for line in sink))
        return called(config, "influx", *arguments, code=code).output

    return run


def v1(server, database, *more):
    return ['api = "v1"', f'url = "{server.url}"', f'database = "{database}"', *more]


def v2(server, *more):
    return ['api = "v2"', f'url = "{server.url}"', 'org = "ml"', 'bucket = "infercost"', *more]


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def rows(server, text, **more):
    return [row for series in server.query(text, **more) for row in series.get("values", [])]


def asked_as(server, user, password, text):
    """What a user is answered, who is named in the address."""
    return json.loads(get(f"{server.url}/query", u=user, p=password, q=text))


def test_it_shows_then_makes_then_has_nothing_to_make(infercost, own_influxdb):
    sink = v1(own_influxdb, "cost of all")
    shown = infercost(sink, "setup")
    assert "would make: database cost of all, kept for 30d" in shown
    assert "nothing was changed" in shown
    assert rows(own_influxdb, "SHOW DATABASES") == []
    made = infercost(sink, "setup", "--apply")
    assert made.count("made: ") == 2 + len(ROLLED)
    policies = rows(own_influxdb, 'SHOW RETENTION POLICIES ON "cost of all"')
    assert [row[:2] + row[-1:] for row in policies] == [["autogen", "720h0m0s", True]]
    (policy,) = rows(own_influxdb, 'SHOW RETENTION POLICIES ON "cost of all_hourly"')
    assert policy[1] == "26280h0m0s"
    again = infercost(sink, "setup", "--apply")
    assert "nothing is missing" in again
    assert "made" not in again
    assert "is there: database cost of all, kept for 30d" in again


def test_the_continuous_queries_say_what_the_day_came_to_by_the_hour(infercost, own_influxdb):
    sink = v1(own_influxdb, "d")
    infercost(sink, "setup", "--apply", "--keep", "5200d")
    writer = build_sink(SinkSettings(api="v1", url=own_influxdb.url, database="d", timeout_s=60))
    points = day.points(END_NS)
    for first in range(0, len(points), 5000):
        send(writer, "\n".join(render(p) for p in points[first : first + 5000]).encode())
    writer.close()
    span = f"WHERE time >= {END_NS - day.DAY_S * NS_PER_S} AND time < {END_NS}"
    (queries,) = [s for s in own_influxdb.query("SHOW CONTINUOUS QUERIES") if s["name"] == "d"]
    assert len(queries["values"]) == len(ROLLED)
    for _, text in queries["values"]:
        # The server runs it at the full hour, over the last ones: here it is asked for the day.
        statement = re.search(r" BEGIN (.+) END$", text)[1]
        own_influxdb.query(statement.replace("GROUP BY", f"{span} GROUP BY"))
    for field, measurement in (("energy_j", "device"), ("cost", "device"), ("cost", "allocation")):
        ask = f'SELECT sum("{field}") FROM "{measurement}" {span}'  # noqa: S608 - our own words
        (found,) = rows(own_influxdb, ask, db="d_hourly")
        (expected,) = rows(own_influxdb, ask, db="d")
        assert found[1] == pytest.approx(expected[1])
    hourly = own_influxdb.points("d_hourly")
    assert {name for name, _, _ in hourly} == set(ROLLED)
    one_hour_ns = END_NS - 3600 * NS_PER_S
    powers = [
        p.fields["power_w"]
        for p in points
        if p.measurement == "device"
        and (p.tags["host"], p.tags["device"]) == (day.HOSTS[0], "gpu0")
        and one_hour_ns <= p.time_ns < END_NS
    ]
    (mean,) = [
        fields["power_w"]
        for (name, tags, time_ns), fields in hourly.items()
        if name == "device"
        and time_ns == one_hour_ns
        and {("host", day.HOSTS[0]), ("device", "gpu0")} <= set(tags)
    ]
    assert mean == pytest.approx(sum(powers) / len(powers))


def test_what_is_there_is_kept_and_an_old_query_is_replaced(infercost, own_influxdb):
    own_influxdb.query('CREATE DATABASE "d" WITH DURATION 7d REPLICATION 1 NAME "autogen"')
    own_influxdb.query(
        'CREATE CONTINUOUS QUERY "infercost_agent_hourly" ON "d" BEGIN SELECT max("rss_bytes")'
        ' INTO "x" FROM "agent" GROUP BY time(1h) END'
    )
    said = infercost(v1(own_influxdb, "d"), "setup", "--apply")
    assert "is there: database d, kept for 1w" in said
    assert 'ALTER RETENTION POLICY "autogen" ON "d" DURATION 2592000s' in said
    assert "made: continuous query infercost_agent_hourly, anew" in said
    (policy,) = rows(own_influxdb, 'SHOW RETENTION POLICIES ON "d"')
    assert policy[1] == "168h0m0s"
    (queries,) = [s for s in own_influxdb.query("SHOW CONTINUOUS QUERIES") if s["name"] == "d"]
    assert "d_hourly.autogen.agent" in dict(queries["values"])["infercost_agent_hourly"]


def test_a_policy_of_another_name_is_made_beside_those_there(infercost, own_influxdb):
    own_influxdb.query('CREATE DATABASE "d"')
    sink = v1(own_influxdb, "d", 'retention_policy = "a month"')
    said = infercost(sink, "setup", "--apply", "--keep", "31d")
    assert "made: retention policy a month, kept for 31d" in said
    found = {row[0]: row[1] for row in rows(own_influxdb, 'SHOW RETENTION POLICIES ON "d"')}
    assert found == {"autogen": "0s", "a month": "744h0m0s"}
    assert "nothing is missing" in infercost(sink, "setup", "--keep", "31d")


@pytest.fixture
def guarded(tmp_path):
    """An InfluxDB 1.x that asks who is there, and the file with its administrator's password."""
    password = tmp_path / "admin"
    password.write_text(ADMIN_PASSWORD)
    with running(InfluxDB, tmp_path / "influx", "influxd") as server:
        server.query(f"CREATE USER boss WITH PASSWORD '{ADMIN_PASSWORD}' WITH ALL PRIVILEGES")
        server.stop()
    with running(InfluxDB, tmp_path / "influx", "influxd", auth=True) as server:
        yield server, ("--admin-user", "boss", "--admin-password-file", str(password))


def test_the_sinks_user_may_write_and_nothing_else(infercost, guarded, tmp_path):
    server, admin = guarded
    secret = tmp_path / "influxdb.password"
    sink = v1(server, "d", 'user = "infercost"', f'password_file = "{secret}"')
    shown = infercost(sink, "setup", *admin)
    assert "would make: user infercost" in shown
    assert not secret.exists()
    made = infercost(sink, "setup", "--apply", *admin)
    password = secret.read_text().strip()
    assert len(password) >= 32
    assert mode_of(secret) == 0o600
    assert password not in made
    assert ADMIN_PASSWORD not in made
    settings = SinkSettings(
        api="v1", url=server.url, database="d", user="infercost", secret_file=secret
    )
    assert check_sink(settings).ok
    for text in ('DROP DATABASE "d"', "SELECT * FROM d.autogen.device"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            asked_as(server, "infercost", password, text)
        with refused.value:
            assert refused.value.code == 403
    told = asked_as(server, "boss", ADMIN_PASSWORD, "SHOW GRANTS FOR infercost")
    assert told["results"][0]["series"][0]["values"] == [["d", "WRITE"]]
    assert "nothing is missing" in infercost(sink, "setup", *admin)


def test_a_password_that_is_there_becomes_the_users(infercost, guarded, tmp_path):
    server, admin = guarded
    secret = tmp_path / "influxdb.password"
    secret.write_text("it's mine\n")
    sink = v1(server, "d", 'user = "infercost"', f'password_file = "{secret}"')
    infercost(sink, "setup", "--apply", *admin)
    assert secret.read_text() == "it's mine\n"
    settings = SinkSettings(
        api="v1", url=server.url, database="d", user="infercost", secret_file=secret
    )
    assert check_sink(settings).ok


def test_without_its_credentials_it_says_so_and_names_no_secret(infercost, guarded, tmp_path):
    server, _ = guarded
    wrong = tmp_path / "wrong"
    wrong.write_text("not-the-password")
    told = infercost(v1(server, "d"), "setup", code=1)
    assert "401" in told
    told = infercost(
        v1(server, "d"),
        *("setup", "--apply", "--admin-user", "boss", "--admin-password-file", str(wrong)),
        code=1,
    )
    assert "401" in told
    assert "not-the-password" not in told
    assert "belong together" in infercost(v1(server, "d"), "setup", "--admin-user", "b", code=2)


@pytest.fixture
def organization(tmp_path):
    token = tmp_path / "admin.token"
    token.write_text(TOKEN)
    with InfluxV2() as server:
        yield server, ("--admin-token-file", str(token))


def test_buckets_mappings_tasks_and_a_token_are_made_once(infercost, organization, tmp_path):
    server, admin = organization
    token = tmp_path / "write.token"
    sink = v2(server, f'token_file = "{token}"')
    shown = infercost(sink, "setup", *admin)
    assert shown.count("would make: ") == 7
    assert server.changes == []
    assert not token.exists()
    made = infercost(sink, "setup", "--apply", *admin)
    assert made.count("\nmade: ") + made.startswith("made: ") == 7
    buckets = {one["name"]: one for one in server.all("buckets")}
    assert buckets["infercost"]["retentionRules"] == [{"type": "expire", "everySeconds": 2592000}]
    assert buckets["infercost_hourly"]["retentionRules"][0]["everySeconds"] == 1095 * 86400
    mapped = {(one["database"], one["bucketID"], one["default"]) for one in server.all("dbrps")}
    assert mapped == {(name, one["id"], True) for name, one in buckets.items()}
    assert [one["flux"] for one in server.all("tasks")] == [
        rollup_task("infercost", "infercost_hourly", 6 * 3600),
        deadman_task("infercost", 300),
    ]
    (granted,) = server.all("authorizations")
    resource = {"type": "buckets", "id": buckets["infercost"]["id"], "orgID": ORG_ID}
    assert granted["permissions"] == [{"action": "write", "resource": resource}]
    assert token.read_text() == granted["token"] + "\n"
    assert mode_of(token) == 0o600
    assert granted["token"] not in made
    assert TOKEN not in made
    changes = len(server.changes)
    again = infercost(sink, "setup", "--apply", *admin)
    assert "nothing is missing" in again
    assert len(server.changes) == changes


def test_a_task_of_an_older_version_is_brought_up_to_date(infercost, organization, tmp_path):
    server, admin = organization
    infercost(v2(server), "setup", "--apply", *admin)
    task = next(one for one in server.all("tasks") if one["name"] == "infercost hourly")
    task["flux"] = 'option task = {name: "infercost hourly", every: 1h}'
    said = infercost(v2(server), "setup", "--apply", *admin)
    assert "made: task infercost hourly, anew" in said
    assert task["flux"] == rollup_task("infercost", "infercost_hourly", 6 * 3600)
    assert "note: no token for the sink" in said


def test_another_retention_is_told_and_kept(infercost, organization):
    server, admin = organization
    infercost(v2(server), "setup", "--apply", *admin)
    said = infercost(v2(server), "setup", "--apply", "--keep", "7d", *admin)
    assert "is there: bucket infercost, kept for 30d (not kept for 1w; change it there)" in said


def test_a_token_that_cannot_be_kept_is_not_asked_for(infercost, organization, tmp_path):
    server, admin = organization
    sink = v2(server, f'token_file = "{tmp_path}/nowhere/token"')
    said = infercost(sink, "setup", "--apply", *admin, code=1)
    assert "nowhere/token: cannot be written" in said
    assert server.all("authorizations") == []


def test_a_wrong_token_or_organization_or_server_is_told_without_the_token(
    infercost, organization, own_influxdb, tmp_path
):
    server, admin = organization
    wrong = tmp_path / "wrong"
    wrong.write_text("a-wrong-token")
    told = infercost(v2(server), "setup", "--admin-token-file", str(wrong), code=1)
    assert "401" in told
    assert "a-wrong-token" not in told
    other = [line.replace('"ml"', '"other"') for line in v2(server)]
    assert "organization not found" in infercost(other, "setup", *admin, code=1)
    assert "404" in infercost(v2(own_influxdb), "setup", *admin, code=1)
    assert "--admin-token-file" in infercost(v2(server), "setup", code=2)
    away = [line.replace(server.url, "http://127.0.0.1:9") for line in v2(server)]
    assert "127.0.0.1:9" in infercost(away, "setup", *admin, code=1)


def test_a_bad_duration_and_a_missing_sink_are_told(infercost, organization):
    server, admin = organization
    assert "--keep: " in infercost(v2(server), "setup", "--keep", "soon", *admin, code=2)
    several = [*v2(server), "[[sink]]", 'name = "b"', *v2(server)]
    assert "several sinks: influxdb, b" in infercost(several, "setup", *admin, code=2)
    assert "no sink 'c'" in infercost(several, "setup", "--sink", "c", *admin, code=2)


def test_the_tasks_are_written_for_who_makes_them_otherwise(infercost, organization, tmp_path):
    server, _ = organization
    infercost(v2(server), "tasks", str(tmp_path / "flux"))
    assert (tmp_path / "flux" / "deadman.flux").read_text() == deadman_task("infercost", 300)
    text = (tmp_path / "flux" / "hourly.flux").read_text()
    assert text == rollup_task("infercost", "infercost_hourly", 6 * 3600)
    assert 'api = "v2"' in infercost(v1(server, "d"), "tasks", str(tmp_path / "f"), code=2)
