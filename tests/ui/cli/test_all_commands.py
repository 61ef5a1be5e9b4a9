"""For every command the examples run and the --json output is valid against its schema."""

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from costprobe.adapters.store.read import StoreReader
from costprobe.ui.cli.main import COMMANDS, main
from costprobe.ui.cli.support.command_classes import examples_of
from fakes.command import called, leaves
from fakes.documents import SCHEMAS, checked, schema_of
from fakes.json_host import json_host
from jsonschema import Draft202012Validator

ROOT = Path(__file__).resolve().parents[3]
# Commands without --json, each with its reason.
WITHOUT = {
    "run": "ends when it is stopped; what it does is in status",
    "dashboard": "ends when it is stopped",
    "fleet dashboard": "ends when it is stopped",
    "completion": "prints a program for a shell",
    "prometheus rules": "prints a file for Prometheus",
    "price export": "prints a file for another program",
}
# Arguments by command, run on the sample host; file names are relative to a test folder.
ARGUMENTS = {
    "status": (),
    "top": (),
    "trend": ("--since", "2d"),
    "export": ("--since", "2h"),
    "price show": (),
    "price list": ("--gpu", "H100"),
    "price history": (),
    "savings": ("--reserved", "1y=35%"),
    "compare": ("--p99", "11ms"),
    "allocation": ("--since", "3d"),
    "budget": (),
    "forecast": (),
    "report": ("--since", "3d"),
    "explain": ("--since", "3d"),
    "annotate": ("deployed v42", "--probe", "ranker", "--at", "20m"),
    "alerts": (),
    "alerts history": (),
    "replay": ("--since", "3d", "--events"),
    "sink status": (),
    "sink rejected": (),
    "sink retry": (),
    "probe": ("ranker",),
    "store check": (),
    "store backup": ("copy.db",),
    "config init": ("new.toml",),
    "config check": (),
    "config show": (),
    "debug bundle": ("bundle.tar.gz",),
    "grafana export": ("boards",),
    "grafana provision": ("provisioning", "--sink", "influxdb"),
}
FILES = {"copy.db", "new.toml", "bundle.tar.gz", "boards", "provisioning"}
# Examples that are only parsed: they run until stopped, change a host or a database, ask one, or take
# a second each and have tests of their own.
PARSED = (
    "run", "dashboard", "install", "uninstall", "influx setup", "price update", "calibrate",
    "fleet status", "fleet spend", "fleet compare", "fleet forecast", "fleet outliers",
    "fleet change", "fleet dashboard",
    "fleet report", "fleet savings", "fleet watch", "debug bundle",
)  # fmt: skip
# Exit codes other than 0 on the sample host.
EXIT_CODES = {
    "costprobe alerts --exit-code": 1,  # the sink influxdb has a rejected point
    "costprobe alerts test pager": 1,  # no server listens at this address
    "costprobe doctor": 1,  # the sink influxdb2 has no server
    "costprobe doctor --probes": 1,  # likewise
    "costprobe probe ./model.py:make": 2,  # there is no such file
    "costprobe probe ./model.py:make --against ../main/model.py:make --fail-above 5%": 2,  # as above
    "costprobe silence end 0a1b2c3d": 2,  # no such silence
    "costprobe store compact": 1,  # the daemon is running
}
PLANS = """
[[price]]
plan = "reserved"
per_hour = 3.6
currency = "EUR"
discount = 0.4
term = "1y"
valid_from = 2026-01-01
"""
# Commands with a separate test below.
APART = {
    "alerts test", "silence", "silence list", "silence end", "doctor", "store compact",
    "influx setup", "influx tasks", "install", "uninstall", "price update", "calibrate",
    "fleet status", "fleet spend", "fleet compare", "fleet forecast", "fleet outliers",
    "fleet change",
    "fleet report", "fleet savings", "fleet watch",
}  # fmt: skip

pytestmark = pytest.mark.timeout(900)


