"""The README's commands run as they stand, in the order in which a newcomer types them."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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
    """Runs a reader's commands, with the installed scripts where the README says `.venv/bin`."""

    def __init__(self, folder):
        self.folder = folder
        # One thread of torch: what a second adds it takes from the tests beside it.
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
    assert len(rest) == 4
    shell = Shell(tmp_path)
    # The clone's own environment is the one that the tests run in.
    words = ["make", "run", f"VENV={Path(sys.executable).parents[1]}"]
    process, output = shell.start(words, ROOT)
    try:
        wait_for(process, output, "per 1,000")
        for line in rest:
            assert shell.run(line)
    finally:
        end(process)
    assert "Traceback" not in output.read_text()
    assert "stopped" in output.read_text()


def test_make_test_is_what_ci_runs():
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text()
    assert "\ntest:\n" in (ROOT / "Makefile").read_text()


def test_five_minutes_to_influxdb(tmp_path):
    init, check, doctor, run = commands_of("Five minutes to InfluxDB")
    shell = Shell(tmp_path)
    shell.run(init)
    file = tmp_path / "infercost.toml"
    text = file.read_text()
    assert '# path = "/var/lib/infercost/infercost.db"' in text
    file.write_text(
        text.replace(
            '# path = "/var/lib/infercost/infercost.db"', f'path = "{tmp_path}/infercost.db"'
        )
    )
    assert "good" in shell.run(check)
    # A machine without a synchronized clock, or with little room, is told so and is no fault.
    assert "torch under" in shell.run(doctor, codes=(0, 1))
    process, output = shell.start(shell._words(run), tmp_path)  # noqa: SLF001 - the same reader
    try:
        wait_for(process, output, "store: ")
    finally:
        end(process)
    assert "Traceback" not in output.read_text()


def test_the_example_configuration_is_good():
    from agent.config_file import parse

    example = README.split("```toml\n", 1)[1].split("```", 1)[0]
    config = parse(example, Path("README.md"))
    assert [plan.plan for plan in config.price] == ["on_demand", "owned"]
    assert config.probe[0].latency_bound_s == 0.05


def test_the_series_table_names_every_tag_and_field():
    from agent.series import SCHEMA

    section = README.split("## Series\n", 1)[1].split("\n## ", 1)[0]
    for name, measurement in SCHEMA.items():
        row = next(line for line in section.splitlines() if line.startswith(f"| `{name}`"))
        for field in measurement.fields:
            stem, _, suffix = field.rpartition("_")
            assert field in row or (stem in row and f"_{suffix}" in row), (name, field)
