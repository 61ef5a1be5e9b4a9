"""Run the tests that take hours, and keep their figures in bench/results.

    python bench/soak.py faults       # the fault tests at full length: docs/reliability.md has their figures
    COSTPROBE_SOAK=0.1 python bench/soak.py faults -k kills
    python bench/soak.py engines      # real serving engines: an hour, 15 GB in the folder of temporary files
    python bench/soak.py vllm -k agrees   # load points beside `vllm bench serve`, on two cores without other work
    python bench/soak.py vllm -k serial   # prompt and generated tokens, beside the engine's own steps

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
# Arguments of pytest.
SUITES = {
    "faults": ("-m", "not gpu", "tests/faults", "tests/drift/test_named_causes.py"),
    "engines": ("-m", "soak", "tests/engines"),
    "vllm": (
        *("-n0", "-q", "-rs", "-m", "soak"),
        *("tests/engines/test_real_load.py", "tests/engines/test_real_calibration.py"),
    ),
}
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = ROOT / "bench" / "results"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


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


def keep(path: Path, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Add cases to those of earlier runs, and return all."""
    cases = dict[str, Any](json.loads(path.read_text())) if path.exists() else {}
    cases.update(found)
    path.write_text(json.dumps(cases, indent=1, sort_keys=True) + "\n")
    return cases


def main() -> None:
    """Run a suite, record its figures, and exit with the exit code of pytest."""
    suite, *more = sys.argv[1:] or [""]
    if suite not in SUITES:
        sys.exit(f"usage: soak.py {{{','.join(SUITES)}}} [ARGUMENT OF PYTEST ...]")
    when, load = f"{datetime.now(tz=UTC):%Y-%m-%d %H:%M} UTC", round(os.getloadavg()[0], 2)
    share = os.environ.get("COSTPROBE_SOAK") or "1"
    code, found = run([*SUITES[suite], *more], COSTPROBE_SOAK=share)
    if suite == "faults":
        about = {
            "when": when.partition(" ")[0],
            "where": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        }
        cases = keep(
            RESULTS / "soak.json", {name: {**about, "figures": one} for name, one in found.items()}
        )
        before, _, rest = PAGE.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{table(cases)}\n{END}{after}")
        print(table(cases))
    else:
        found = {name: {**one, "when": when, "load": load} for name, one in found.items()}
        keep(RESULTS / f"{suite}.json", found)
        print(json.dumps(found, indent=1))
    sys.exit(code)


if __name__ == "__main__":
    main()
