"""A secret is sent only to its own server: every place for a secret holds a canary value.

The daemon runs with a canary in each such place, against servers that refuse, repeat what they were
sent, and take; then everything that came out of it is searched.
"""

import base64
import os
import re
import urllib.parse
from contextlib import ExitStack

import pytest
from fakes.inference_server import InferenceServer, generating
from fakes.servers import Scripted
from fakes.watched_daemon import WatchedDaemon

PLACES = [
    "alertmanager",
    "apprise",
    "chat",
    "environment",
    "hook-address",
    "hook-key",
    "hook-token",
    "price",
    "proxy",
    "refused-chat",
    "v1",
    "v2",
]
# The credential that the rejecting server would accept.
OTHER = "another"
CANARY = {place: f"canary-{place}-7f3a91" for place in PLACES}
# The middle of each secret is searched too, which finds it in other encodings.
MARK = "canary-"
OWN_COMMAND = re.compile(rb"-m\0costprobe\0")
COMMANDS = [
    ["config", "check"],
    ["config", "show"],
    ["status"],
    ["status", "--json"],
    ["doctor"],
    ["doctor", "--json"],
    ["alerts"],
    ["alerts", "--json"],
    ["alerts", "test"],
    ["export"],
    ["export", "--format", "csv"],
    ["price"],
    ["sink", "status", "--json"],
    ["sink", "rejected", "--json"],
    ["sink", "retry"],
    ["store", "check"],
    ["trend", "--json"],
    ["probe", "chat", "--json"],
]


def forms_of(secret):
    """A secret in plain form and as encoded in headers and URLs."""
    yield secret.encode()
    yield urllib.parse.quote(secret, safe="").encode()
    for user in ("", "user:"):
        coded = base64.b64encode((user + secret).encode())
        # The last base64 characters depend on the bytes that follow.
        yield coded.rstrip(b"=")[:-2]


FORMS = [form for secret in CANARY.values() for form in forms_of(secret)]


def found_in(content):
    return [form.decode() for form in FORMS if form in content]


def repeating(status):
    """A server that rejects requests and repeats their content, as a debugging proxy does."""

    def answer(method, path, headers, _):
        content = f"refused {method} {path} {headers}"
        return status, {"Content-Type": "text/plain"}, content.encode()

    return Scripted(answer)


def taking(body=b""):
    return Scripted(lambda *_: (204 if not body else 200, {}, body))


CONFIG = """
[telemetry]
every = "100ms"
aggregate = "500ms"
gpus = false
[probing]
duty = 1
[[probe]]
name = "chat"
kind = "openai"
url = "{chat}/v1"
model = "m"
requests = 2
warmup_requests = 0
energy = false
every = "1h"
token_file = "{secrets}/chat"
[[probe]]
name = "refused-chat"
kind = "openai"
url = "{refused_chat}/v1"
model = "m"
requests = 2
warmup_requests = 0
energy = false
every = "1h"
token_credential = "refused-chat"
[[price]]
plan = "spot"
url = "{price}?key={price_key}"
[[sink]]
name = "one"
api = "v1"
url = "{v1}"
database = "d"
user = "user"
password_file = "{secrets}/v1"
flush_every = "200ms"
[[sink]]
name = "two"
api = "v2"
url = "{v2}"
bucket = "b"
token_credential = "v2"
flush_every = "200ms"
[[notifier]]
name = "hook"
kind = "webhook"
url_file = "{secrets}/hook-address"
key_credential = "hook-key"
token_file = "{secrets}/hook-token"
[[notifier]]
name = "am"
kind = "alertmanager"
url = "{alertmanager}"
user = "user"
password_credential = "alertmanager"
[[notifier]]
name = "chatroom"
kind = "apprise"
url_file = "{secrets}/apprise"
timeout = "10s"
"""


