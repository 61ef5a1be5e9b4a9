"""--json: every command that prints takes it, and what it prints is as its schema says."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from fakes.command import called
from fakes.json_host import json_host
from jsonschema import Draft202012Validator

from agent.cli.main import COMMANDS, main

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "docs" / "json"
# Why a command has no --json.
WITHOUT = {
    "run": "ends when it is stopped; what it does is in status",
    "dashboard": "ends when it is stopped",
    "completion": "prints a program for a shell",
}
# What is asked of the host; names of files are below a folder of the test's own.
ASKED = {
    "status": (),
    "top": (),
    "trend": ("--since", "2d"),
    "export": ("--since", "2h"),
    "price show": (),
    "price history": (),
    "price what-if": ("--reserved", "1y=35%"),
    "compare": ("--p99", "11ms"),
    "forecast": ("--method", "robust"),
    "report": ("--since", "3d"),
    "alerts": (),
    "alerts history": (),
    "replay": ("--since", "3d", "--events"),
    "sink status": (),
    "sink rejected": (),
    "sink retry": (),
    "probe": ("quick",),
    "store check": (),
    "store backup": ("copy.db",),
    "config init": ("new.toml",),
    "config check": (),
    "config show": (),
    "debug bundle": ("bundle.tar.gz",),
    "grafana export": ("boards",),
    "grafana provision": ("provisioning", "--sink", "good"),
}
FILES = {"copy.db", "new.toml", "bundle.tar.gz", "boards", "provisioning"}
# Those with a test of their own below.
APART = {
    "advise", "alerts test", "silence", "silence list", "silence end", "doctor", "store compact",
    "influx setup", "influx tasks", "service install", "service uninstall",
}  # fmt: skip

pytestmark = pytest.mark.timeout(900)


def leaves(command=main, path=()):
    """Commands that do something by themselves, by their names."""
    if not isinstance(command, click.Group) or (command.invoke_without_command and path):
        yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from leaves(command.get_command(context, name), (*path, name))


LEAVES = dict(leaves())


def takes_json(command):
    return any("--json" in option.opts for option in command.params)


def schema_of(name):
    return json.loads((SCHEMAS / f"{name.replace(' ', '-')}.schema.json").read_text())


def strict(schema):
    """The same schema, for which a key that it does not describe is an error."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict):
        made.setdefault("additionalProperties", False)
    return made


def checked(name, text):
    """The documents that a command printed, each as its schema says."""
    schema = schema_of(name)
    assert "\x1b" not in text
    parts = text.splitlines() if schema.get("x-lines") else [text]
    documents = [json.loads(part) for part in parts]
    validator = Draft202012Validator(strict(schema))
    wrong = [
        f"{error.json_path}: {error.message}"
        for document in documents
        for error in validator.iter_errors(document)
    ]
    assert wrong == []
    assert documents
    assert all(documents)
    return documents if schema.get("x-lines") else documents[0]


def test_every_command_takes_json_or_says_why_not():
    assert set(WITHOUT) <= set(LEAVES)
    for name, command in LEAVES.items():
        assert takes_json(command) is (name not in WITHOUT), name
    assert {name.split()[0] for name in LEAVES} == set(COMMANDS)


def test_every_command_that_takes_it_has_a_schema_and_is_tried():
    wanted = set(LEAVES) - set(WITHOUT)
    found = {path.name.removesuffix(".schema.json") for path in SCHEMAS.iterdir()}
    assert found == {name.replace(" ", "-") for name in wanted}
    assert set(ASKED) | APART == wanted


