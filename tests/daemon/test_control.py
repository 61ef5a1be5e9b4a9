"""The control socket: access control, and robustness against malformed requests."""

import os
import socket
import stat
import subprocess
import time
from pathlib import Path
from threading import Event as Flag

import pytest
from costprobe.daemon.control import ControlServer, control_requests
from costprobe.daemon.control_protocol import MAX_LINE_BYTES, control_path, decoded, encoded

STATUS = {"state": "running"}


class Parts:
    """Silences and rows in memory, one notifier, and one sink."""

    store_path = Path("/var/lib/costprobe/costprobe.db")

    def __init__(self):
        self.kept = {}
        self.watching = self.notifying = self.delivery = self.ledger = self.annotations = self

    def handlers(self):
        return control_requests(lambda: self, lambda: STATUS)

    def add_silence(self, silence):
        if silence.ends_ns <= silence.starts_ns:
            raise ValueError("a silence must end after it begins")
        self.kept[silence.id] = silence

    def end_silence(self, silence_id):
        return self.kept.pop(silence_id)

    def add(self, annotation):
        self.kept[annotation["text"]] = annotation
        return {"time_ns": 1}

    def send_test(self, notifier):
        if notifier not in {None, "ops"}:
            raise KeyError(notifier)
        return {"ops": ""}

    def retry(self, sink):
        if sink not in {None, "influxdb"}:
            raise KeyError(sink)
        return ["influxdb"]

    def append(self, rows):
        self.kept.update({row.tags["batch"]: row for row in rows})


@pytest.fixture
def parts():
    return Parts()


@pytest.fixture
def server(tmp_path, parts):
    def broken(_):
        raise RuntimeError("secret")

    made = ControlServer(tmp_path / "control.sock", {**parts.handlers(), "broken": broken}, Flag())
    made.start()
    yield made
    made.close()


def sent(server, line, *, ends=True):
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


def request_to(server, **request):
    return sent(server, encoded(request))


SILENCE = {
    "id": "s1",
    "match": {"device": "gpu3"},
    "starts_ns": 1,
    "ends_ns": 9,
    "comment": "fan",
    "author": "me",
}


def test_requests_are_passed_to_the_parts(server, parts):
    added = {"text": "deployed v42", "author": "me"}
    for request, answer in (
        ({"do": "silence", **SILENCE}, {"answer": SILENCE}),
        ({"do": "unsilence", "id": "s1"}, {"answer": SILENCE}),
        ({"do": "unsilence", "id": "s1"}, {"error": "there is no silence s1"}),
        ({"do": "annotate", **added}, {"answer": {"time_ns": 1}}),
        ({"do": "test"}, {"answer": {"ops": ""}}),
        ({"do": "test", "notifier": "no"}, {"error": "there is no notifier no"}),
        ({"do": "retry"}, {"answer": ["influxdb"]}),
        ({"do": "retry", "sink": "influxdb"}, {"answer": ["influxdb"]}),
        ({"do": "retry", "sink": "odd"}, {"error": "there is no sink odd"}),
    ):
        assert request_to(server, **request) == answer
    assert parts.kept == {"deployed v42": added}


def test_invalid_silences_are_refused(server, parts):
    table = [
        ({"match": {}}, "1 to 20 labels"),
        ({"match": "gpu3"}, "1 to 20 labels"),
        ({"match": {str(n): "x" for n in range(21)}}, "1 to 20 labels"),
        ({"ends_ns": "late"}, "a start and an end"),
        ({"ends_ns": 1}, "must end after"),
        ({"ends_ns": 2**70}, "between 1970 and 2100"),
        ({"starts_ns": -1}, "between 1970 and 2100."[:-1]),
        ({"comment": " "}, "a comment"),
        ({"comment": "x" * 501}, "500 characters"),
    ]
    answers = {
        words: request_to(server, do="silence", **{**SILENCE, **change}) for change, words in table
    }
    assert [w for w, answer in answers.items() if w not in answer.get("error", "")] == []
    assert parts.kept == {}


def test_malformed_requests_are_answered_with_an_error(server):
    lines = [b"", b"\n", b"[]\n", b"{}\n", b"nonsense\n", b'{"do":"probe"}\n', b"\xff" * 99 + b"\n"]
    # This ended the thread of the socket.
    lines += [b"[" * 60_000 + b"\n", b'{"do":' + b"[" * 60_000 + b"\n"]
    answers = [sent(server, line).get("error", "") for line in lines]
    assert [text for text in answers if "unknown request" not in text] == []
    row = '{"measurement": "sweep", "tags": {}, "fields": {"batch": 1}, "time_ns": 1e999}'
    line = f'{{"do": "keep", "store": "{server.path}", "rows": [{row}]}}\n'.encode()
    assert "not a row of a measurement" in sent(server, line)["error"]
    # An internal error is not disclosed.
    assert "secret" not in request_to(server, do="broken")["error"]
    assert request_to(server, do="retry") == {"answer": ["influxdb"]}


