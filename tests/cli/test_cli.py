"""The command line: quick to start, and clear about what it cannot do."""

import csv
import io
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes.clock import FakeClock

from agent.cli.main import COMMANDS, main
from agent.cli.timespan import ago, iso
from agent.clock import SystemClock
from agent.config_file import parse
from agent.lineprotocol import render
from agent.model import Point
from agent.storage.writer import Store

S = 1_000_000_000


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "infercost.toml"
    path.write_text(f'[store]\npath = "{tmp_path}/infercost.db"\n')
    return path


@pytest.fixture
def infercost(config):
    def call(*arguments, code=0, **options):
        result = CliRunner().invoke(main, ["--config", str(config), *arguments], **options)
        assert result.exit_code == code, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.output

    return call


@pytest.fixture
def points(tmp_path):
    """Three hours of costs of two probes, ending now."""
    import time

    now_ns = time.time_ns()
    made = [
        Point(
            "cost",
            {
                "host": "h",
                "device": "gpu0",
                "probe": probe,
                "basis": "probe",
                "plan": "owned",
                "currency": "EUR",
            },
            {"cost_per_inference": (1 + minute / 180) * scale, "energy_method": "counter"},
            now_ns - (180 - minute) * 60 * S,
        )
        for probe, scale in (("cnn", 1e-6), ("encoder", 2e-6))
        for minute in range(0, 180, 5)
    ]
    store = Store.open(tmp_path / "infercost.db", FakeClock(now_ns))
    store.append(made)
    store.close()
    return made


def test_help_loads_nothing_heavy():
    program = (
        "import sys\n"
        "from agent.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'influxdb_client', 'sqlite3', 'pydantic', 'apscheduler', 'plotext', 'pynvml'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for name in COMMANDS:
        assert name in done.stdout


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(infercost, name):
    output = infercost(name, "--help")
    assert "Usage:" in output
    assert len(output.splitlines()) > 5


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "agent", "--version"], capture_output=True, text=True, check=True
    )
    assert "infercost, version" in done.stdout


def test_an_unknown_command_is_named(infercost):
    assert "No such command" in infercost("prbe", code=2)


@pytest.mark.parametrize("command", ["run", "probe", "status", "trend", "export", "doctor"])
def test_a_bad_file_is_one_clear_error_and_code_2(infercost, config, command):
    config.write_text('[[probe]]\nname = "x"\nevry = "5m"\n')
    output = infercost(command, code=2)
    assert f'{config}: probe[0].evry: unknown key; did you mean "every"?' in output
    assert "Traceback" not in output


def test_without_a_store_reading_says_how_to_make_one(infercost):
    for command in ("status", "trend", "export"):
        assert "infercost run" in infercost(command, code=1)


def test_trend_is_a_table_and_a_plot(infercost, points):
    output = infercost("trend", "--since", "6h")
    assert "gpu0 cnn" in output
    assert "gpu0 encoder" in output
    assert "┤" in output
    assert "\x1b" not in output


def test_a_long_trend_is_a_sample_that_says_so_unless_all_is_asked_for(infercost, tmp_path):
    import time

    now_ns = time.time_ns()
    store = Store.open(tmp_path / "infercost.db", SystemClock())
    store.append(
        [
            Point("device", {"device": "gpu0"}, {"power_w": float(index)}, now_ns - index * 10**10)
            for index in range(1, 8_001)
        ]
    )
    store.close()
    asked = ("trend", "--field", "device.power_w", "--since", "2d")
    sampled = infercost(*asked)
    assert "sampled: 2,00" in sampled
    assert "--exact" in sampled
    assert sampled.splitlines()[1].split()[2:4] == ["8000", "1"]
    exact = infercost(*asked, "--exact")
    assert "sampled" not in exact
    assert exact.splitlines()[1].split()[1] == "8000"
    (series,) = json.loads(infercost(*asked, "--json"))["series"]
    assert len(series["values"]) == 8_000


def test_trend_as_json_and_csv_holds_every_value(infercost, points):
    document = json.loads(infercost("trend", "--since", "6h", "--json"))
    values = {s["tags"]["probe"]: s["values"] for s in document["series"]}
    for probe in ("cnn", "encoder"):
        expected = [p.fields["cost_per_inference"] for p in points if p.tags["probe"] == probe]
        assert values[probe] == expected
    rows = list(csv.DictReader(io.StringIO(infercost("trend", "--since", "6h", "--csv"))))
    assert len(rows) == len(points)
    assert sum(float(row["cost_per_inference"]) for row in rows) == pytest.approx(
        sum(p.fields["cost_per_inference"] for p in points)
    )


def test_trend_chooses_series_and_time(infercost, points):
    document = json.loads(infercost("trend", "--since", "61m", "--probe", "cnn", "--json"))
    (series,) = document["series"]
    assert len(series["values"]) == 12


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("cost_per_inferense", "did you mean cost_per_inference"),
        ("zzz", "no such field"),
        ("stop_reason", "no numbers"),
        ("device.cost_per_inference", "no such field"),
    ],
)
def test_a_field_that_cannot_be_shown_is_explained(infercost, points, field, words):
    assert words in infercost("trend", "--field", field, code=2)


def test_a_field_may_name_its_measurement(infercost, points):
    document = json.loads(infercost("trend", "--field", "device.power_w", "--json"))
    assert document["measurement"] == "device"


