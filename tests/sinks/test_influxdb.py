"""Against real databases: what is stored arrives, once, whatever happens in between."""

import random
import signal
import threading

import pytest
from fakes.clock import FakeClock
from fakes.outbox import MemoryOutbox
from fakes.servers import InfluxDB, Scripted, running
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.lineprotocol import render, written_tags
from agent.model import Point
from agent.sinks.errors import Misconfigured, Rejected, RetryLater
from agent.sinks.pusher import Pusher
from agent.sinks.registry import build_sink, check_sink
from agent.sinks.settings import SinkSettings
from agent.storage.writer import Store

CREDENTIAL = "token"
FIELDS = {"f": 1.5, "i": 3, "b": True, "s": 'a "quoted" \\ text, with = all'}


def v1(server, database, **more):
    return SinkSettings(api="v1", url=server.url, database=database, **more)


def v2(url, **more):
    return SinkSettings(api="v2", url=url, org="o", bucket="b", **more)


def pusher_of(outbox, sink):
    return Pusher(
        "s",
        outbox,
        sink,
        threading.Event(),
        batch_points=500,
        flush_every_s=0.01,
        rng=random.Random(1),
    )


def lines(count, start=0):
    return [
        render(Point("m", {"host": f"h{i % 7}"}, {"v": i / 3, "n": i}, (start + i) * 10**6))
        for i in range(count)
    ]


def test_types_and_odd_text_come_back_equal(influxdb):
    sink = build_sink(v1(influxdb, influxdb.database))
    tags = {"host": "a b,c=d", "rack": "ü/é"}
    sink.send(render(Point("probe run", tags, FIELDS, 1_700_000_000_000_000_123)).encode())
    found = influxdb.points(influxdb.database)
    key = ("probe run", tuple(sorted(tags.items())), 1_700_000_000_000_000_123)
    assert found == {key: FIELDS}
    sink.close()


TEXT = st.text(max_size=40)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    tags=st.dictionaries(NAMES, TEXT, max_size=3),
    text=st.text(max_size=200),
    number=st.floats(allow_nan=False, allow_infinity=False),
    count=st.integers(-(2**63), 2**63 - 1),
    time_ns=st.integers(0, 4 * 10**18),
)
def test_no_text_is_refused_and_numbers_are_exact(influxdb, tags, text, number, count, time_ns):
    influxdb.query('DROP MEASUREMENT "m"', db=influxdb.database)
    point = Point("m", tags, {"text": text, "number": number, "count": count}, time_ns)
    sink = build_sink(v1(influxdb, influxdb.database))
    sink.send(render(point).encode())
    sink.close()
    ((key, fields),) = influxdb.points(influxdb.database).items()
    # Tags of the name of a field come back under another name: InfluxQL's business.
    if not {"text", "number", "count"} & set(written_tags(tags)):
        assert dict(key[1]) == written_tags(tags)
    assert key[2] == time_ns
    # JSON writes a large float without an exponent.
    assert float(fields["number"]) == number
    assert fields["count"] == count


def test_a_refused_point_is_put_aside_with_the_servers_reason(influxdb):
    stored = lines(900)
    stored[333] = 'm,host=h4 v="text where a number was" 333000000'
    outbox = MemoryOutbox(stored)
    pusher = pusher_of(outbox, build_sink(v1(influxdb, influxdb.database)))
    while outbox.cursor("s") < len(stored):
        pusher.step()
    ((line, reason),) = outbox.rejected
    assert line == stored[333]
    assert "conflict" in reason
    assert len(influxdb.points(influxdb.database)) == 899


def test_a_database_that_is_not_there_is_the_operators_and_nothing_is_lost(influxdb):
    outbox = MemoryOutbox(lines(10))
    pusher = pusher_of(outbox, build_sink(v1(influxdb, "nowhere")))
    pusher.step()
    assert pusher.status()["state"] == "misconfigured"
    assert outbox.cursor("s") == 0


