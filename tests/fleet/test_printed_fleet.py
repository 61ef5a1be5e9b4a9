"""What the commands over a fleet print, as recorded; the figures are tested on the databases."""

from dataclasses import replace

import pytest
from costprobe.adapters.databases.kinds import READERS
from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S
from fakes import fleet, fleet_gpus, watched_fleet
from fakes.cli import same
from fakes.command import called, of_fleet
from fakes.fleet_answers import RowsReader
from fakes.page_examples import missing_lines
from fakes.watched_fleet import CHECKS, NOW_S, SILENT

WATCHED = watched_fleet.fleet_rows(NOW_S, dict(SILENT), watched_fleet.ROLLED_OUT_S)
# Services waited for a quarter of their cost.
FLEET = [
    replace(row, fields={**row.fields, "cost_idle": row.fields["cost_total"] / 4})
    if "cost_idle" in row.fields
    else row
    for row in fleet.rows()
]
# Rows, hours before NOW_S, and commands.
COMMANDS = (
    (FLEET, 2, ("status", "status --by label:rack", "spend --by host", "spend --csv", "spend --by label:nope",
                       "compare --by label:rack", "compare --by driver", "savings", "savings --by host --csv",
                       "report --by label:rack")),
    (fleet_gpus.rows(), 4, ("outliers --within label:rack", "outliers --csv", "change driver --window 1h",
                            "change driver --window 1h --csv", "change torch --window 1h")),
    (WATCHED, None, ("watch --once", "budget", "forecast --period year --amount 1", "forecast --csv")),
)  # fmt: skip


@pytest.fixture
def at_now(monkeypatch):
    monkeypatch.setattr("time.time_ns", lambda: NOW_S * NS_PER_S)
    monkeypatch.setattr("time.time", lambda: float(NOW_S))


@pytest.mark.usefixtures("at_now")
def test_commands_of_a_fleet_print_what_is_recorded(tmp_path, monkeypatch):
    path = tmp_path / "costprobe.toml"
    path.write_text(f'[fleet]\nkind = "prometheus"\nurl = "http://127.0.0.1:9"\n{CHECKS}')
    printed = []
    for rows, hours, commands in COMMANDS:
        reader = RowsReader(list(rows))
        monkeypatch.setitem(READERS, "prometheus", lambda *_, reader=reader: reader)
        period = hours and ("--since", iso((NOW_S - hours * 3600) * NS_PER_S))
        period = period and (*period, "--until", iso(NOW_S * NS_PER_S))
        for words in commands:
            done = called(path, *of_fleet(*words.split()), *(period or ()))
            printed += [f"$ costprobe {' '.join(of_fleet(*words.split()))}", done.output]
    same("fleet", "\n".join(printed), masked=False)
    assert missing_lines("fleet.md", "\n".join(printed)) == []
