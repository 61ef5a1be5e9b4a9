"""No text of the store, a server or a silence controls the terminal or forges a line of output."""

import csv
import io
import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.core.outside import csv_cell, from_csv_cell, one_line
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from costprobe.ui.cli.main import main
from fakes.cases import check_all
from fakes.rows import status

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2066\r\nFORGED line\n\x00\u200b\u2028\x7f\x1b[31mx"
FORMULA = "=HYPERLINK(1)"
# Replaced in the file by ESCAPES, which a writer would clean.
MARK = "HOSTILE"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LAST_HOURS = 3
# Each with words of its output: otherwise the test would be empty.
SHOWN = {
    ("status",): "HYPERLINK",
    ("alerts",): "FORGED",
    ("alerts", "history"): "",
    ("trend", "--since", "1d", "--plot"): "FORGED",
    ("trend", "--since", "1d", "--csv"): "FORGED",
    ("compare", "--since", "1d", "--plot"): "FORGED",
    ("export", "--format", "csv"): "FORGED",
    ("export", "--format", "json"): "FORGED",
    ("export", "--format", "focus"): "FORGED",
    ("report", "--since", "1d", "--format", "md"): "FORGED",
    ("report", "--since", "1d", "--format", "csv"): "FORGED",
    ("report", "--since", "1d", "--format", "html"): "FORGED",
    ("price", "history", "--since", "1d"): "FORGED",
    ("explain", "--since", "1h"): "FORGED",
    ("sink", "rejected"): "",
    ("savings",): "",
    ("store", "check"): "",
    ("status", "--watch"): "FORGED",
    ("config", "show"): "",
}


def rows(time_ns):
    tags = {"host": f"{FORMULA}{MARK}", "device": f"gpu0{MARK}", "currency": "EUR"}
    probed = {**tags, "probe": f"{FORMULA}{MARK}", "basis": "probe", "plan": f"owned{MARK}"}
    cost = {"cost_per_inference": 1e-6, "cost_reference": 1e-6}
    event = {"title": f"{FORMULA}{MARK}", "detail": MARK, "before": MARK, "after": MARK}
    yield make_point("cost", probed, cost, time_ns)
    yield make_point(
        "probe", {**tags, "probe": FORMULA, "batch": "1"}, {"latency_p50_ms": 3.5}, time_ns
    )
    device = {**tags, "model": MARK, "kind": "gpu", "team": MARK}
    yield make_point("device", device, {"cost": 0.01}, time_ns)
    for kind in ("price", "fault"):
        yield make_point("event", {**tags, "kind": kind, "severity": "warning"}, event, time_ns)


@pytest.fixture(scope="module")
def configured(tmp_path_factory):
    """A store whose texts are hostile; returns the configuration file."""
    folder = tmp_path_factory.mktemp("hostile")
    clock = SystemClock()
    store = Store.open(folder / "costprobe.db", clock)
    now_ns = clock.time_ns()
    for minute in range(LAST_HOURS * 60, 0, -10):
        store.append(list(rows(now_ns - minute * 60 * NS_PER_S)))
    name = f"x{ESCAPES}"
    alert = {"id": "a", "name": name, "state": "firing", "severity": "warning", "cause": name}
    more = {"labels": {"device": name}, "summary": name, "symptoms": [{"text": name}] * 2}
    silence = {"id": name, "match": {"device": name}, "starts_ns": 0, "ends_ns": now_ns * 2}
    store.put_state(
        "alerts",
        {
            "alerts": [{**alert, **more, "since_ns": now_ns, "is_flapping": False}],
            "silenced": [],
            "silences": [{**silence, "comment": name, "author": name}],
        },
    )
    name = FORMULA + ESCAPES
    sinks = {name: {"state": "", "retry_in_s": 1.0, "last_error": ""}}
    document = status(Path("/x"), "", 1, [""], sinks=sinks)
    store.put_state("status", {**hostile(document, name), "state": "running"})
    store.close()
    with closing(sqlite3.connect(folder / "costprobe.db")) as connection, connection:
        written = json.dumps(ESCAPES)[1:-1]
        connection.execute("UPDATE series SET tags = replace(tags, ?, ?)", (MARK, written))
        raw = ESCAPES.replace("\0", "")
        connection.execute("UPDATE points SET fields = replace(fields, ?, ?)", (MARK, raw))
    path = folder / "costprobe.toml"
    path.write_text(f'[store]\npath = "{folder / "costprobe.db"}"\n')
    return path


def hostile(value, name):
    """A document whose texts are all a name."""
    if isinstance(value, dict):
        return {key: hostile(inner, name) for key, inner in value.items()}
    if isinstance(value, list):
        return [hostile(inner, name) for inner in value]
    return name if isinstance(value, str) or value is None else value


def output_of(configured, arguments):
    result = CliRunner().invoke(main, ["-c", str(configured), *arguments], color=True)
    assert not result.exception or isinstance(result.exception, SystemExit), result.exception
    return result.output


def test_output_of_commands_is_printable_and_csv_has_no_formula(configured):
    def is_printable(arguments, words):
        text = output_of(configured, arguments)
        assert words in text, text[:300]
        odd = {mark for mark in COLOUR.sub("", text) if not mark.isprintable()} - {"\n"}
        # CSV of the terminal ends lines by \r\n.
        assert odd <= ({"\r"} if {"csv", "--csv"} & {*arguments} else set()), odd
        assert not [line for line in text.splitlines() if line.strip().startswith("FORGED")]
        if {"csv", "--csv", "focus"} & {*arguments}:
            cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
            assert [cell for cell in cells if cell.startswith(("=", "+", "@", "\t", "\r"))] == []
            assert "'=HYPERLINK(1)" in "".join(cells)

    check_all(is_printable, SHOWN.items())


def test_cells_are_neutralized_and_numbers_stay():
    def is_safe(text, cell):
        assert csv_cell(text) == cell
        assert from_csv_cell(csv_cell(text)) == one_line(text)

    cases = {
        "=1+1": "'=1+1",
        "+1-1": "'+1-1",
        "-1+cmd|'/c calc'!A0": "'-1+cmd|'/c calc'!A0",
        "@SUM(1)": "'@SUM(1)",
        "-0.5": "-0.5",
        "+1e-05": "+1e-05",
        "-inf": "'-inf",
        "a=b": "a=b",
        "'quoted'": "'quoted'",
        "": "",
        '{"a": "\u009b\u202e b\u202e"}': '{"a": " b "}',
    }
    check_all(is_safe, cases.items())
    for text in ("\t=1", "\r=1", "\n=1", "\u200b=1", " =1", "\uff1d1+1"):
        assert csv_cell(text).startswith("'")


def test_damaged_rows_end_a_command_with_one_line(configured, tmp_path):
    store = tmp_path / "costprobe.db"
    shutil.copy(configured.with_name("costprobe.db"), store)
    path = tmp_path / "costprobe.toml"
    path.write_text(f'[store]\npath = "{store}"\n')
    for fields in ("x=[[", "x=1e999,y=", b"\xff\x00"):
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("UPDATE points SET fields = ?", (fields,))
        for arguments in (("export", "--format", "csv"), ("compare",), ("price", "history")):
            result = CliRunner().invoke(main, ["-c", str(path), *arguments])
            assert isinstance(result.exception, SystemExit), result.exception
            assert "is damaged" in result.output
            assert len(result.output.splitlines()) <= 2
