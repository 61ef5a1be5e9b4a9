"""The record: what the program makes of fixed inputs, as files that a refactoring must not change.

    COSTPROBE_RECORD=1 .venv/bin/python -m pytest TESTS...

writes the files in `fixtures` of these tests again; without the variable each test compares its result with its
file, byte for byte. A difference means that a number, a name or a text has changed. All inputs are
literals, seeded streams and fake clocks; the path of the store and the URLs of servers are replaced.
"""

import json
import os
import time
from contextlib import closing, contextmanager
from pathlib import Path

from costprobe.adapters.store.read import StoreReader
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import SCHEMA
from fakes.command import called

INPUTS = Path(__file__).parent / "inputs"
FIXTURES = Path(__file__).parent / "fixtures"
END_NS = 2**62
# A case and its outcome stand on one line up to so many characters.
LINE = 110


def input_text(name, **values):
    """Return the text of an input with these values in the places that it has for them."""
    text = (INPUTS / name).read_text()
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", str(value))
    return text


def check(name, made, replaced=()):
    """Compare a text, or a document as compact JSON, with its file; see the module.

    Args:
        name: Name of the file.
        made: A text, bytes in UTF-8, or any JSON value.
        replaced: Pairs of what differs from run to run, and what the file has in its place.
    """
    if isinstance(made, bytes):
        made = made.decode()
    elif not isinstance(made, str):
        made = _compact(made)
    for varying, fixed in replaced:
        made = made.replace(str(varying), fixed)
    file = FIXTURES / name
    if os.environ.get("COSTPROBE_RECORD") == "1":
        file.write_bytes(made.encode())
    recorded = file.read_bytes().decode()
    if made != recorded:
        lines = zip([*made.split("\n"), None], [*recorded.split("\n"), None], strict=False)
        number, (now, before) = next(
            (number, pair) for number, pair in enumerate(lines, 1) if pair[0] != pair[1]
        )
        raise AssertionError(f"{name}, line {number}\nrecorded: {before}\nnow:      {now}")


def check_outcomes(name, outcome_of, errors=ValueError):
    """Compare what a function makes of each case of a file with its outcome there.

    Args:
        name: Name of the file: JSON pairs of a case and its outcome; that of a new case is null until recorded.
        outcome_of: Returns a JSON value of a case, which is a text, else its JSON; floats are recorded with
            twelve digits.
        errors: The class of errors that are recorded as their texts.
    """
    pairs = []
    for case, _ in json.loads((FIXTURES / name).read_bytes()):
        try:
            made = outcome_of(case if isinstance(case, str) else json.dumps(case))
            outcome = json.loads(json.dumps(made), parse_float=_twelve_digits)
        except errors as error:
            outcome = f"{errors.__name__}: {error}"
        given, made = json.dumps(case, ensure_ascii=False), _line(outcome)
        gap = " " if len(given) + len(made) < LINE else "\n  "
        pairs.append(f"[{given},{gap}{made}]")
    check(name, "[\n" + ",\n".join(pairs) + "\n]\n")


def _twelve_digits(text):
    """Return a float without the last digits, which sum() of Python 3.12 has others of."""
    return float(f"{float(text):.12g}")


def _compact(document):
    """Return a document as JSON in its own order of keys: one line for each entry of the first level."""
    if isinstance(document, dict):
        entries = [f"{json.dumps(key)}:{_line(value)}" for key, value in document.items()]
        return "{\n" + ",\n".join(entries) + "\n}\n"
    if isinstance(document, list):
        return "[\n" + ",\n".join(map(_line, document)) + "\n]\n"
    return _line(document) + "\n"


def _line(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def rows(path, measurements=tuple(SCHEMA)):
    """Return the stored rows of measurements as line protocol."""
    with closing(StoreReader.open(path)) as reader:
        lines = [line for name in measurements for line in reader.lines(0, END_NS, name)]
    return "\n".join([*lines, ""])


def documents(path):
    """Return the totals, and the state documents with the times of their last changes."""
    with closing(StoreReader.open(path)) as reader:
        totals = [[each.name, each.labels, str(each.value)] for each in reader.totals()]
        states = {name: list(state) for name, state in reader.states().items()}
    return {"totals": totals, **states}


@contextmanager
def wall_clock_at(time_ns):
    """Stop the wall clock of this process: commands read it from the standard library."""
    clocks = time.time, time.time_ns
    time.time, time.time_ns = lambda: time_ns / NS_PER_S, lambda: time_ns
    try:
        yield
    finally:
        time.time, time.time_ns = clocks


def printed(config, time_ns, *words, code=0):
    """Return what a command prints at a UTC ns, in a terminal of 100 columns."""
    with wall_clock_at(time_ns):
        return called(config, *words, code=code, env={"COLUMNS": "100", "NO_COLOR": "1"}).stdout