def test_nothing_is_lost_or_doubled_when_influxdb_is_killed_in_the_middle(own_influxdb, tmp_path):
    own_influxdb.query('CREATE DATABASE "d"')
    store = Store.open(tmp_path / "store.db", FakeClock())
    store.register_sink("s", from_beginning=True)
    points = [
        Point("m", {"host": f"h{i % 7}"}, {"v": i / 3, "n": i}, (1 + i) * 10**9)
        for i in range(6000)
    ]
    sink = build_sink(v1(own_influxdb, "d", timeout_s=5.0))
    pusher = pusher_of(store, sink)
    for first in range(0, 6000, 1000):
        store.append(points[first : first + 1000])
        if first == 2000:
            own_influxdb.stop(signal.SIGKILL)
        if first == 4000:
            own_influxdb.start()
        pusher.step()
    while store.backlog("s").points:
        pusher.step()
    sink.close()
    expected = {("m", (("host", p.tags["host"]),), p.time_ns): dict(p.fields) for p in points}
    assert own_influxdb.points("d") == expected
    store.close()


def test_nothing_is_lost_or_doubled_through_the_v2_api(victoria, influxdb, tmp_path):
    """VictoriaMetrics drops a bad line in silence: the same lines also go to InfluxDB."""
    store = Store.open(tmp_path / "store.db", FakeClock())
    for sink_name in ("s", "judge"):
        store.register_sink(sink_name, from_beginning=True)
    start_ns = 1_700_000_000 * 10**9
    points = [
        Point("m", {"host": f"h{i % 7}"}, {"v": i / 3, "n": i}, start_ns + i * 10**9)
        for i in range(3000)
    ]
    sink = build_sink(v2(victoria.url, timeout_s=5.0))
    judge = build_sink(v1(influxdb, influxdb.database))
    pusher = pusher_of(store, sink)
    for first in range(0, 3000, 500):
        store.append(points[first : first + 500])
        if first == 1000:
            victoria.stop()
        if first == 2000:
            victoria.start()
        pusher.step()
    while store.backlog("s").points:
        pusher.step()
    judge.send("\n".join(row.line for row in store.rows_after(0, 3000)).encode())
    assert len(influxdb.points(influxdb.database)) == 3000
    expected = {}
    for point in points:
        labels, time_ms = (("db", ""), ("host", point.tags["host"])), point.time_ns // 10**6
        for field, value in point.fields.items():
            expected[f"m_{field}", labels[1:], time_ms] = pytest.approx(value)
    assert victoria.samples() == expected
    sink.close()
    judge.close()
    store.close()


def test_credentials_are_checked_and_a_new_password_is_picked_up(tmp_path):
    secret = tmp_path / "password"
    secret.write_text("wrong\n")
    with running(InfluxDB, tmp_path / "influx", "influxd") as server:
        server.query("CREATE USER boss WITH PASSWORD 'right' WITH ALL PRIVILEGES")
        server.query('CREATE DATABASE "d"')
        server.stop()
    with running(InfluxDB, tmp_path / "influx", "influxd", auth=True) as server:
        settings_now = v1(server, "d", user="boss", secret_file=secret)
        found = check_sink(settings_now)
        assert not found.ok
        assert "wrong" not in found.detail
        sink = build_sink(settings_now)
        with pytest.raises(Misconfigured):
            sink.send(lines(1)[0].encode())
        secret.write_text("right\n")
        sink.send(lines(1)[0].encode())
        sink.close()
        assert check_sink(settings_now).ok


def test_the_doctor_tells_a_database_that_is_there_from_one_that_is_not(influxdb):
    good = check_sink(v1(influxdb, influxdb.database))
    assert good.ok, good
    assert "1.6" in good.detail
    assert not check_sink(v1(influxdb, "nowhere")).ok
    assert influxdb.points(influxdb.database) == {}
    away = check_sink(SinkSettings(api="v1", url="http://127.0.0.1:9", database="d"))
    assert not away.ok
    assert away.fix


