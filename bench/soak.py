"""Run the fault tests and real serving engines at full length, and record their figures in bench/results/soak.json.

    python bench/soak.py              # all: many hours
    COSTPROBE_SOAK=0.1 python bench/soak.py -k kills

Further arguments are passed to pytest. The figures of cases that did not run are kept.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CASES = ("tests/faults", "tests/drift/test_named_causes.py", "tests/engines")
RESULTS = ROOT / "bench" / "results"
KEPT = "soak.json"
MACHINE = f"{os.cpu_count()} cores, Python {platform.python_version()}"


def run(command: Sequence[str], **env: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run pytest with arguments; return its exit code and the figures of the cases."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(os.environ.get("COSTPROBE_SOAK_FIGURES") or Path(folder) / "figures.jsonl")
        env = {**os.environ, **env, "COSTPROBE_SOAK_FIGURES": str(path)}
        full = [sys.executable, "-m", "pytest", *command]
        code = subprocess.run(full, cwd=ROOT, env=env, check=False).returncode
        return code, read(path)


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the figures of a run by case."""
    lines = path.read_text().splitlines() if path.exists() else []
    by_case = {}
    for line in lines:
        figures = json.loads(line)
        by_case[figures.pop("case")] = figures
    return by_case


def shown(value: object) -> str:
    """Format a figure."""
    if isinstance(value, dict):
        return "; ".join(f"{name} {shown(inner)}" for name, inner in sorted(value.items()))
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    return f"{value:,}" if isinstance(value, int) else f"{value}"


def table(cases: Mapping[str, Mapping[str, Any]]) -> str:
    """Format all figures as a Markdown table."""
    lines = ["| case | date, machine | result |", "| --- | --- | --- |"]
    for case, entry in sorted(cases.items()):
        figures = ", ".join(
            f"{name.replace('_', ' ')}: {shown(value)}" for name, value in entry["figures"].items()
        )
        lines.append(f"| {case} | {entry['when']}, {entry['where']} | {figures} |")
    return "\n".join(lines)


def kept(name: str, found: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Add the cases of a run to those of earlier runs in a file of results, and return all of them."""
    path = RESULTS / name
    cases: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    cases |= found
    path.write_text(json.dumps(cases, indent=1, sort_keys=name == KEPT) + "\n")
    return cases


def main() -> None:
    """Run the cases, record their figures, and exit with the exit code of pytest."""
    share = os.environ.get("COSTPROBE_SOAK") or "1"
    code, found = run(["-m", "not gpu", *CASES, *sys.argv[1:]], COSTPROBE_SOAK=share)
    about = {"when": f"{datetime.now(tz=UTC):%Y-%m-%d}", "where": MACHINE}
    print(table(kept(KEPT, {case: {**about, "figures": each} for case, each in found.items()})))
    sys.exit(code)


if __name__ == "__main__":
    main()
