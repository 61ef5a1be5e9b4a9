"""For every command the examples run and the --json output is valid against its schema."""

import json
import os
import re
import shlex
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from costprobe.adapters.store.read import StoreReader
from costprobe.ui.cli.main import COMMANDS, REMOVED, main
from costprobe.ui.cli.support.command_classes import examples_of
from fakes.command import called, leaves
from fakes.documents import checked
from fakes.json_host import json_host
from jsonschema import Draft202012Validator

from scripts.reference.schemas import FOLDER, file_of

ROOT = Path(__file__).resolve().parents[3]
# Arguments of commands with --json on the sample host.
ARGUMENTS = {
    "trend": "--since 2d",
    "export": "--since 2h",
    "price list": "--gpu H100",
    "savings": "--reserved 1y=35%",
    "compare": "--p99 11ms",
    "spend": "--since 3d",
    "report": "--since 3d",
    "explain": "--since 3d",
    "annotate": "'deployed v42' --probe ranker --at 20m",
    "replay": "--since 3d --events",
    "probe": "ranker",
}
# Examples that are only parsed: they run until stopped, change a host or a database, ask one, or take
# a second each and run in other tests.
PARSED = {
    "run", "dashboard", "install", "uninstall", "influx setup", "price update", "calibrate", "reconcile", "where",
    "debug bundle", "fleet outliers", "fleet change", "fleet watch", "doctor", "probe", "replay", "report",
}  # fmt: skip
# Exit codes other than 0 on the sample host.
EXIT_CODES = {
    "costprobe alerts --exit-code": 1,  # the sink influxdb has a rejected point
    "costprobe alerts test pager": 1,  # no server listens at this address
    "costprobe silence end 0a1b2c3d": 2,  # no such silence
    "costprobe store compact": 2,  # the daemon is running
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
# Commands with a schema whose documents other tests check.
APART = {
    "reconcile",
    "where",
    "silence",
    "doctor",
    "calibrate",
    "fleet outliers",
    "fleet change",
    "fleet watch",
}

pytestmark = pytest.mark.timeout(900)


LEAVES = dict(leaves())
WITH_JSON = {name for name, one in LEAVES.items() if any("--json" in o.opts for o in one.params)}
WITH_JSON |= {"status --watch"}


def test_every_command_with_json_has_a_schema_and_a_test():
    assert {name.split()[0] for name in LEAVES} == set(COMMANDS)
    found = {*FOLDER.iterdir()}
    assert found == {file_of(name) for name in (*WITH_JSON, "webhook")}
    assert APART | set(ARGUMENTS) <= WITH_JSON


def test_what_is_gone_names_what_to_type_instead():
    problems = []
    for name, instead in REMOVED.items():
        done = CliRunner().invoke(main, [*name.split(), "x"])
        if done.exit_code != 2 or instead not in done.output or len(done.output.splitlines()) != 1:
            problems.append(f"{name}: {done.exit_code} {done.output}")
    assert not problems, "\n".join(problems)


def test_schemas_are_valid():
    for path in FOLDER.iterdir():
        Draft202012Validator.check_schema(json.loads(path.read_text()))


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    with json_host(tmp_path_factory.mktemp("host")) as daemon:
        yield daemon


def printed(host, *words, code=0):
    env = {"XDG_RUNTIME_DIR": str(host.folder)}
    return called(host.config, *words, code=code, env=env).stdout


def test_documents_are_valid_against_their_schemas(host):
    problems, found = [], {}
    for name in sorted(WITH_JSON - APART):
        if name.endswith("--fleet"):
            continue
        arguments = shlex.split(ARGUMENTS.get(name, ""))
        text = printed(host, *name.split(), *arguments, "--json")
        try:
            found[name] = checked(name, text)
        except AssertionError as error:
            problems.append(f"{name}: {error}")
    assert not problems, "\n".join(problems)
    assert found["probe"]["energy"]["energy_per_inference_j"] > 0


# JSON documents of the store of another shape, which only the service's rights can write.
SHAPES = (
    *("[]", "{}", '"x"', "null"),
    '{"alerts": [7], "silenced": 7, "sinks": 7, "state": "running"}',
)
READING = (
    "status", "status --watch", "trend", "export", "price history", "savings", "compare", "budget",
    "forecast", "spend", "report", "alerts", "alerts history", "replay", "sink rejected", "store check",
    "doctor",
)  # fmt: skip
READING_STATES = ("status", "status --watch", "alerts", "price show", "budget")


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
            done = called(config, *name.split(), *shlex.split(ARGUMENTS.get(name, "")), code=None)
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
    assert refused >= {"status", "status --watch", "alerts", "trend", "export", "report"}


def test_a_bug_is_not_taken_for_a_damaged_store(host, monkeypatch):
    def bug(*_):
        raise KeyError("a bug")

    monkeypatch.setattr(StoreReader, "rejected", bug)
    with pytest.raises(KeyError, match="a bug"):
        called(host.config, "sink", "rejected", "influxdb")


def test_examples_run(host, tmp_path, monkeypatch):
    """All examples run on the sample host; of those in PARSED only the options are parsed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(host.folder))
    (tmp_path / "plans.toml").write_text(PLANS)
    (tmp_path / "admin.token").write_text("secret")
    for name, command in LEAVES.items():
        if name in PARSED or name.endswith("--fleet"):
            monkeypatch.setattr(command, "callback", lambda *_, **__: None)
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
    status = checked("status", printed(host, "status", "--json"))
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may install the service")
@pytest.mark.skipif(
    shutil.which("systemd-sysusers") is None, reason="an image is set up with systemd's own tools"
)
@pytest.mark.processes
def test_service_is_installed_into_an_image_and_removed(tmp_path):
    for folder in ("etc", "usr", "run"):
        (tmp_path / folder).mkdir()
    for name in ("passwd", "group"):
        (tmp_path / "etc" / name).touch()
    called("", "install", "--root", tmp_path)
    assert (tmp_path / "etc/costprobe/costprobe.toml").exists()
    called("", "uninstall", "--root", tmp_path, "--purge")
    assert not (tmp_path / "etc/costprobe").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may install the service")
def test_steps_of_a_failed_installation_are_shown(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "costprobe").touch()
    done = called("", "install", "--root", tmp_path, code=1)
    assert re.search(r"costprobe\.service: written\n", done.stdout)
    assert "etc/costprobe" in done.stderr
