"""A secret is sent only to its own server: every place for a secret holds a canary value.

The daemon runs with a canary in each such place, against servers that refuse, repeat what they were
sent, and take; then everything that came out of it is searched.
"""

import base64
import itertools
import json
import re
import typing
import urllib.parse
from contextlib import ExitStack
from pathlib import Path

import pytest
from costprobe.adapters.http.access import Secret
from costprobe.configuration import Config, load
from fakes.inference_server import InferenceServer, generating
from fakes.servers import Scripted, answered, free_port
from fakes.watched_daemon import WatchedDaemon
from pydantic import BaseModel

# A command takes 0.1 s of a processor.
LOOK_EVERY_S = 0.5
# The credential that the rejecting server would accept.
OTHER = "another"
# The middle of each secret is searched too, which finds it in other encodings.
MARK = "canary-"
OWN_COMMAND = re.compile(rb"-m\0costprobe\0")
COMMANDS = """
config check; config show; status; status --json; doctor --json; alerts; alerts --json; alerts test
export; export --format csv; price; sink rejected --json; sink retry
store check; budget; forecast; trend --json; spend --fleet; probe chat --json
"""


def forms_of(secret):
    """A secret in plain form, as encoded in headers and URLs, and in hexadecimal."""
    yield secret.encode()
    yield secret.upper().encode()
    yield urllib.parse.quote(secret, safe="").encode()
    yield secret.encode().hex().encode()
    for user in ("", "user:"):
        coded = base64.b64encode((user + secret).encode())
        # The last base64 characters depend on the bytes that follow.
        yield coded.rstrip(b"=")[:-2]


def found_in(content):
    return [form.decode() for form in FORMS if form in content]


HIDDEN = [
    str,
    str.upper,
    lambda text: text.encode().hex(),
    lambda text: base64.b64encode(text.encode()).decode(),
]


def hidden(text):
    """A text in the forms of HIDDEN, a different one first at each call."""
    HIDDEN.append(HIDDEN.pop(0))
    return " ".join(hide(text) for hide in HIDDEN)


def repeating(status):
    """A server that rejects requests and repeats their content, as a debugging proxy does."""

    def answer(method, path, headers, _):
        values = (value.partition(" ")[2] or value for value in headers.values())
        sent = " ".join([path, *values])
        content = hidden(sent) if method == "POST" else f"refused {method} {path} {headers}"
        return status, {"Content-Type": "text/plain"}, content.encode()

    return Scripted(answer)


def echoing_chat(call):
    """A server whose models, version and errors are the token that it received."""
    token = (call.headers.get("Authorization") or "").removeprefix("Bearer ")
    if call.method == "GET":
        call.json({"data": [{"id": token.upper()}], "version": token.encode().hex()}, Server=token)
    else:
        call.json({"error": {"message": hidden(token)}}, 500, Server=hidden(token))


def metrics_of(token):
    """Metrics of vLLM with the token as the names of its models, except of one."""
    names = ["another", token, token.upper(), token.encode().hex()]
    lines = [
        f'vllm:{metric}{{model_name="{name}"}} {{number}}'
        for name in names
        for metric in ("request_success_total", "prompt_tokens_total", "generation_tokens_total")
    ]
    return "\n".join(lines) + "\n"


def counting():
    """A server that names its models after the token, and counts a request at each scrape."""
    number = itertools.count(1)

    def answer(_, __, headers, ___):
        token = headers.get("Authorization", "").removeprefix("Bearer ")
        return 200, {}, metrics_of(token).replace("{number}", str(next(number))).encode()

    return Scripted(answer)


def taking(body=b""):
    return Scripted(lambda *_: (204 if not body else 200, {}, body))


CONFIG = Path(__file__).with_name("canaries.toml").read_text()
NAMED = re.findall(r"(?:file:\{secrets\}/|credential:)([\w-]+)", CONFIG)
PLACES = sorted({*NAMED, "carbon", "environment", "price", "proxy"})
CANARY = {place: f"canary-{place}-7f3a91" for place in PLACES}
FORMS = [form for secret in CANARY.values() for form in forms_of(secret)]