def tree(command=main, path=()):
    """Return all commands and groups, by name."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from tree(command.get_command(context, name), (*path, name))


LEAVES = dict(leaves())
TREE = dict(tree())


def takes_json(command):
    return any("--json" in option.opts for option in command.params)


def test_every_command_has_json_or_an_exemption():
    assert set(WITHOUT) <= set(LEAVES)
    for name, command in LEAVES.items():
        assert takes_json(command) is (name not in WITHOUT), name
    assert {name.split()[0] for name in LEAVES} == set(COMMANDS)


def test_every_command_with_json_has_a_schema_and_a_test():
    wanted = set(LEAVES) - set(WITHOUT)
    found = {path.name.removesuffix(".schema.json") for path in SCHEMAS.iterdir()}
    assert found == {name.replace(" ", "-") for name in wanted}
    assert set(ARGUMENTS) | APART == wanted


def undescribed(schema, path=""):
    """Return the keys without a description."""
    for name, held in schema.get("properties", {}).items():
        if len(held.get("description", "")) < 3:
            yield f"{path}.{name}"
        yield from undescribed(held, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from undescribed(schema[keyword], f"{path}[]")
    for one in schema.get("oneOf", ()):
        yield from undescribed(one, path)


def test_schemas_are_valid_and_describe_every_key():
    problems = []
    for name in sorted(set(LEAVES) - set(WITHOUT)):
        schema = schema_of(name)
        Draft202012Validator.check_schema(schema)
        names = (schema["$schema"], schema["$id"], schema["title"])
        if names != (
            "https://json-schema.org/draft/2020-12/schema",
            f"costprobe.{name.replace(' ', '-')}/1",
            f"costprobe {name} --json",
        ):
            problems.append(f"{name}: {names}")
        problems += [f"{name}{key} has no description" for key in undescribed(schema)]
    assert not problems, "\n".join(problems)


def test_keys_missing_from_a_schema_are_detected():
    good = '{"sinks": ["a"]}'
    assert checked("sink retry", good) == {"sinks": ["a"]}
    for bad in ('{"sinks": ["a"], "more": 1}', '{"sinks": "a"}', "{}"):
        with pytest.raises(AssertionError):
            checked("sink retry", bad)


def test_json_page_is_up_to_date():
    made = subprocess.run(
        [sys.executable, "scripts/json_docs", "-"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert made == (ROOT / "docs" / "json.md").read_text(), "run scripts/json_docs"
    assert re.findall(r"^## costprobe (.+)$", made, re.MULTILINE) == sorted(
        set(LEAVES) - set(WITHOUT), key=lambda name: f"{name.replace(' ', '-')}.schema.json"
    )


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    with json_host(tmp_path_factory.mktemp("host")) as daemon:
        yield daemon


def printed(config, *words, code=0, **env):
    return called(config, *words, "--json", code=code, env=env).stdout


def test_documents_are_valid_against_their_schemas(host, tmp_path):
    problems, found = [], {}
    for name, arguments in ARGUMENTS.items():
        words = [str(tmp_path / word) if word in FILES else word for word in arguments]
        text = printed(host.config, *name.split(), *words, XDG_RUNTIME_DIR=str(host.folder))
        try:
            found[name] = checked(name, text)
        except AssertionError as error:
            problems.append(f"{name}: {error}")
    assert not problems, "\n".join(problems)
    assert found["probe"]["energy"]["energy_per_inference_j"] > 0


# JSON documents of the store of another shape, which only the service's rights can write.
SHAPES = (
    "[]",
    "{}",
    '"x"',
    "null",
    '{"alerts": [7], "silenced": 7, "sinks": 7, "state": "running"}',
)
READING = (
    "status", "top", "trend", "export", "price history", "savings", "compare", "budget", "forecast",
    "allocation", "report", "alerts", "alerts history", "replay", "sink status", "sink rejected", "store check",
    "doctor",
)  # fmt: skip
READING_STATES = ("status", "top", "alerts", "sink status", "price show", "budget")


def misshapen(host, folder, sql, document):
    """Copy the host's store, replace documents in it, and return its configuration."""
    path, config = folder / "costprobe.db", folder / "costprobe.toml"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(host.store)) as source, closing(sqlite3.connect(path)) as copy:
        source.backup(copy)
        with copy:
            copy.execute(sql, (document,))
    config.write_text(host.config.read_text().replace(str(host.store), str(path)))
    return config


def test_stored_documents_of_another_shape_end_commands_with_one_line(host, tmp_path):
    problems, refused = [], set()

    def check(name, config, shape):
        try:
            done = called(config, *name.split(), *ARGUMENTS.get(name, ()), code=None)
        except Exception as error:  # noqa: BLE001 - all of them are reported
            problems.append(f"{name} with {shape}: {error!r}")
            return
        if "shape" in done.output and name != "doctor":
            refused.add(name)
            if done.exit_code != 2 or str(tmp_path / "costprobe.db") not in done.output:
                problems.append(f"{name} with {shape}: {done.exit_code}, {done.output}")

    config = misshapen(host, tmp_path, "UPDATE series SET tags = ?", "[7]")
    for name in READING:
        check(name, config, "[7]")
    for shape in SHAPES:
        config = misshapen(host, tmp_path, "UPDATE states SET document = ?", shape)
        for name in READING_STATES:
            check(name, config, shape)
    assert not problems, "\n".join(problems)
    assert refused >= {"status", "top", "alerts", "sink status", "trend", "export", "report"}


def test_a_bug_is_not_taken_for_a_damaged_store(host, monkeypatch):
    def bug(*_):
        raise KeyError("a bug")

    monkeypatch.setattr(StoreReader, "rejected", bug)
    with pytest.raises(KeyError, match="a bug"):
        called(host.config, "sink", "rejected", "influxdb")


def test_every_help_text_ends_with_its_examples():
    for name, command in TREE.items():
        shown = CliRunner().invoke(main, [*name.split(), "--help"]).output
        *_, last = examples_of(command)
        assert shown.rstrip().endswith(last.split("  # ")[0]), name


