"""Completion in a real bash, and as zsh and fish ask for it; it must answer at once."""

import os
import subprocess
import sys

import pytest
from fakes.reported import month

from agent.cli.main import COMMANDS

MORE = """
[[notifier]]
name = "pager"
kind = "webhook"
url = "http://127.0.0.1:9"
[[sink]]
name = "influxdb"
api = "v1"
url = "http://127.0.0.1:9"
database = "d"
"""
# The completions of a line whose last word is being written.
BASH = """
set -eu
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMPREPLY=()
_infercost_completion infercost "${COMP_WORDS[COMP_CWORD]}" ""
printf '%s\\n' "${COMPREPLY[@]-}"
"""
HEAVY = {
    "torch", "pydantic", "sqlite3", "plotext", "rich", "influxdb_client", "apscheduler",
    "agent.config", "agent.cli.status", "agent.cli.trend",
}  # fmt: skip


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """A PATH with infercost on it, its bash script, and a store with a past."""
    folder = tmp_path_factory.mktemp("completion")
    config = month(folder, hours=3)
    with config.open("a") as file:
        file.write(MORE)
    program = folder / "bin" / "infercost"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom agent.cli.main import main\nmain()\n")
    program.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "INFERCOST_CONFIG": str(config),
    }
    made = subprocess.run(
        ["infercost", "completion", "bash"], env=env, capture_output=True, text=True, check=True
    )
    script = folder / "infercost.bash"
    script.write_text(made.stdout)
    return env, script


def completed(shell, *words):
    env, script = shell
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", str(script), "infercost", *words],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["sta"], ["status"]),
        (["store", "c"], ["check", "compact"]),
        (["price", "what-if", "--re"], ["--reserved"]),
        (["--no"], ["--no-color"]),
        (["trend", "--probe", ""], ["encoder", "ranker"]),
        (["trend", "--device", "g"], ["gpu0"]),
        (["trend", "--service", ""], ["shop"]),
        (["trend", "--field", "tempe"], []),
        (["trend", "--field", "temp_"], ["temp_c", "temp_max_c"]),
        (["compare", "--only", ""], ["encoder", "ranker", "shop"]),
        (["probe", "r"], ["ranker"]),
        (["probe", "c"], ["cnn"]),
        (["forecast", ""], ["gpus"]),
        (["sink", "retry", ""], ["influxdb"]),
        (["grafana", "provision", "--sink", "i"], ["influxdb"]),
        (["alerts", "test", ""], ["pager"]),
        (["silence", "end", ""], []),
        (["completion", ""], ["bash", "zsh", "fish"]),
    ],
    ids=" ".join,
)
def test_bash_offers_what_there_is(shell, words, offered):
    assert completed(shell, *words) == offered


def test_bash_offers_every_command(shell):
    assert set(COMMANDS) <= set(completed(shell, ""))


def test_a_configuration_that_is_bad_offers_nothing_and_says_nothing(shell, tmp_path):
    env, script = shell
    (tmp_path / "bad.toml").write_text("[[probe")
    asked = {**env, "INFERCOST_CONFIG": str(tmp_path / "bad.toml")}
    assert completed((asked, script), "trend", "--probe", "") == []


@pytest.mark.parametrize(
    ("kind", "more", "answer"),
    [
        ("zsh", {"COMP_WORDS": "infercost sta", "COMP_CWORD": "1"}, "plain\nstatus\nWhat each"),
        ("fish", {"COMP_WORDS": "infercost sta", "COMP_CWORD": "sta"}, "status"),
    ],
)
def test_other_shells_are_answered_as_they_ask(shell, kind, more, answer):
    env, _ = shell
    done = subprocess.run(
        ["infercost"], env={**env, **more, "_INFERCOST_COMPLETE": f"{kind}_complete"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert answer in done.stdout
    assert "store" not in done.stdout


def test_names_of_commands_cost_no_more_than_help():
    """What is loaded for them is what `--help` loads, and the shells' own part of click."""
    program = (
        "import os, sys\n"
        "os.environ |= {'_INFERCOST_COMPLETE': 'bash_complete', 'COMP_WORDS': 'infercost s',"
        " 'COMP_CWORD': '1'}\n"
        "from agent.cli.main import main\n"
        "try: main([], prog_name='infercost')\n"
        "except SystemExit: pass\n"
        f"heavy = {HEAVY!r} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "plain,status" in done.stdout
