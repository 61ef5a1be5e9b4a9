"""The control socket answers who may ask, and nothing that is asked of it stops it."""

import os
import socket
import stat
import subprocess
import time
from pathlib import Path
from threading import Event as Flag

import pytest

from agent.alert import Silence
from agent.control_wire import MAX_LINE_BYTES, control_path, decoded, encoded
from agent.daemon.control import ControlServer
from agent.daemon.control_requests import handlers


class Alerting:
    """Silences in memory, and one notifier."""

    def __init__(self):
        self.kept = {}

    def add_silence(self, silence):
        if silence.ends_ns <= silence.starts_ns:
            raise ValueError("a silence must end after it begins")
        self.kept[silence.id] = silence

    def end_silence(self, silence_id):
        return self.kept.pop(silence_id)

    def silences(self):
        return tuple(self.kept.values())

    def send_test(self, notifier):
        if notifier not in {None, "ops"}:
            raise KeyError(notifier)
        return {"ops": ""}

    def retry_sink(self, sink):
        if sink not in {None, "influxdb"}:
            raise KeyError(sink)
        return ["influxdb"]

    def status(self):
        return {"state": "running"}

    def store_path(self):
        return Path("/var/lib/infercost/infercost.db")

    def keep(self, rows):
        self.kept.update({row.tags["batch"]: row for row in rows})


@pytest.fixture
def alerting():
    return Alerting()


@pytest.fixture
def server(tmp_path, alerting):
    def broken(_):
        raise RuntimeError("secret")

    made = ControlServer(
        tmp_path / "control.sock", {**handlers(alerting), "broken": broken}, Flag()
    )
    made.start()
    yield made
    made.close()


def said(server, line, *, ends=True):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(10)
        client.connect(str(server.path))
        client.sendall(line)
        if ends:
            client.shutdown(socket.SHUT_WR)
        answer = b""
        while part := client.recv(4096):
            answer += part
    return decoded(answer)


def asked(server, **request):
    return said(server, encoded(request))


SILENCE = {
    "id": "s1",
    "match": {"device": "gpu3"},
    "starts_ns": 1,
    "ends_ns": 9,
    "comment": "fan",
    "author": "me",
}


def test_a_silence_is_added_listed_and_ended(server, alerting):
    assert asked(server, do="silence", **SILENCE) == {"answer": SILENCE}
    assert alerting.kept == {"s1": Silence(**SILENCE)}
    assert asked(server, do="silences") == {"answer": [SILENCE]}
    assert asked(server, do="unsilence", id="s1") == {"answer": SILENCE}
    assert asked(server, do="unsilence", id="s1") == {"error": "there is no silence s1"}


def test_a_test_is_sent(server):
    assert asked(server, do="test") == {"answer": {"ops": ""}}
    assert asked(server, do="test", notifier="no") == {"error": "there is no notifier no"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"match": {}}, "1 to 20 labels"),
        ({"match": "gpu3"}, "1 to 20 labels"),
        ({"match": {str(n): "x" for n in range(21)}}, "1 to 20 labels"),
        ({"ends_ns": "late"}, "a beginning and an end"),
        ({"ends_ns": 1}, "must end after"),
        ({"comment": " "}, "a comment"),
        ({"comment": "x" * 501}, "500 characters"),
    ],
)
def test_a_bad_silence_is_refused(server, alerting, change, words):
    assert words in asked(server, do="silence", **{**SILENCE, **change})["error"]
    assert alerting.kept == {}


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"[]\n", b"{}\n", b"nonsense\n", b'{"do":"probe"}\n', b"\xff" * 99 + b"\n"]
)
def test_what_is_no_request_is_answered_so(server, line):
    assert "no such request" in said(server, line)["error"]
    assert asked(server, do="silences") == {"answer": []}


def test_too_much_is_cut_off(server):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(10)
        client.connect(str(server.path))
        try:
            client.sendall(b"x" * (4 * MAX_LINE_BYTES))
            client.recv(4096)
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert asked(server, do="silences") == {"answer": []}


def test_a_fault_of_ours_is_not_told_and_stops_nothing(server):
    answer = asked(server, do="broken")
    assert "secret" not in answer["error"]
    assert asked(server, do="silences") == {"answer": []}


