"""A folder with a store and a configuration, and `costprobe` commands on them."""

import json
import os
import re
import time
from contextlib import closing
from pathlib import Path

from costprobe.adapters.store.write import Store
from fakes.clock import FakeClock
from fakes.command import called

SNAPSHOTS = Path(__file__).parents[1] / "ui" / "cli" / "snapshots"


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


def same(name, text, *, masked=True):
    """Compare a text, if masked but for its times, with its file; COSTPROBE_RECORD=1 writes the file."""
    made = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]{3,4}", "TIME", text) if masked else text
    file = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("COSTPROBE_RECORD") == "1":
        file.parent.mkdir(exist_ok=True)
        file.write_text(made)
    assert made == file.read_text()