class Bench:
    """The servers, the daemon, and its output."""

    def __init__(self, folder):
        self.folder = folder
        refusing = [
            "v1",
            "v2",
            "otlp",
            "fleet",
            "alertmanager",
            "cluster",
            "bmc",
            "service",
            "tenants",
        ]
        self.servers = {
            **{name: repeating(401) for name in refusing},
            "hook": taking(),
            "apprise": repeating(500),
            "price": taking(b"0.5"),
            "price_list": repeating(403),
            "carbon": repeating(200),
            "service_model": counting(),
            "echo_chat": InferenceServer(echoing_chat),
            "chat": InferenceServer(generating(token=CANARY["chat"])),
            "refused_chat": InferenceServer(generating(token=OTHER)),
        }
        self.output = {}
        self.port = free_port()

    def places(self):
        """Write the secrets into their files; return their values for the configuration."""
        folder, urls = self.folder / "secrets", {k: s.url for k, s in self.servers.items()}
        folder.mkdir(mode=0o700)
        for place, secret in CANARY.items():
            (folder / place).write_text(secret + "\n")
        (folder / "hook-address").write_text(f"{urls['hook']}/{CANARY['hook-address']}")
        host = urls["apprise"].removeprefix("http://")
        (folder / "apprise").write_text(f"json://user:{CANARY['apprise']}@{host}/x")
        keys = {f"{name}_key": CANARY[name] for name in ("price", "carbon")}
        return {**urls, **keys, "secrets": folder, "port": self.port}

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
                    if name not in ("hook", "alertmanager", "apprise", "fleet")
                )
            )
            for words, command in (
                ("refused-chat", "status"),
                ("served_model", "export --measurement serving"),
            ):
                daemon.wait_for(
                    lambda w=words, c=command: w in daemon.look(*c.split(), code=None),
                    every_s=LOOK_EVERY_S,
                )
            for command in re.split(r"[;\n]+ *", COMMANDS.strip()):
                self.output[command] = daemon.look(*command.split(), code=None).encode()
            url, text = f"http://127.0.0.1:{self.port}", hidden(CANARY["http"])
            for page in ("healthz", "metrics"):
                self.output[page] = answered(f"{url}/{page}")[2]
            bearer = {"Authorization": f"Bearer {CANARY['http']}"}
            for name, annotation in (("stored", {"text": text}), ("rejected", {text: text})):
                body = json.dumps(annotation).encode()
                self.output[f"{name} annotation"] = answered(f"{url}/annotations", body, **bearer)[
                    2
                ]
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
    own = {name: {name, f"{name}-key"} for name in bench.servers if f"{name}-key" in PLACES}
    own["hook"] = {"hook-address", "hook-token"}
    for name, server in bench.servers.items():
        heads, _ = received_by(server)
        given = {place for place in PLACES if any(f in heads for f in forms_of(CANARY[place]))}
        assert given == own.get(name, {name.replace("_", "-")}), name


def test_nothing_sent_printed_or_stored_contains_a_secret(bench):
    assert any(name.endswith("-wal") for name in bench.files)
    bodies = {name: received_by(server)[1] for name, server in bench.servers.items()}
    content = {**bodies, **bench.files, **bench.output}
    assert {name: found for name, text in content.items() if (found := found_in(text))} == {}
    assert [name for name, body in bodies.items() if MARK.encode() in body] == []
    assert [name for name, text in bench.output.items() if not text] == []


def test_store_is_readable_only_by_its_owner(bench):
    for path in bench.daemon.store.parent.iterdir():
        assert path.stat().st_mode & 0o027 == 0, path


def test_commands_report_the_failures(bench):
    """The texts that could contain a secret are present."""
    status = bench.output["status"].decode()
    assert "unauthorized" in status or "check the token" in status
    test_alert = bench.output["alerts test"].decode()
    assert "HTTP 401" in test_alert
    assert "apprise" in test_alert
    assert 'refused-chat"' in bench.output["config show"].decode()
    assert "key=***" in bench.output["config show"].decode()


def test_no_command_line_contains_a_secret(bench):
    commands = {seen.command for seen in bench.daemon.seen.values()}
    for part in (
        b"costprobe.adapters.sensors.child.main",
        b"costprobe.adapters.load_child.main",
        b"-m\0costprobe\0",
    ):
        assert any(part in command for command in commands), part
    assert [command for command in commands if MARK.encode() in command] == []


def test_no_child_has_a_secret_in_its_environment_and_no_process_dumps_core(bench):
    daemon = bench.daemon.seen[bench.daemon.pid]
    # Without the commands, and the tests' servers.
    children = [one for one in bench.daemon.seen.values() if not OWN_COMMAND.search(one.command)]
    assert len(children) >= 4
    for seen in children:
        assert b"PATH=" in seen.environ
        assert found_in(seen.environ) == [], seen.command
        assert b"CREDENTIALS_DIRECTORY=" not in seen.environ, seen.command
    for seen in (daemon, *children):
        assert (seen.core_limit, seen.dump_filter) == ("0 0", "00000000"), seen.command


def holds_place(field):
    """Whether a field is the place of a secret, and not the secret."""
    kinds = [field.annotation]
    for kind in kinds:
        kinds += typing.get_args(kind)
    return Secret in kinds


def sections_in(annotation):
    """Yield the sections in a type, and in their fields."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from sections_in(field.annotation)
    for inner in typing.get_args(annotation):
        yield from sections_in(inner)


SECTIONS = {*sections_in(Config)}


def test_every_place_of_a_secret_has_a_canary(bench):
    """A class whose new secret is missing in CONFIG fails here."""
    config = load(bench.daemon.config)
    tables = [*config.sink, *config.notifier, *config.probe, *config.service, *config.price]
    tables += [service.tenants for service in config.service if service.tenants]
    tables += [config.http, config.kubernetes, config.server_power, config.fleet]
    covered = {
        (type(table).__name__, name)
        for table in tables
        for name in ("token", "password", "key", "url")
        if isinstance(getattr(table, name, None), Secret)
    }
    # Alternatives of the same class of the code: a bearer token, or a password; a feed's key.
    covered |= {
        ("AlertmanagerConfig", "token"),
        ("FleetSection", "password"),
        *((f"{kind}ProbeConfig", stem) for kind in ("Http", "Kserve") for stem in ("key", "token")),
        ("SpotPlan", "key"),
    }
    places = {
        (model.__name__, name)
        for model in SECTIONS
        for name, field in model.model_fields.items()
        if holds_place(field)
    }
    assert places == covered


def test_no_field_holds_a_secret_itself():
    secret = re.compile("(^|_)(token|password|secret|credential|api_?key)$")
    names = [
        f"{model.__name__}.{name}"
        for model in SECTIONS
        for name, field in model.model_fields.items()
        if secret.search(name) and not holds_place(field)
    ]
    assert names == []