def undescribed(schema, path=""):
    """Keys whose meaning is not said."""
    for name, held in schema.get("properties", {}).items():
        if len(held.get("description", "")) < 3:
            yield f"{path}.{name}"
        yield from undescribed(held, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from undescribed(schema[keyword], f"{path}[]")
    for one in schema.get("oneOf", ()):
        yield from undescribed(one, path)


@pytest.mark.parametrize("name", sorted(set(LEAVES) - set(WITHOUT)))
def test_a_schema_is_one_and_describes_every_key(name):
    schema = schema_of(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"infercost.{name.replace(' ', '-')}/1"
    assert schema["title"] == f"infercost {name} --json"
    assert list(undescribed(schema)) == []


def test_a_key_that_no_schema_knows_is_found():
    good = '{"sinks": ["a"]}'
    assert checked("sink retry", good) == {"sinks": ["a"]}
    for bad in ('{"sinks": ["a"], "more": 1}', '{"sinks": "a"}', "{}"):
        with pytest.raises(AssertionError):
            checked("sink retry", bad)


def test_the_page_is_not_stale():
    made = subprocess.run(
        [sys.executable, "scripts/json_docs", "-"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert made == (ROOT / "docs" / "json.md").read_text(), "run scripts/json_docs"
    assert re.findall(r"^## infercost (.+)$", made, re.MULTILINE) == sorted(
        set(LEAVES) - set(WITHOUT), key=lambda name: f"{name.replace(' ', '-')}.schema.json"
    )


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    with json_host(tmp_path_factory.mktemp("host")) as daemon:
        yield daemon


def printed(config, *words, code=0, **env):
    return called(config, *words, "--json", code=code, env=env).stdout


@pytest.mark.parametrize("name", list(ASKED))
def test_what_it_prints_is_as_its_schema_says(host, tmp_path, name):
    words = [str(tmp_path / word) if word in FILES else word for word in ASKED[name]]
    checked(name, printed(host.config, *name.split(), *words, XDG_RUNTIME_DIR=str(host.folder)))


def test_the_status_has_all_its_parts(host):
    status = checked("status", host.run("status", "--json"))
    empty = {key for key, value in status.items() if value in ({}, [], None)}
    assert empty <= {"config_fault"}
    assert status["services"][0]["last"]["cost"]
    assert status["sinks"]["away"]["last_error"]


def test_top_says_what_the_status_says(host):
    seen = checked("top", host.run("top", "--json"))
    assert seen["running"]
    assert {one["sink"] for one in seen["sinks"]} == {"good", "away"}
    assert {one["of"] for one in seen["costs"]} >= {"quick", "chat"}
    assert [one["budget"] for one in seen["budgets"]] == ["gpus"]
    assert any("refused" in text for text in seen["faults"])
    text = host.run("top", "--once")
    for word in ("Devices", "Sinks", "Budgets", "FAULT", "away", "gpus"):
        assert word in text


def test_advice_has_a_hint_and_what_was_looked_at_without_one(host):
    found = checked("advise", host.run("advise", "--json"))
    assert found["hints"]
    assert found["unsaid"]


def test_notifiers_and_silences(host):
    (told,) = checked("alerts test", host.run("alerts", "test", "--json", code=1))
    assert (told["notifier"], told["sent"]) == ("hook", False)
    words = ("--match", "device=gpu7", "--for", "2h", "--comment", "fan")
    made = checked("silence", host.run("silence", *words, "--json"))
    assert made in checked("silence list", host.run("silence", "list", "--json"))
    ended = checked("silence end", host.run("silence", "end", made["id"], "--json"))
    assert ended["id"] == made["id"]


def test_a_stored_sweep_is_the_other_form_of_a_probe(host):
    words = ("probe", "ranker", "--sweep", "--stored", "--json")
    assert checked("probe", host.run(*words))["cheapest_batch"] == 8


def test_the_doctor_finds_the_database_that_is_away(host):
    found = checked("doctor", host.run("doctor", "--json", code=1))
    assert {one["name"]: one["state"] for one in found}["sink away"] == "bad"


def test_a_bad_file_is_told_with_every_error(tmp_path):
    config = tmp_path / "infercost.toml"
    config.write_text('[[probe]]\nname = "x"\nevry = "5m"\n[store]\nretention = "soon"\n')
    found = checked("config check", printed(config, "config", "check", code=2))
    assert (found["good"], len(found["problems"])) == (False, 2)


def test_compacting_says_what_it_did(host, tmp_path):
    config = tmp_path / "infercost.toml"
    config.write_text(f'[store]\npath = "{tmp_path}/copy.db"\n')
    host.run("store", "backup", str(tmp_path / "copy.db"))
    done = checked("store compact", printed(config, "store", "compact"))
    assert done["before_bytes"] > 0


def test_setting_up_influxdb(influxdb, tmp_path):
    config = tmp_path / "infercost.toml"
    sink = f'[[sink]]\napi = "v1"\nurl = "{influxdb.url}"\ndatabase = "json"\n'
    config.write_text(sink)
    shown = checked("influx setup", printed(config, "influx", "setup"))
    assert shown["missing"] == len(shown["steps"]) > 0
    config.write_text('[[sink]]\napi = "v2"\nurl = "http://127.0.0.1:9"\norg = "o"\nbucket = "b"\n')
    written = checked("influx tasks", printed(config, "influx", "tasks", str(tmp_path / "tasks")))
    assert all(Path(path).exists() for path in written["files"])


@pytest.mark.skipif(
    shutil.which("systemd-sysusers") is None, reason="an image is set up with systemd's own tools"
)
def test_the_service_of_an_image(tmp_path):
    for folder in ("etc", "usr", "run"):
        (tmp_path / folder).mkdir()
    for name in ("passwd", "group"):
        (tmp_path / "etc" / name).touch()
    words = ("--root", str(tmp_path))
    done = checked("service install", printed("", "service", "install", *words))
    assert Path(done["config"]).exists()
    checked("service uninstall", printed("", "service", "uninstall", *words, "--purge"))


def test_steps_of_an_installation_that_fails_are_told_beside_the_json(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "infercost").touch()
    done = called("", "service", "install", "--root", tmp_path, "--json", code=1)
    assert done.stdout == ""
    assert re.search(r"infercost\.service: written\n(.*\n)*Error: .*etc/infercost", done.stderr)