@pytest.mark.parametrize("api", ["v1", "v2"])
class TestScripted:
    """The same answers mean the same through both ways of writing."""

    def sink(self, api, url, **more):
        make = (
            v2
            if api == "v2"
            else lambda u, **m: SinkSettings(api="v1", url=u, database="d", user="u", **m)
        )
        return build_sink(make(url, **more))

    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            ((429, {"Retry-After": "3"}, b""), RetryLater),
            ((503, {}, b"busy"), RetryLater),
            ((400, {}, b'{"error":"bad","message":"bad"}'), Rejected),
            ((413, {}, b""), Rejected),
            ((401, {}, b""), Misconfigured),
            ((404, {}, b""), Misconfigured),
            ((204, {"Content-Length": "10"}, b""), None),
        ],
    )
    def test_answers(self, api, answer, error):
        with Scripted(lambda *_: answer) as server:
            sink = self.sink(api, server.url)
            if error is None:
                sink.send(b"m v=1 1")
            else:
                with pytest.raises(error) as caught:
                    sink.send(b"m v=1 1")
                if answer[0] == 429:
                    assert caught.value.after_s == 3
            sink.close()

    def test_a_slow_server_is_retried_later(self, api):
        release = threading.Event()

        def answer(*_):
            release.wait(20)
            return 204, {}, b""

        with Scripted(answer) as server:
            sink = self.sink(api, server.url, timeout_s=0.3)
            with pytest.raises(RetryLater):
                sink.send(b"m v=1 1")
            release.set()
            sink.close()

    def test_a_redirect_is_not_followed_and_no_secret_goes_there(self, api, tmp_path):
        secret = tmp_path / "secret"
        secret.write_text("canary-1234")
        with Scripted(lambda *_: (204, {}, b"")) as thief:
            answer = (307, {"Location": thief.url + "/write"}, b"")
            with Scripted(lambda *_: answer) as server:
                sink = self.sink(api, server.url, secret_file=secret)
                with pytest.raises(Misconfigured, match="redirect") as caught:
                    sink.send(b"m v=1 1")
                assert "canary" not in str(caught.value)
                assert len(server.requests) == 1
                sink.close()
            assert thief.requests == []

    def test_a_rotated_secret_is_read_again_after_a_refusal(self, api, tmp_path):
        import base64

        secret = tmp_path / "secret"
        secret.write_text("old")
        good = {"v2": "Token new", "v1": "Basic " + base64.b64encode(b"u:new").decode()}[api]

        def answer(_method, _path, headers, _body):
            named = {name.lower(): value for name, value in headers.items()}
            return (204 if named["authorization"] == good else 401), {}, b""

        with Scripted(answer) as server:
            sink = self.sink(api, server.url, secret_file=secret)
            with pytest.raises(Misconfigured):
                sink.send(b"m v=1 1")
            secret.write_text("new")
            sink.send(b"m v=1 1")
            sink.close()

    def test_what_is_sent_is_compressed_and_whole(self, api):
        import gzip

        with Scripted(lambda *_: (204, {}, b"")) as server:
            sink = self.sink(api, server.url)
            payload = "\n".join(lines(1000)).encode()
            sink.send(payload)
            sink.close()
        ((method, path, _, body),) = server.requests
        assert method == "POST"
        assert path.startswith("/write" if api == "v1" else "/api/v2/write")
        assert "precision=ns" in path
        assert gzip.decompress(body) == payload

    def test_a_server_that_is_away_is_retried_later(self, api):
        with pytest.raises(RetryLater):
            self.sink(api, "http://127.0.0.1:9").send(b"m v=1 1")

    def test_a_server_that_answers_rubbish_is_retried_later(self, api):
        import socket

        with socket.create_server(("127.0.0.1", 0)) as listener:

            def talk():
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

            thread = threading.Thread(target=talk)
            thread.start()
            sink = self.sink(api, f"http://127.0.0.1:{listener.getsockname()[1]}")
            with pytest.raises(RetryLater):
                sink.send(b"m v=1 1")
            thread.join()
            sink.close()


def test_a_secret_that_cannot_be_read_is_named_and_never_shown(tmp_path, monkeypatch):
    missing = v2("http://127.0.0.1:9", secret_file=tmp_path / "none")
    with pytest.raises(Misconfigured, match="none"):
        missing.secret()
    (tmp_path / "binary").write_bytes(b"canary\xff")
    with pytest.raises(Misconfigured) as caught:
        v2("http://127.0.0.1:9", secret_file=tmp_path / "binary").secret()
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    with pytest.raises(Misconfigured, match="LoadCredential"):
        v2("http://127.0.0.1:9", secret_credential=CREDENTIAL).secret()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / "token").write_text("t0k3n\n")
    assert v2("http://127.0.0.1:9", secret_credential=CREDENTIAL).secret() == "t0k3n"
