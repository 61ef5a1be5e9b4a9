"""`costprobe influx setup` on a real InfluxDB 1.x and on a fake of the 2.x API."""

import json
import stat
import urllib.error

import pytest
from costprobe.core.clock import SystemClock
from costprobe.delivery.kinds import check_sink
from costprobe.ui.influx_setup.v2 import deadman_task, rollup_task
from fakes.cli import session
from fakes.influx_v2 import ORG_ID, TOKEN, FakeInfluxV2
from fakes.sending import config_of
from fakes.servers import InfluxDB, get, running

ADMIN_PASSWORD = "correct horse battery"  # noqa: S105 - of a server that lives for a test
V1 = 'api = "v1"\nurl = "{url}"\ndatabase = "d"\n'
V2 = 'api = "v2"\nurl = "{url}"\norg = "ml"\nbucket = "costprobe"\n'


@pytest.fixture
def recorded(tmp_path):
    """Runs a recorded session with sinks at a server."""

    def run(name, server, *sinks):
        config = tmp_path / "costprobe.toml"
        config.write_text("".join(f"[[sink]]\n{sink.format(url=server.url)}" for sink in sinks))
        session(f"influx_{name}", config, (server.url, "http://influxdb:8086"))

    return run


def rows(server, text, **more):
    return [row for series in server.query(text, **more) for row in series.get("values", [])]


def query_as(server, user, password, text):
    """Return the response to a statement run as a user."""
    return json.loads(get(f"{server.url}/query", u=user, p=password, q=text))


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_existing_retention_is_kept_and_an_old_query_replaced(recorded, own_influxdb):
    own_influxdb.query('CREATE DATABASE "d" WITH DURATION 7d REPLICATION 1 NAME "autogen"')
    own_influxdb.query(
        'CREATE CONTINUOUS QUERY "costprobe_agent_hourly" ON "d" BEGIN SELECT max("rss_bytes")'
        ' INTO "x" FROM "agent" GROUP BY time(1h) END'
    )
    recorded("v1_existing", own_influxdb, V1)
    (queries,) = [s for s in own_influxdb.query("SHOW CONTINUOUS QUERIES") if s["name"] == "d"]
    assert "d_hourly.autogen.agent" in dict(queries["values"])["costprobe_agent_hourly"]
    recorded("v1_policy", own_influxdb, f'{V1}retention_policy = "a month"\n')
    found = {row[0]: row[1] for row in rows(own_influxdb, 'SHOW RETENTION POLICIES ON "d"')}
    assert found == {"autogen": "168h0m0s", "a month": "744h0m0s"}


@pytest.fixture
def guarded(tmp_path):
    """An InfluxDB 1.x with authentication."""
    with running(InfluxDB, tmp_path / "influx", "influxd") as server:
        server.query(f"CREATE USER boss WITH PASSWORD '{ADMIN_PASSWORD}' WITH ALL PRIVILEGES")
        server.stop()
    with running(InfluxDB, tmp_path / "influx", "influxd", auth=True) as server:
        yield server


def test_created_user_may_only_write_and_an_existing_password_is_used(recorded, guarded, tmp_path):
    """A random password is in no session; the administrator's is not either."""
    (tmp_path / "admin").write_text(ADMIN_PASSWORD)
    (tmp_path / "wrong").write_text("not-the-password")
    (tmp_path / "chosen").write_text("it's mine\n")
    for name in ("created", "chosen"):
        secret = tmp_path / name
        sink = f'{V1}user = "{name}"\npassword = "file:{secret}"\n'
        recorded(f"v1_password_{name}", guarded, sink)
        settings = config_of("v1", guarded.url, user=name, secret_file=secret)
        assert check_sink(settings, SystemClock()).ok
    assert secret.read_text() == "it's mine\n"
    password = (tmp_path / "created").read_text().strip()
    assert (len(password) >= 32, mode_of(tmp_path / "created")) == (True, 0o600)
    for text in ('DROP DATABASE "d"', "SELECT * FROM d.autogen.device"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            query_as(guarded, "created", password, text)
        with refused.value:
            assert refused.value.code == 403
    grants = query_as(guarded, "boss", ADMIN_PASSWORD, "SHOW GRANTS FOR created")
    assert grants["results"][0]["series"][0]["values"] == [["d", "WRITE"]]


@pytest.fixture
def organization(tmp_path):
    (tmp_path / "admin.token").write_text(TOKEN)
    (tmp_path / "wrong").write_text("a-wrong-token")
    with FakeInfluxV2() as server:
        yield server


def test_v2_setup_creates_everything_once(recorded, organization, tmp_path):
    token = tmp_path / "write.token"
    sink = f'{V2}token = "file:{token}"\n'
    recorded("v2_shown", organization, sink)
    assert (organization.changes, token.exists()) == ([], False)
    recorded("v2_applied", organization, sink)
    buckets = {one["name"]: one for one in organization.all("buckets")}
    kept_s = {name: one["retentionRules"][0]["everySeconds"] for name, one in buckets.items()}
    assert kept_s == {"costprobe": 2_592_000, "costprobe_hourly": 1095 * 86_400}
    mapped = {(one["database"], one["bucketID"]) for one in organization.all("dbrps")}
    assert mapped == {(name, one["id"]) for name, one in buckets.items()}
    tasks = [rollup_task("costprobe", "costprobe_hourly"), deadman_task("costprobe")]
    assert [one["flux"] for one in organization.all("tasks")] == tasks
    (granted,) = organization.all("authorizations")
    resource = {"type": "buckets", "id": buckets["costprobe"]["id"], "orgID": ORG_ID}
    assert granted["permissions"] == [{"action": "write", "resource": resource}]
    assert (token.read_text(), mode_of(token)) == (granted["token"] + "\n", 0o600)
    written = [(tmp_path / f"flux/{name}.flux").read_text() for name in ("hourly", "deadman")]
    assert written == tasks
    changes = len(organization.changes)
    recorded("v2_again", organization, sink)
    assert len(organization.changes) == changes


def test_v2_setup_replaces_an_older_task_and_keeps_another_retention(recorded, organization):
    recorded("v2_unwritable", organization, f'{V2}token = "file:/host/nowhere/token"\n')
    assert organization.all("authorizations") == []
    recorded("v2_without_a_token", organization, V2)
    task = next(one for one in organization.all("tasks") if one["name"] == "costprobe hourly")
    task["flux"] = 'option task = {name: "costprobe hourly", every: 1h}'
    recorded("v2_replaced", organization, V2)
    assert task["flux"] == rollup_task("costprobe", "costprobe_hourly")


def test_wrong_token_organization_or_server_is_an_error_without_the_token(
    recorded, organization, own_influxdb
):
    recorded("v2_wrong", organization, V2)
    recorded("v2_wrong_organization", organization, V2.replace("ml", "other"))
    recorded("v2_wrong_server", own_influxdb, V2)
    recorded("v2_away", organization, V2.format(url="http://127.0.0.1:9"))
    recorded("v2_several", organization, V2, f'name = "b"\n{V2}')
    recorded("v1_has_no_tasks", organization, V1)
