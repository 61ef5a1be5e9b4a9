"""The README's commands run as written, in the order in which a new user types them."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
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


def words_of(line):
    """A command with the installed scripts in place of `.venv/bin`."""
    return shlex.split(line.replace(".venv/bin", BIN))


def environment(folder):
    # One torch thread: a second one would slow down the tests in parallel.
    return {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "OMP_NUM_THREADS": "1"}


def run(line, folder, codes=(0,)):
    done = subprocess.run(
        words_of(line), cwd=folder, env=environment(folder), capture_output=True, text=True,
        check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode in codes, (line, done)
    return done.stdout


@contextmanager
def started(words, cwd, folder, awaited):
    """A command in the background, once it has printed some words; yields its output, and interrupts it."""
    output = folder / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env=environment(folder),
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        ends_s = time.monotonic() + TIMEOUT_S
        while awaited not in output.read_text():
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < ends_s, output.read_text()
            time.sleep(0.1)
        yield output
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(30)
    assert "Traceback" not in output.read_text()


def test_try_it(tmp_path):
    first, *rest, last = commands_of("Try it")
    assert (first, last) == ("make run", "make test")
    assert [line.split()[1] for line in rest] == ["status", "trend", "export", "probe"]
    # The environment of the clone is the one that the tests run in.
    words = ["make", "run", f"VENV={Path(sys.executable).parents[1]}"]
    with started(words, ROOT, tmp_path, "per million") as output:
        assert all(run(line, tmp_path) for line in rest[:-1])
    assert "stopped" in output.read_text()


@pytest.mark.soak
def test_probe_from_the_shell_needs_no_daemon(tmp_path):
    *_, probe, _ = commands_of("Try it")
    assert checked("probe", run(probe, tmp_path))["energy"]["energy_per_inference_j"] > 0


def test_five_minutes_to_influxdb(tmp_path):
    init, check, doctor, daemon = commands_of("Five minutes to InfluxDB")
    run(init, tmp_path)
    file = tmp_path / "costprobe.toml"
    # Of a user who may not write the service's store it is one of the user's own.
    place = r'^(# )?\[store\]\n(# )?path = "/.*/costprobe\.db"'
    own = f'[store]\npath = "{tmp_path}/costprobe.db"'
    text, replaced = re.subn(place, own, file.read_text(), flags=re.MULTILINE)
    assert replaced == 1
    file.write_text(text)
    assert "good" in run(check, tmp_path)
    # A warning about an unsynchronized clock or little disk space is no failure.
    assert "torch under" in run(doctor, tmp_path, codes=(0, 1))
    with started(words_of(daemon), tmp_path, tmp_path, "store: "):
        pass