def test_socket_has_mode_0600_and_is_removed_on_close(server):
    mode = server.path.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    server.close()
    assert not server.path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user can be played by root alone")
def test_another_user_is_refused_even_if_the_file_mode_allows_it(server):
    program = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        's.sendall(b\'{"do": "retry"}\\n\'); print(s.recv(4096).decode())\n'
    )
    server.path.chmod(0o666)
    for folder in server.path.parents:
        if folder.owner() == "root" and folder.name.startswith(("pytest", "popen", "test")):
            folder.chmod(0o755)
    command = ["/usr/bin/python3", "-c", program, str(server.path)]
    answer_by_uid = {
        uid: subprocess.run(command, user=uid, capture_output=True, text=True, check=True).stdout
        for uid in (65534, 0)
    }
    assert "only the daemon's own user and root" in answer_by_uid[65534]
    assert '"answer":["influxdb"]' in answer_by_uid[0]


def test_status_is_answered_without_an_active_configuration():
    starting = control_requests(lambda: None, lambda: STATUS)
    assert starting["status"]({}) == {**STATUS, "alerts": []}
    with pytest.raises(ValueError, match="starting or stopping"):
        starting["retry"]({})


def test_stale_socket_is_replaced_and_a_live_one_is_not(server, tmp_path):
    other = ControlServer(server.path, {}, Flag())
    with pytest.raises(OSError, match="another daemon"):
        other.start()
    dead = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(dead))
    replaced = ControlServer(dead, Parts().handlers(), Flag())
    replaced.start()
    assert request_to(replaced, do="retry") == {"answer": ["influxdb"]}
    replaced.close()


def test_paths_and_lines_have_a_maximum_length(tmp_path):
    store = tmp_path / "costprobe.db"
    assert control_path(store, {}) == tmp_path / "control.sock"
    found = control_path(store, {"RUNTIME_DIRECTORY": "/run/costprobe:/run/other"})
    assert os.fspath(found) == "/run/costprobe/control.sock"
    with pytest.raises(OSError, match="too long"):
        ControlServer(tmp_path / ("x" * 120), {}, Flag()).start()
    with pytest.raises(ValueError, match="bytes"):
        encoded({"text": "x" * MAX_LINE_BYTES})


def test_rows_of_a_sweep_are_stored_for_the_same_store_only_and_no_others(server, parts):
    def row(**more):
        tags = {"device": "gpu0", "batch": "8"}
        fields = {"latency_p50_ms": 3}
        return {"measurement": "sweep", "tags": tags, "fields": fields, "time_ns": 5, **more}

    here = str(parts.store_path)
    for store in (None, "/home/me/other.db"):
        assert request_to(server, do="keep", store=store, rows=[row()]) == {"answer": 0}
    odd = ({"measurement": "cost"}, {"fields": {"odd": 1}}, {"tags": None}, {"time_ns": 1e300})
    wrong = [[row(**more)] for more in (*odd, {"fields": {"batch": [[]]}})]
    for rows in (*wrong, None, [], [3], [{}], [row()] * 65):
        assert "error" in request_to(server, do="keep", store=here, rows=rows), rows
    assert parts.kept == {}
    assert request_to(server, do="keep", store=here, rows=[row()]) == {"answer": 1}
    assert parts.kept["8"].fields == {"latency_p50_ms": 3.0}


def send_indefinitely(client, part, pause_s):
    while True:
        client.sendall(part)
        time.sleep(pause_s)


def test_client_whose_request_is_too_long_or_never_ends_is_disconnected(tmp_path, parts):
    impatient = ControlServer(tmp_path / "c.sock", parts.handlers(), Flag(), client_s=0.3)
    impatient.start()
    # A timeout per read would never end the second.
    for part, pause_s in ((b"x" * MAX_LINE_BYTES, 0.0), (b" ", 0.01)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(10)
            client.connect(str(impatient.path))
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                send_indefinitely(client, part, pause_s)
    assert request_to(impatient, do="retry") == {"answer": ["influxdb"]}
    impatient.close()