class Bench:
    """The servers, the daemon, and its output."""

    def __init__(self, folder):
        self.folder = folder
        self.servers = {
            "v1": repeating(401),
            "v2": repeating(401),
            "hook": taking(),
            "alertmanager": repeating(401),
            "apprise": repeating(500),
            "price": taking(b"0.5"),
            "chat": InferenceServer(generating(token=CANARY["chat"])),
            "refused_chat": InferenceServer(generating(token=OTHER)),
        }
        self.output = {}

    def places(self):
        """Write the secrets into their files; return their values for the configuration."""
        folder, urls = self.folder / "secrets", {k: s.url for k, s in self.servers.items()}
        folder.mkdir(mode=0o700)
        for place, secret in CANARY.items():
            (folder / place).write_text(secret + "\n")
        (folder / "hook-address").write_text(f"{urls['hook']}/{CANARY['hook-address']}")
        host = urls["apprise"].removeprefix("http://")
        (folder / "apprise").write_text(f"json://user:{CANARY['apprise']}@{host}/x")
        return {**urls, "secrets": folder, "price_key": CANARY["price"]}

    def env(self):
        return {
            "CREDENTIALS_DIRECTORY": str(self.folder / "secrets"),
            "MY_SERVICE_TOKEN": CANARY["environment"],
            "DATABASE": f"postgresql://user:{CANARY['environment']}@db/x",
            # A scheme that no server of the test uses.
            "FTP_PROXY": f"http://user:{CANARY['proxy']}@127.0.0.1:9",
        }

    def work(self):
        """Run all functions of the daemon and the commands; keep their output."""
        text = CONFIG.format(**self.places())
        with WatchedDaemon(self.folder, text, self.env()) as daemon:
            daemon.wait_for(
                lambda: all(
                    server.calls if isinstance(server, InferenceServer) else server.requests
                    for name, server in self.servers.items()
                    if name in ("v1", "v2", "price", "chat", "refused_chat")
                )
            )
            for arguments in COMMANDS:
                self.output[" ".join(arguments)] = daemon.look(*arguments)
            daemon.wait_for(lambda: b"refused-chat" in daemon.look("status"))
            self.files = {
                str(path.relative_to(self.folder)): path.read_bytes()
                for path in daemon.store.parent.iterdir()
                if path.is_file()
            }
            self.daemon = daemon
        self.output["the log"] = daemon.output.read_bytes()
        return self


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    made = Bench(tmp_path_factory.mktemp("canaries"))
    with ExitStack() as stack:
        for server in made.servers.values():
            stack.enter_context(server)
        yield made.work()


def received_by(server):
    """The requests that a server received: paths and headers apart from bodies."""
    if isinstance(server, InferenceServer):
        return "".join(f"{c.path} {dict(c.headers)}" for c in server.calls).encode(), b"".join(
            c.raw_body for c in server.calls
        )
    heads = "".join(f"{path} {headers}" for _, path, headers, _ in server.requests)
    return heads.encode(), b"".join(request[3] for request in server.requests)


def test_each_server_received_only_its_own_secret(bench):
    """Each secret was sent to its server; otherwise the other tests would be empty."""
    own = {"hook": {"hook-address", "hook-token"}, "refused_chat": {"refused-chat"}}
    for name, server in bench.servers.items():
        heads, _ = received_by(server)
        given = {place for place in PLACES if any(f in heads for f in forms_of(CANARY[place]))}
        assert given == own.get(name, {name}), name


def test_no_request_body_contains_a_secret(bench):
    for name, server in bench.servers.items():
        _, bodies = received_by(server)
        assert found_in(bodies) == [], name
        assert MARK.encode() not in bodies


def test_no_command_or_log_shows_a_secret(bench):
    for source, content in bench.output.items():
        assert content, source
        assert found_in(content) == [], source


def test_commands_report_the_failures(bench):
    """The texts that could contain a secret are present."""
    status = bench.output["status"].decode()
    assert "unauthorized" in status or "check the token" in status
    test_alert = bench.output["alerts test"].decode()
    assert "HTTP 401" in test_alert
    assert "apprise" in test_alert
    assert 'refused-chat"' in bench.output["config show"].decode()
    assert "key=***" in bench.output["config show"].decode()


def test_store_contains_no_secret(bench):
    assert any(name.endswith("-wal") for name in bench.files)
    for name, content in bench.files.items():
        assert found_in(content) == [], name


def test_no_command_line_contains_a_secret(bench):
    commands = {seen.command for seen in bench.daemon.seen.values()}
    for part in (b"costprobe.adapters.sensors.child.main", b"probes", b"-m\0costprobe\0"):
        assert any(part in command for command in commands), part
    assert [command for command in commands if MARK.encode() in command] == []


def children(bench):
    """The processes that `costprobe` started, without itself and the tests' servers."""
    for seen in bench.daemon.seen.values():
        if not OWN_COMMAND.search(seen.command):
            yield seen


def test_no_child_has_a_secret_in_its_environment(bench):
    found = list(children(bench))
    assert len(found) >= 4
    for seen in found:
        assert b"PATH=" in seen.environ
        assert found_in(seen.environ) == [], seen.command
        assert b"CREDENTIALS_DIRECTORY=" not in seen.environ, seen.command


def test_no_process_can_leave_a_core_dump(bench):
    for seen in (bench.daemon.seen[bench.daemon.pid], *children(bench)):
        assert seen.core_limit == "0 0", seen.command
        assert seen.dump_filter == "00000000", seen.command


def test_store_is_readable_only_by_its_owner(bench):
    folder = bench.daemon.store.parent
    # The service has a folder with mode 0750 instead, for the members of its group.
    assert folder.stat().st_mode & 0o077 == 0
    for path in [folder, *folder.iterdir()]:
        assert path.stat().st_mode & 0o027 == 0, path
        assert path.stat().st_uid == os.geteuid()
