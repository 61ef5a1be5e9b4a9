"""`costprobe influx setup` on a real InfluxDB 1.x and on a fake of the 2.x API."""

import json
import stat
import urllib.error

import pytest
from costprobe.core.clock import SystemClock
from costprobe.delivery.kinds import check_sink
from costprobe.ui.influx_setup.v2 import deadman_task, rollup_task
from fakes.influx_v2 import ORG_ID, TOKEN, FakeInfluxV2
from fakes.sending import config_of
from fakes.servers import InfluxDB, get, running

ADMIN_PASSWORD = "correct horse battery"  # noqa: S105 - of a server that lives for a test


@pytest.fixture
def costprobe(on_sink):
    """Runs `costprobe influx` with a sink; returns its output."""
    return lambda sink, *words, code=0: on_sink(sink, "influx", *words, code=code)


def v1(server, database, *more):
    return ['api = "v1"', f'url = "{server.url}"', f'database = "{database}"', *more]


def v2(server, *more):
    return ['api = "v2"', f'url = "{server.url}"', 'org = "ml"', 'bucket = "costprobe"', *more]


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def rows(server, text, **more):
    return [row for series in server.query(text, **more) for row in series.get("values", [])]


def query_as(server, user, password, text):
    """Return the response to a statement run as a user."""
    return json.loads(get(f"{server.url}/query", u=user, p=password, q=text))


def test_existing_retention_is_kept_and_an_old_query_replaced(costprobe, own_influxdb):
    own_influxdb.query('CREATE DATABASE "d" WITH DURATION 7d REPLICATION 1 NAME "autogen"')
    own_influxdb.query(
        'CREATE CONTINUOUS QUERY "costprobe_agent_hourly" ON "d" BEGIN SELECT max("rss_bytes")'
        ' INTO "x" FROM "agent" GROUP BY time(1h) END'
    )
    stdout = costprobe(v1(own_influxdb, "d"), "setup", "--apply")
    assert "exists: database d, kept for 1w" in stdout
    assert 'ALTER RETENTION POLICY "autogen" ON "d" DURATION 2592000s' in stdout
    assert "created: continuous query costprobe_agent_hourly, replaced" in stdout
    (policy,) = rows(own_influxdb, 'SHOW RETENTION POLICIES ON "d"')
    assert policy[1] == "168h0m0s"
    (queries,) = [s for s in own_influxdb.query("SHOW CONTINUOUS QUERIES") if s["name"] == "d"]
    assert "d_hourly.autogen.agent" in dict(queries["values"])["costprobe_agent_hourly"]
    sink = v1(own_influxdb, "d", 'retention_policy = "a month"')
    stdout = costprobe(sink, "setup", "--apply", "--keep", "31d")
    assert "created: retention policy a month, kept for 31d" in stdout
    found = {row[0]: row[1] for row in rows(own_influxdb, 'SHOW RETENTION POLICIES ON "d"')}
    assert found == {"autogen": "168h0m0s", "a month": "744h0m0s"}
    assert "nothing is missing" in costprobe(sink, "setup", "--keep", "31d")


@pytest.fixture
def guarded(tmp_path):
    """An InfluxDB 1.x with authentication, and the file with its administrator's password."""
    password = tmp_path / "admin"
    password.write_text(ADMIN_PASSWORD)
    with running(InfluxDB, tmp_path / "influx", "influxd") as server:
        server.query(f"CREATE USER boss WITH PASSWORD '{ADMIN_PASSWORD}' WITH ALL PRIVILEGES")
        server.stop()
    with running(InfluxDB, tmp_path / "influx", "influxd", auth=True) as server:
        yield server, ("--admin-user", "boss", "--admin-password-file", str(password))