def test_examples_run(host, tmp_path, monkeypatch):
    """All examples run on the sample host; of those in PARSED only the options are parsed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(host.folder))
    (tmp_path / "plans.toml").write_text(PLANS)
    (tmp_path / "admin.token").write_text("secret")
    for name in PARSED:
        monkeypatch.setattr(LEAVES[name], "callback", lambda *_, **__: None)
    problems, lines = [], set()
    for command in LEAVES.values():
        lines |= set(examples_of(command))
    for example in sorted(lines | set(examples_of(main))):
        words = shlex.split(example.removeprefix("sudo "), comments=True)
        done = CliRunner().invoke(main, ["--config", str(host.config), *words[1:]])
        if done.exit_code != EXIT_CODES.get(" ".join(words), 0):
            problems.append(f"{example}: {done.exit_code} {done.output} {done.exception!r}")
    assert not problems, "\n".join(problems)


def test_status_document_has_all_sections(host):
    status = checked("status", host.look("status", "--json"))
    empty = {key for key, value in status.items() if value in ({}, [], None)}
    # The host is no Kubernetes node.
    assert empty <= {
        "absent_boards",
        "billed_elsewhere",
        "config_fault",
        "kubernetes",
        "noisy_services",
    }
    assert status["sinks"]["influxdb2"]["last_error"]


def test_top_agrees_with_status(host):
    seen = checked("top", host.look("top", "--json"))
    assert seen["running"]
    assert {one["sink"] for one in seen["sinks"]} == {"influxdb", "influxdb2"}
    assert {one["of"] for one in seen["costs"]} >= {"quick", "chat"}
    assert [one["budget"] for one in seen["budgets"]] == ["gpus"]
    assert any("refused" in text for text in seen["faults"])
    text = host.look("top", "--once")
    for word in ("Devices", "Sinks", "Budgets", "FAULT", "influxdb2", "gpus"):
        assert word in text


def test_notifiers_and_silences(host):
    (result,) = checked("alerts test", host.look("alerts", "test", "--json", code=1))
    assert (result["notifier"], result["sent"]) == ("pager", False)
    words = ("--match", "device=gpu7", "--for", "2h", "--comment", "fan")
    made = checked("silence", host.look("silence", *words, "--json"))
    assert made in checked("silence list", host.look("silence", "list", "--json"))
    ended = checked("silence end", host.look("silence", "end", made["id"], "--json"))
    assert ended["id"] == made["id"]


def test_stored_sweep_document(host):
    words = ("probe", "ranker", "--sweep", "--stored", "--json")
    assert checked("probe", host.look(*words))["cheapest_batch"] == 8


def test_doctor_reports_an_unreachable_database(host):
    found = checked("doctor", host.look("doctor", "--json", code=1))
    assert {one["name"]: one["state"] for one in found}["sink influxdb2"] == "bad"


def test_config_check_reports_every_error_as_json(tmp_path):
    config = tmp_path / "costprobe.toml"
    config.write_text('[[probe]]\nname = "x"\nevry = "5m"\n[store]\noutbox_retention = "soon"\n')
    found = checked("config check", printed(config, "config", "check", code=2))
    assert (found["good"], len(found["problems"])) == (False, 2)


def test_compact_document(host, tmp_path):
    config = tmp_path / "costprobe.toml"
    config.write_text(f'[store]\npath = "{tmp_path}/copy.db"\n')
    host.look("store", "backup", str(tmp_path / "copy.db"))
    done = checked("store compact", printed(config, "store", "compact"))
    assert done["before_bytes"] > 0


def test_influx_setup_document(influxdb, tmp_path):
    config = tmp_path / "costprobe.toml"
    sink = f'[[sink]]\napi = "v1"\nurl = "{influxdb.url}"\ndatabase = "json"\n'
    config.write_text(sink)
    shown = checked("influx setup", printed(config, "influx", "setup"))
    assert shown["pending_steps"] == len(shown["steps"]) > 0
    config.write_text('[[sink]]\napi = "v2"\nurl = "http://127.0.0.1:9"\norg = "o"\nbucket = "b"\n')
    written = checked("influx tasks", printed(config, "influx", "tasks", str(tmp_path / "tasks")))
    assert all(Path(path).exists() for path in written["files"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may install the service")
@pytest.mark.skipif(
    shutil.which("systemd-sysusers") is None, reason="an image is set up with systemd's own tools"
)
@pytest.mark.processes
def test_service_install_document(tmp_path):
    for folder in ("etc", "usr", "run"):
        (tmp_path / folder).mkdir()
    for name in ("passwd", "group"):
        (tmp_path / "etc" / name).touch()
    words = ("--root", str(tmp_path))
    done = checked("install", printed("", "install", *words))
    assert Path(done["config"]).exists()
    checked("uninstall", printed("", "uninstall", *words, "--purge"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may install the service")
def test_steps_of_a_failed_installation_go_to_stderr(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "costprobe").touch()
    done = called("", "install", "--root", tmp_path, "--json", code=1)
    assert done.stdout == ""
    assert re.search(r"costprobe\.service: written\n(.*\n)*Error: .*etc/costprobe", done.stderr)