def test_the_socket_is_for_its_user_alone_and_goes_with_the_server(server):
    mode = server.path.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    server.close()
    assert not server.path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user can be played by root alone")
def test_another_user_is_refused_even_where_the_file_lets_him_in(server):
    program = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        's.sendall(b\'{"do": "silences"}\\n\'); print(s.recv(4096).decode())\n'
    )
    server.path.chmod(0o666)
    for folder in server.path.parents:
        if folder.owner() == "root" and folder.name.startswith(("pytest", "popen", "test")):
            folder.chmod(0o755)
    command = ["/usr/bin/python3", "-c", program, str(server.path)]
    asked_by = {
        uid: subprocess.run(command, user=uid, capture_output=True, text=True, check=True).stdout
        for uid in (65534, 0)
    }
    assert "only the daemon's own user and root" in asked_by[65534]
    assert '"answer":[]' in asked_by[0]


def test_a_sink_is_tried_again_at_once_when_asked(server):
    assert asked(server, do="retry") == {"answer": ["influxdb"]}
    assert asked(server, do="retry", sink="influxdb") == {"answer": ["influxdb"]}
    assert asked(server, do="retry", sink="odd") == {"error": "there is no sink odd"}


def sweep_row(**more):
    row = {"measurement": "sweep", "tags": {"device": "gpu0", "batch": "8"}, "time_ns": 5}
    return {**row, "fields": {"latency_p50_ms": 3}, **more}


def test_a_sweep_that_a_command_measured_is_kept(server, alerting):
    # A daemon keeps nothing for another store.
    for store in (None, "/home/me/other.db"):
        assert asked(server, do="keep", store=store, rows=[sweep_row()]) == {"answer": 0}
    assert alerting.kept == {}
    here = str(alerting.store_path())
    assert asked(server, do="keep", store=here, rows=[sweep_row()]) == {"answer": 1}
    assert alerting.kept["8"].fields == {"latency_p50_ms": 3.0}


@pytest.mark.parametrize(
    "rows",
    [
        None,
        [],
        [3],
        [{}],
        [sweep_row(measurement="cost")],
        [sweep_row(fields={"odd": 1})],
        [sweep_row(tags=None)],
        [sweep_row()] * 65,
    ],
)
def test_rows_that_are_no_sweep_are_refused(server, alerting, rows):
    assert "error" in asked(server, do="keep", rows=rows)
    assert alerting.kept == {}


def test_a_dead_daemons_socket_is_replaced_and_a_living_ones_is_not(server, tmp_path):
    other = ControlServer(server.path, {}, Flag())
    with pytest.raises(OSError, match="another daemon"):
        other.start()
    dead = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(dead))
    replaced = ControlServer(dead, handlers(Alerting()), Flag())
    replaced.start()
    assert asked(replaced, do="silences") == {"answer": []}
    replaced.close()


def test_a_path_that_is_too_long_is_said(tmp_path):
    with pytest.raises(OSError, match="too long"):
        ControlServer(tmp_path / ("x" * 120), {}, Flag()).start()


def test_the_socket_is_where_systemd_says_or_beside_the_store(tmp_path):
    store = tmp_path / "infercost.db"
    assert control_path(store, {}) == tmp_path / "control.sock"
    found = control_path(store, {"RUNTIME_DIRECTORY": "/run/infercost:/run/other"})
    assert os.fspath(found) == "/run/infercost/control.sock"


def test_a_line_is_bounded():
    with pytest.raises(ValueError, match="bytes"):
        encoded({"text": "x" * MAX_LINE_BYTES})


def talk_for_ever(client):
    while True:
        client.sendall(b" ")
        time.sleep(0.01)


def test_a_client_that_never_ends_its_request_is_let_go_and_others_are_served(tmp_path, alerting):
    impatient = ControlServer(tmp_path / "c.sock", handlers(alerting), Flag(), client_s=0.3)
    impatient.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(10)
        client.connect(str(impatient.path))
        # Each byte comes soon after the last: a limit for each alone would never end it.
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            talk_for_ever(client)
    assert asked(impatient, do="silences") == {"answer": []}
    impatient.close()