def test_created_user_may_only_write(costprobe, guarded, tmp_path):
    server, admin = guarded
    secret = tmp_path / "influxdb.password"
    sink = v1(server, "d", 'user = "costprobe"', f'password = "file:{secret}"')
    shown = costprobe(sink, "setup", *admin)
    assert "would create: user costprobe" in shown
    assert not secret.exists()
    made = costprobe(sink, "setup", "--apply", *admin)
    password = secret.read_text().strip()
    assert len(password) >= 32
    assert mode_of(secret) == 0o600
    assert password not in made
    assert ADMIN_PASSWORD not in made
    settings = config_of("v1", server.url, user="costprobe", secret_file=secret)
    assert check_sink(settings, SystemClock()).ok
    for text in ('DROP DATABASE "d"', "SELECT * FROM d.autogen.device"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            query_as(server, "costprobe", password, text)
        with refused.value:
            assert refused.value.code == 403
    grants = query_as(server, "boss", ADMIN_PASSWORD, "SHOW GRANTS FOR costprobe")
    assert grants["results"][0]["series"][0]["values"] == [["d", "WRITE"]]
    assert "nothing is missing" in costprobe(sink, "setup", *admin)


def test_existing_password_file_is_used_and_wrong_credentials_are_an_error(
    costprobe, guarded, tmp_path
):
    server, admin = guarded
    secret, wrong = tmp_path / "influxdb.password", tmp_path / "wrong"
    secret.write_text("it's mine\n")
    wrong.write_text("not-the-password")
    sink = v1(server, "d", 'user = "costprobe"', f'password = "file:{secret}"')
    for words in ((), ("--apply", "--admin-user", "boss", "--admin-password-file", str(wrong))):
        printed = costprobe(sink, "setup", *words, code=1)
        assert "401" in printed
        assert "not-the-password" not in printed
    assert "belong together" in costprobe(sink, "setup", "--admin-user", "b", code=2)
    costprobe(sink, "setup", "--apply", *admin)
    assert secret.read_text() == "it's mine\n"
    settings = config_of("v1", server.url, user="costprobe", secret_file=secret)
    assert check_sink(settings, SystemClock()).ok


@pytest.fixture
def organization(tmp_path):
    token = tmp_path / "admin.token"
    token.write_text(TOKEN)
    with FakeInfluxV2() as server:
        yield server, ("--admin-token-file", str(token))


def test_v2_setup_creates_everything_once(costprobe, organization, tmp_path):
    server, admin = organization
    token = tmp_path / "write.token"
    sink = v2(server, f'token = "file:{token}"')
    shown = costprobe(sink, "setup", *admin)
    assert shown.count("would create: ") == 7
    assert server.changes == []
    assert not token.exists()
    made = costprobe(sink, "setup", "--apply", *admin)
    assert made.count("\ncreated: ") + made.startswith("created: ") == 7
    buckets = {one["name"]: one for one in server.all("buckets")}
    assert buckets["costprobe"]["retentionRules"] == [{"type": "expire", "everySeconds": 2592000}]
    assert buckets["costprobe_hourly"]["retentionRules"][0]["everySeconds"] == 1095 * 86400
    mapped = {(one["database"], one["bucketID"], one["default"]) for one in server.all("dbrps")}
    assert mapped == {(name, one["id"], True) for name, one in buckets.items()}
    assert [one["flux"] for one in server.all("tasks")] == [
        rollup_task("costprobe", "costprobe_hourly"),
        deadman_task("costprobe"),
    ]
    (granted,) = server.all("authorizations")
    resource = {"type": "buckets", "id": buckets["costprobe"]["id"], "orgID": ORG_ID}
    assert granted["permissions"] == [{"action": "write", "resource": resource}]
    assert token.read_text() == granted["token"] + "\n"
    assert mode_of(token) == 0o600
    assert granted["token"] not in made
    assert TOKEN not in made
    changes = len(server.changes)
    again = costprobe(sink, "setup", "--apply", *admin)
    assert "nothing is missing" in again
    assert len(server.changes) == changes


def test_v2_setup_replaces_an_older_task_and_keeps_another_retention(
    costprobe, organization, tmp_path
):
    server, admin = organization
    unwritable = v2(server, f'token = "file:{tmp_path}/nowhere/token"')
    stdout = costprobe(unwritable, "setup", "--apply", *admin, code=1)
    assert "nowhere/token: cannot be written" in stdout
    assert server.all("authorizations") == []
    costprobe(v2(server), "setup", "--apply", *admin)
    task = next(one for one in server.all("tasks") if one["name"] == "costprobe hourly")
    task["flux"] = 'option task = {name: "costprobe hourly", every: 1h}'
    stdout = costprobe(v2(server), "setup", "--apply", "--keep", "7d", *admin)
    assert "created: task costprobe hourly, replaced" in stdout
    assert task["flux"] == rollup_task("costprobe", "costprobe_hourly")
    assert "note: no token for the sink" in stdout
    assert "exists: bucket costprobe, kept for 30d (not kept for 1w; change it there)" in stdout


def test_wrong_token_organization_or_server_is_an_error_without_the_token(
    costprobe, organization, own_influxdb, tmp_path
):
    server, admin = organization
    wrong = tmp_path / "wrong"
    wrong.write_text("a-wrong-token")
    printed = costprobe(v2(server), "setup", "--admin-token-file", str(wrong), code=1)
    assert "401" in printed
    assert "a-wrong-token" not in printed
    other = [line.replace('"ml"', '"other"') for line in v2(server)]
    assert "organization not found" in costprobe(other, "setup", *admin, code=1)
    assert "404" in costprobe(v2(own_influxdb), "setup", *admin, code=1)
    assert "--admin-token-file" in costprobe(v2(server), "setup", code=2)
    away = [line.replace(server.url, "http://127.0.0.1:9") for line in v2(server)]
    assert "127.0.0.1:9" in costprobe(away, "setup", *admin, code=1)
    assert "--keep" in costprobe(v2(server), "setup", "--keep", "soon", *admin, code=2)
    several = [*v2(server), "[[sink]]", 'name = "b"', *v2(server)]
    assert "several sinks: influxdb, b" in costprobe(several, "setup", *admin, code=2)
    assert "unknown sink 'c'" in costprobe(several, "setup", "--sink", "c", *admin, code=2)


def test_tasks_are_written_to_files(costprobe, organization, tmp_path):
    server, _ = organization
    costprobe(v2(server), "setup", "--tasks", str(tmp_path / "flux"))
    assert (tmp_path / "flux" / "deadman.flux").read_text() == deadman_task("costprobe")
    text = (tmp_path / "flux" / "hourly.flux").read_text()
    assert text == rollup_task("costprobe", "costprobe_hourly")
    assert 'api = "v2"' in costprobe(
        v1(server, "d"), "setup", "--tasks", str(tmp_path / "f"), code=2
    )
