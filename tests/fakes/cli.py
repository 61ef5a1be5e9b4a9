"""A folder with a store and a configuration, and `costprobe` commands on them."""

import json
import os
import re
import shlex
import time
from contextlib import closing, contextmanager
from difflib import unified_diff
from pathlib import Path
from unittest.mock import patch

from costprobe.adapters.store.write import Store
from fakes.clock import FakeClock
from fakes.command import called
from fakes.documents import checked

from scripts.reference.schemas import file_of

SNAPSHOTS = Path(__file__).parents[1] / "ui" / "cli" / "snapshots"
# A Monday in June, 12:25 in Berlin.
NOW_S = 1_782_123_900


def host(name):
    """Return a configuration of the tests of commands."""
    return (SNAPSHOTS.with_name("hosts") / f"{name}.toml").read_text()


class Cli:
    """Runs commands, and returns what they print.

    Args:
        folder: Of the store and the configuration.
        text: The configuration, without the path of the store.
    """

    def __init__(self, folder, text=""):
        self.folder = folder
        self.config = folder / "costprobe.toml"
        self.store = folder / "costprobe.db"
        self.write(text)

    def write(self, text):
        self.config.write_text(f'[store]\npath = "{self.store}"\n{text}')

    def append(self, *rows, time_ns=None):
        """Store rows; the clock of the store is at `time_ns`, else at the present time."""
        with closing(Store.open(self.store, FakeClock(time_ns or time.time_ns()))) as store:
            for some in rows:
                store.append(list(some))

    def __call__(self, *words, code=0):
        return called(self.config, *words, code=code).output

    def json(self, *words):
        return json.loads(called(self.config, *words, "--json").stdout)


@contextmanager
def stopped_clock(now_s=NOW_S, zone="UTC"):
    """Stop the wall clock of this process, in a time zone."""
    try:
        with (
            patch("time.time", lambda: float(now_s)),
            patch("time.time_ns", lambda: now_s * 10**9),
            patch.dict(os.environ, {"TZ": zone}),
        ):
            time.tzset()
            yield
    finally:
        time.tzset()


def commands_of(name):
    """The commands of a recorded session."""
    text = (SNAPSHOTS / f"{name}.txt").read_text()
    return re.findall(r"^\$ costprobe (.+)$", text, re.MULTILINE)


def session(name, config, *replaced):
    """Run the commands of a recorded session, and compare what they print and their exit codes.

    JSON is also validated against its schema; its numbers are rounded, as the last digits of a sum
    differ between versions of Python.

    Args:
        name: Its file: lines "$ costprobe ...", each followed by the output; COSTPROBE_RECORD=1 writes it again.
        config: Path of the configuration; its folder is /host in the file.
        replaced: Pairs of what else differs from run to run, and what the file has in its place.
    """
    varying = [(str(config.parent), "/host"), *replaced]
    made = []
    for line in commands_of(name):
        typed = line
        for here, there in varying:
            typed = typed.replace(there, str(here))
        words = shlex.split(typed, comments=True)
        done = called(config, *words, code=None)
        if "--json" in words and done.exit_code == 0:
            checked(schema_name(words), done.stdout)
        made += [f"$ costprobe {line}", *done.output.splitlines()]
        made += [f"exit code {done.exit_code}"] * bool(done.exit_code)
    text = "\n".join([*(line.rstrip() for line in made), ""])
    for here, there in varying:
        text = text.replace(str(here), there)
    # Which sockets were tried follows the user and the machine.
    text = re.sub(r"no daemon answers \(.*?\)", "no daemon answers", text)
    text = re.sub(r"\d+\.\d+(?:e-?\d+)?", lambda number: _rounded(number[0]), text)
    same(name, text, masked=False)


def _rounded(number):
    return f"{float(number):.10g}" if len(number) > 14 else number


def schema_name(words):
    """The command of a line, as its schema names it."""
    flags = "".join(f" {flag}" for flag in ("--fleet", "--watch") if flag in words)
    names = (" ".join(words[:count]) + flags for count in range(len(words), 0, -1))
    return next(name for name in names if file_of(name).exists())


def same(name, text, *, masked=True):
    """Compare a text, if masked but for its times, with its file; COSTPROBE_RECORD=1 writes the file."""
    made = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]{3,4}", "TIME", text) if masked else text
    file = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("COSTPROBE_RECORD") == "1":
        file.parent.mkdir(exist_ok=True)
        file.write_text(made)
    texts = file.read_text().splitlines(), made.splitlines()
    diff = "\n".join(unified_diff(*texts, "recorded", "now", lineterm=""))
    assert not diff, f"{file}: if that is meant, run with COSTPROBE_RECORD=1\n{diff}"