def test_nothing_to_show_says_so(infercost, points):
    assert "is the daemon running" in infercost("trend", "--field", "power_w")


def test_export_gives_the_stored_lines_and_the_same_values_as_csv(infercost, points):
    lines = infercost("export", "--format", "line").splitlines()
    assert sorted(lines) == sorted(render(p) for p in points)
    rows = list(csv.DictReader(io.StringIO(infercost("export", "--format", "csv"))))
    values = [float(r["value"]) for r in rows if r["field"] == "cost_per_inference"]
    assert sorted(values) == sorted(p.fields["cost_per_inference"] for p in points)
    assert {row["time"] for row in rows} == {iso(p.time_ns) for p in points}


def test_export_takes_a_range_and_a_measurement(infercost, points):
    assert infercost("export", "--measurement", "probe") == ""
    recent = infercost("export", "--since", "61m").splitlines()
    assert len(recent) == 24
    assert infercost("export", "--until", "1999-12-31") == ""
    assert "neither a duration" in infercost("export", "--since", "yesterdayish", code=2)


def test_status_of_a_store_that_no_daemon_wrote(infercost, points):
    assert "no daemon has written" in infercost("status", code=1)


def test_status_of_another_versions_daemon_is_told_as_far_as_it_is_understood(infercost, tmp_path):
    store = Store.open(tmp_path / "infercost.db", SystemClock())
    status = {"host": "h", "state": "running", "pid": os.getpid(), "version": "0.0.1"}
    store.put_state("status", status)
    told = infercost("status")
    assert "infercost on h: running; the rest is of version 0.0.1" in told
    assert "the daemon is 0.0.1, this command is" in told
    assert json.loads(infercost("top", "--once", "--json"))["faults"] == []
    store.put_state("status", {**status, "state": "stopped"})
    assert "restart" not in infercost("status", code=3)
    store.close()


def test_config_check_and_show(infercost, config):
    config.write_text(config.read_text() + '[[probe]]\nname = "x"\nevery = "90s"\n')
    assert "good (1 probes, 0 price plans, 0 rules, 0 notifiers)" in infercost("config", "check")
    shown = infercost("config", "show")
    assert tomllib.loads(shown)["probe"][0]["every"] == "90s"
    assert parse(shown, config).probe[0].every_s == 90


def test_config_init_writes_a_file_that_is_good_and_keeps_one_that_is_there(infercost, tmp_path):
    path = tmp_path / "new" / "infercost.toml"
    assert str(path) in infercost("config", "init", str(path))
    written = parse(path.read_text(), path)
    assert written.probe[0].name == "transformer"
    assert len(written.price) == 1
    assert "is there already" in infercost("config", "init", str(path), code=2)
    infercost("config", "init", "--force", str(path))
    assert parse(infercost("config", "init", "-"), path) == written


def test_config_init_where_it_cannot_write(infercost, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written" in infercost("config", "init", f"{tmp_path}/file/x.toml", code=2)


def test_probe_by_hand_names_what_there_is(infercost):
    assert "transformer, cnn" in infercost("probe", "nope", code=2)
    assert "no device 'gpu9'" in infercost("probe", "cnn", "--device", "gpu9", code=2)


def test_probe_by_hand_prints_its_result_and_stores_nothing(infercost, config, tmp_path):
    config.write_text(
        config.read_text()
        + '[[probe]]\nname = "quick"\nkind = "cnn"\nbatch = 1\nenergy = false\nsample_cap = "1s"\n'
    )
    document = json.loads(infercost("probe", "quick", "--json"))
    assert document["probe"] == "quick"
    assert document["latency_ms"]["p50"] > 0
    assert document["cost"]["cost_per_inference"] > 0
    assert document["energy"] is None
    assert not (tmp_path / "infercost.db").exists()


def test_the_doctor_looks_at_everything(infercost, config):
    config.write_text(
        config.read_text()
        + '[[probe]]\nname = "x"\npython = "/nowhere/python"\n'
        + '[[sink]]\napi = "v1"\nurl = "http://127.0.0.1:9"\ndatabase = "d"\n'
    )
    found = {c["name"]: c for c in json.loads(infercost("doctor", "--json", code=1))}
    assert found["torch under /nowhere/python"]["state"] == "bad"
    assert found["sink influxdb"]["state"] == "bad"
    assert all(c["fix"] for c in found.values() if c["state"] == "bad")
    assert {"configuration", "NVIDIA driver", "store", "clock"} <= set(found)
    text = infercost("doctor", code=1)
    assert "fix: " in text


def test_a_host_without_rapl_is_fit_for_infercost(infercost):
    """The energy is modelled then, which a note says: there is nothing to mend."""
    if sorted(Path("/sys/class/powercap").glob("intel-rapl:*/energy_uj")):
        pytest.skip("this host has RAPL")
    found = {c["name"]: c for c in json.loads(infercost("doctor", "--json"))}
    assert found["RAPL"]["state"] == "note"
    assert "sensor" not in found


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "5 s"), (200, "3 min"), (9000, "2 h"), (400_000, "4.6 d")]
)
def test_durations_as_people_say_them(seconds, words):
    assert ago(seconds) == words


def test_no_command_is_missing_from_the_readme():
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    for name in COMMANDS:
        assert f"infercost {name}" in readme or f"infercost.toml {name}" in readme
