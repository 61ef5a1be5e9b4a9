"""The README's commands run as written, in the order in which a new user types them."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from costprobe.configuration import parse
from fakes.documents import checked

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
BIN = str(Path(sys.executable).parent)
TIMEOUT_S = 200.0

pytestmark = pytest.mark.timeout(900)


def commands_of(heading):
    """The shell lines below a heading, in order."""
    section = README.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


class Shell:
    """Runs the README's commands, with the installed scripts in place of `.venv/bin`."""

    def __init__(self, folder):
        self.folder = folder
        # One torch thread: a second one would slow down the tests in parallel.
        self.env = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "OMP_NUM_THREADS": "1",
        }

    def _words(self, line):
        return shlex.split(line.replace(".venv/bin", BIN))

    def run(self, line, codes=(0,)):
        done = subprocess.run(
            self._words(line),
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert done.returncode in codes, (line, done)
        return done.stdout

    def start(self, words, cwd):
        output = self.folder / "output"
        with output.open("wb") as file:
            process = subprocess.Popen(
                words,
                cwd=cwd,
                env=self.env,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return process, output


def wait_for(process, output, words):
    ends_s = time.monotonic() + TIMEOUT_S
    while words not in output.read_text():
        assert process.poll() is None, output.read_text()
        assert time.monotonic() < ends_s, output.read_text()
        time.sleep(0.1)


def end(process):
    os.killpg(process.pid, signal.SIGINT)
    process.wait(30)


def test_try_it(tmp_path):
    first, *rest, last = commands_of("Try it")
    assert (first, last) == ("make run", "make test")
    assert [line.split()[1] for line in rest] == ["status", "trend", "export", "probe"]
    shell = Shell(tmp_path)
    # The environment of the clone is the one that the tests run in.
    words = ["make", "run", f"VENV={Path(sys.executable).parents[1]}"]
    process, output = shell.start(words, ROOT)
    try:
        wait_for(process, output, "per million")
        printed = [shell.run(line) for line in rest[:-1]]
    finally:
        end(process)
    assert all(printed)
    assert "Traceback" not in output.read_text()
    assert "stopped" in output.read_text()


@pytest.mark.soak
def test_probe_from_the_shell_needs_no_daemon(tmp_path):
    *_, probe, _ = commands_of("Try it")
    document = checked("probe", Shell(tmp_path).run(probe))
    assert document["energy"]["energy_per_inference_j"] > 0


def test_five_minutes_to_influxdb(tmp_path):
    init, check, doctor, run = commands_of("Five minutes to InfluxDB")
    shell = Shell(tmp_path)
    shell.run(init)
    file = tmp_path / "costprobe.toml"
    text = file.read_text()
    # Of a user who may not write the service's store it is one of the user's own.
    text, replaced = re.subn(
        r'^(# )?\[store\]\n(# )?path = "/.*/costprobe\.db"',
        f'[store]\npath = "{tmp_path}/costprobe.db"',
        text,
        flags=re.MULTILINE,
    )
    assert replaced == 1
    file.write_text(text)
    assert "good" in shell.run(check)
    # A warning about an unsynchronized clock or little disk space is no failure.
    assert "torch under" in shell.run(doctor, codes=(0, 1))
    process, output = shell.start(shell._words(run), tmp_path)  # noqa: SLF001 - the same reader
    try:
        wait_for(process, output, "store: ")
    finally:
        end(process)
    assert "Traceback" not in output.read_text()


def test_example_configuration_is_valid():
    example = README.split("```toml\n", 1)[1].split("```", 1)[0]
    config = parse(example, Path("README.md"))
    assert [plan.plan for plan in config.price] == ["on_demand"]
    assert config.probe[0].latency_bound_s == 0.05
