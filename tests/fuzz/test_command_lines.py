"""Every command with options and arguments that no one tested: an answer or an error, never a traceback."""

import random
import shlex
import subprocess
import sys
import traceback

import click
import pytest
from click.testing import CliRunner
from costprobe.core.records import Device
from costprobe.ui.cli import price
from costprobe.ui.cli.main import main
from fakes.cases import check_all
from fakes.command import called, leaves
from fakes.reported import month
from fakes.sizes import SEED, TIMEOUT_S, sized

CASES = sized(100, 20_000)
# Commands that run until stopped, start a process, or change a host or a database: only parsed.
PARSED = {
    "run",
    "dashboard",
    "probe",
    "doctor",
    "config init",
    "debug bundle",
    "influx setup",
    "install",
    "service upgrade",
    "uninstall",
}
PLAN = '[[price]]\nplan = "reserved"\nper_hour = 1\ndiscount = 0.1\nterm = "1y"\nvalid_from = {}\n'
VALID = {"moment": ["7d", "0d"], "duration": ["20ms", "2h"], "text": ["gpu0", "ranker", "cost"]}
VALUES = (
    "", " ", "0", "-1", "1", "5", "9" * 5000, "-" + "9" * 5000, "1e999", "1e-999", "nan", "-inf",
    "0001-01-01", "9999-12-31", "9999-12-31T23:59:59-12:00", "1969-12-31", "2026-02-30", "24:00",
    "99999999d", "99999y", "9" * 5000 + "d", "1ms", "0s", "24h", "7d", "2026-01-31T12:00Z",
    "a\0b", "\0", "/proc", ".", "/proc/nonexistent/x", "x" * 5000, "\U0001f525", "\udc80", "\x1b[31m", "\n",
    "a=b", "=", "device=gpu0", "1y=35%", "99999y=1%", "1y=nan%", "1y=1e999%", "*", "[", "{}", "%s",
    "gpu0", "ranker", "cost_per_inference", "cost", "device.power_w", "detection.warm_up=50",
    "rule.drift.at_least=" + "9" * 5000, "price=1", "probe.x=1", "eur", "EUR", "gpus",
)  # fmt: skip


LEAVES = dict(leaves())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small host's configuration and store, and files that an option may name."""
    made = tmp_path_factory.mktemp("fuzzed")
    month(made, hours=30)
    (made / "plans.toml").write_text(PLAN.format("9999-12-31"))
    (made / "rows.csv").write_text("time,value\n0001-01-01,1\n9999-12-31,2\n1e300,3\n")
    (made / "noise.bin").write_bytes(bytes(range(256)))
    return made


def words_of(rng, command, values):
    """Arguments and up to three options of a command, valid or not."""
    options = [one for one in command.params if isinstance(one, click.Option)]
    chosen = rng.sample(options, min(len(options), rng.randint(1, 3)))
    words = []
    for parameter in [*chosen, *(one for one in command.params if one not in options)]:
        if isinstance(parameter, click.Option):
            words.append(rng.choice(parameter.opts))
        if not getattr(parameter, "is_flag", False):
            choices = getattr(parameter.type, "choices", None) or VALID.get(parameter.type.name)
            words.append(rng.choice(list(choices) if choices and rng.random() < 0.4 else values))
    return words


def ends_well(config, name, words):
    done = CliRunner().invoke(main, ["--config", str(config), *name.split(), *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise AssertionError("".join(traceback.format_exception(done.exception, limit=-2)))
    assert done.exit_code in {0, 1, 2, 3}, done.output
    assert "Traceback" not in done.output, done.output


def test_times_out_of_range_are_errors_of_the_input(folder):
    def check(name, words, message):
        done = called(folder / "costprobe.toml", *name.split(), *words, code=2)
        assert message in done.stderr, done.stderr

    range_, long = "not between 1970 and 2100", "at most 292y"
    since = ("trend", "export", "savings", "report", "compare", "alerts history", "price history")
    silence = ("--match", "device=gpu0", "--comment", "x", "--for")
    check_all(
        check,
        [
            *((name, ("--since", "0001-01-01"), range_) for name in since),
            *((name, ("--since", "9999-12-31"), range_) for name in since),
            *((name, ("--since", "99999999d"), long) for name in since),
            ("trend", ("--since", "100y"), "is before 1970"),
            ("export", ("--until", "9" * 5000 + "d"), long),
            ("silence", (*silence, "99999y"), long),
            ("trend", ("--device", "a\0b"), "NUL"),
            ("store backup", ("a\0b",), "NUL"),
            ("store backup", ("",), "not a file name"),
        ],
    )


def test_a_reader_that_stops_early_ends_a_command_without_a_traceback(folder):
    """In a process: what is written last is flushed when the interpreter ends."""
    costprobe = [sys.executable, "-m", "costprobe", "--config", str(folder / "costprobe.toml")]
    for words, target in (("export", "| head -n 1"), ("config show", "| true"), ("export", ">&-")):
        line = f"{shlex.join([*costprobe, *words.split()])} {target}"
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), (line, done.stderr)
    full = subprocess.run(
        ["sh", "-c", f"{shlex.join([*costprobe, 'export'])} > /dev/full"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (full.returncode, full.stderr) == (1, "Error: No space left on device\n")


@pytest.mark.timeout(TIMEOUT_S)
def test_no_option_ends_in_a_traceback(folder, monkeypatch, tmp_path):
    rng = random.Random(SEED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    # Without the process that reads the devices of this host.
    monkeypatch.setattr(
        price, "discovered_devices", lambda _: (Device("gpu0", "gpu", "u", "A100"),)
    )
    for name in PARSED & set(LEAVES):
        monkeypatch.setattr(LEAVES[name], "callback", lambda *_, **__: None)
    values = [*VALUES, *(str(folder / name) for name in ("plans.toml", "rows.csv", "noise.bin"))]
    names = sorted(LEAVES)

    def check(name, words):
        ends_well(folder / "costprobe.toml", name, words)

    cases = [(name, words_of(rng, LEAVES[name], values)) for name in (names * CASES)[:CASES]]
    check_all(check, cases)
