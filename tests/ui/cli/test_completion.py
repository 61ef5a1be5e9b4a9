"""Completion in a real bash, and with the variables that zsh and fish set."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from costprobe.ui.cli.main import main
from fakes.cli import host
from fakes.reported import month
from record.record_files import check_outcomes

COMPLETE = Path(__file__).with_name("complete.bash")


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """An environment with costprobe on PATH, its bash script, and a store with history."""
    folder = tmp_path_factory.mktemp("completion")
    config = month(folder, hours=3)
    with config.open("a") as file:
        file.write(host("completion"))
    program = folder / "bin" / "costprobe"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom costprobe.ui.cli.main import main\nmain()\n")
    program.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "COSTPROBE_CONFIG": str(config),
    }
    made = subprocess.run(
        ["costprobe", "completion", "bash"], env=env, capture_output=True, text=True, check=True
    )
    script = folder / "costprobe.bash"
    script.write_text(made.stdout)
    return env, script


def completed(shell, *words):
    env, script = shell
    done = subprocess.run(
        ["bash", str(COMPLETE), str(script), "costprobe", *words],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


def test_completions_of_values(shell, monkeypatch):
    """Of each line, whose last word is incomplete."""
    env, _ = shell
    monkeypatch.setenv("COSTPROBE_CONFIG", env["COSTPROBE_CONFIG"])
    completion = BashComplete(main, {}, "costprobe", "_COSTPROBE_COMPLETE")

    def offered(line):
        *words, last = line.split(" ")
        return [item.value for item in completion.get_completions(words, last)]

    check_outcomes("completions.json", offered)


def test_bash_completes_commands_and_values(shell):
    assert completed(shell, "sta") == ["status"]
    assert completed(shell, "trend", "--probe", "") == ["encoder", "ranker"]


def test_completion_is_silent_with_an_invalid_configuration(shell, tmp_path):
    env, script = shell
    (tmp_path / "bad.toml").write_text("[[probe")
    broken_env = {**env, "COSTPROBE_CONFIG": str(tmp_path / "bad.toml")}
    assert completed((broken_env, script), "trend", "--probe", "") == []
