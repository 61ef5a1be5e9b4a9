"""Scripted cost changes with their causes: a benchmark for programs that explain a change.

    python bench/cause_cases.py run [--cases 260] [--seed 1000] [--large]
    python bench/cause_cases.py write FOLDER [--cases 260] [--seed 1]
    python bench/cause_cases.py score ANSWERS.json [--cases 260] [--seed 1]

`write` writes a folder with the rows of each case as CSV (`0007.runs.csv`, `0007.events.csv`) and the truth
of all (`truth.json`); `score` compares a JSON file of answers with it; `run` scores costprobe itself.
An answer by the case's number:

    {"0007": {"first": "cooling", "metric": "cost", "shares": {"cooling": 0.8, "unknown": 0.2}}}

`first` is empty, or the case is omitted, if nothing is reported. With `--large` the cases are
changes by a factor of 3 and more that no signal measures.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from case_answers import answer_of
from case_rows import START_S, rows_of
from case_scores import CaseAnswer, Score, print_scores, score_of
from cases import cases, large_cases
from costprobe.core.records import NS_PER_S, Point
from scripted_case import ScriptedCase

METRICS = ("cost", "latency", "energy", "throughput")
DIGITS = 4


def own_score(case: ScriptedCase) -> Score:
    """Score costprobe in a case."""
    return score_of(case, answer_of(case))


def write(folder: Path, chosen: Sequence[ScriptedCase]) -> None:
    """Write the rows and the truth of cases into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    truth = {}
    for number, case in enumerate(chosen):
        rows = rows_of(case)
        # A run is its rows of `probe` and `cost`, which share a time.
        runs: dict[int, dict[str, object]] = {}
        for row in rows:
            if row.measurement != "event":
                tags = {name: row.tags[name] for name in ("batch", "currency") if name in row.tags}
                runs.setdefault(row.time_ns, {}).update({**tags, **row.fields})
        events = [row for row in rows if row.measurement == "event"]
        _write_csv(folder / f"{number:04}.runs.csv", [(at, runs[at]) for at in sorted(runs)])
        _write_csv(folder / f"{number:04}.events.csv", [_event(row) for row in events])
        truth[f"{number:04}"] = truth_of(case)
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def truth_of(case: ScriptedCase) -> dict[str, object]:
    """Return what should be reported of a case."""
    start = datetime.fromtimestamp(START_S, UTC)
    shares = {metric: case.shares(metric) for metric in METRICS}
    return {
        "family": case.family,
        "seed": case.seed,
        "first": sorted(case.first_causes()),
        "onset": f"{start + timedelta(hours=case.onset_h):%Y-%m-%dT%H:%M:%SZ}"
        if case.changes
        else None,
        "shares": {
            metric: {name: round(share, DIGITS) for name, share in found.items()}
            for metric, found in shares.items()
        },
    }


def read_answers(path: Path) -> dict[str, CaseAnswer]:
    """Read the answers of another program.

    Raises:
        SystemExit: The file is not as described.
    """
    try:
        return {
            number: CaseAnswer(
                first=str(answer["first"]),
                metric=str(answer.get("metric", "cost")),
                shares={str(name): float(share) for name, share in answer["shares"].items()},
            )
            for number, answer in json.loads(path.read_text()).items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"{path}: {error!r}: expected {{number: {{first, metric, shares}}}}")


def _event(row: Point) -> tuple[int, dict[str, object]]:
    return row.time_ns, {"kind": row.tags["kind"], **row.fields}


def _write_csv(path: Path, rows: Sequence[tuple[int, dict[str, object]]]) -> None:
    names = dict.fromkeys(name for _, fields in rows for name in fields)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["time", *names])
        writer.writeheader()
        for time_ns, fields in rows:
            moment = datetime.fromtimestamp(time_ns // NS_PER_S, UTC)
            writer.writerow({"time": f"{moment:%Y-%m-%dT%H:%M:%SZ}", **fields})


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    run, write_command, score = (commands.add_parser(name) for name in ("run", "write", "score"))
    write_command.add_argument("folder", type=Path)
    score.add_argument("answers", type=Path)
    for command in (run, write_command, score):
        command.add_argument("--cases", type=int, default=260)
        command.add_argument("--seed", type=int, default=1000 if command is run else 1)
        command.add_argument("--large", action="store_true")
    run.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    make = large_cases if options.large else cases
    chosen = list(make(options.cases, options.seed))
    if options.command == "write":
        write(options.folder, chosen)
        return
    if options.command == "score":
        answers = read_answers(options.answers)
        scores = [
            score_of(case, answers.get(f"{number:04}", CaseAnswer()))
            for number, case in enumerate(chosen)
        ]
    else:
        with multiprocessing.Pool(options.jobs) as pool:
            scores = pool.map(own_score, chosen, chunksize=4)
    sys.exit(0 if print_scores(scores) else 1)


if __name__ == "__main__":
    main()
