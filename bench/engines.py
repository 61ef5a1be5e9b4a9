"""Drive real serving engines with a known load, and write what was counted as a dated table.

    python bench/engines.py            # all: an hour, and about 15 GB in the folder of temporary files
    python bench/engines.py -k vllm

Further arguments are passed to pytest. The results of engines that did not run are kept.
"""

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from soak import RESULTS, kept, run

HEAD = """# {day}: real serving engines on a CPU

`python bench/engines.py`: each engine serves a tiny model with random weights. A client sends a known load of answers, streams,
errors and aborted calls, before and after the server was killed and started again. Counted is what the daemon's rows of `serving`
add up to; ranges are calls whose client went away. {machine}.

"""
COLUMNS = (
    "| engine | requests: client | counted | refused: client | errors counted | tokens in: client | counted"
    " | tokens out: client | counted | incomplete windows |\n" + "| --- " * 10 + "|"
)
TIMES = (
    "\n\nA probe of each, between two measurements of the client: median ms of a call.\n\n"
    "| engine | client before | probe | client after | requests of the probe | counted |\n"
    + "| --- " * 6
    + "|"
)


def number(value: float | None) -> str:
    """Format a count; a measure that the engine does not count is "none"."""
    return "none" if value is None else f"{value:,.0f}"


def up_to(low: int, more: int) -> str:
    """Format what the client knows of a count: a number, or the lowest and highest value."""
    return f"{low:,}" if not more else f"{low:,} to {low + more:,}"


def windows_row(case: Mapping[str, Any]) -> str:
    """Format the counts of an engine beside those of its client."""
    sent, counted = case["client"], case["counted"]
    cells = (
        case["engine"],
        up_to(sent["requests"], sent["aborted"]),
        number(counted.get("requests")),
        number(sent["refused"]),
        number(counted.get("errors")),
        up_to(sent["tokens_in"], sent["aborted_tokens_in"]),
        number(counted.get("tokens_in")),
        up_to(sent["tokens_out"], sent["aborted_tokens_out"]),
        number(counted.get("tokens_out")),
        number(case["incomplete"]),
    )
    return f"| {' | '.join(cells)} |"


def probe_row(case: Mapping[str, Any]) -> str:
    """Format the time of a probe beside those of the client."""
    before_ms, after_ms = case["client_ms"]
    times = (f"{value:.1f}" for value in (before_ms, case["probe_ms"], after_ms))
    counts = number(case["sent"]), number(case["counted"].get("requests"))
    return f"| {' | '.join((case['engine'], *times, *counts))} |"


def other_lines(cases: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Format the remaining cases, each as a line."""
    for name, case in sorted(cases.items()):
        if not name.endswith((": windows", ": probe")):
            yield f"- {name}: `{json.dumps(case)}`"


def page(cases: Mapping[str, Mapping[str, Any]], day: str) -> str:
    """Format all results as Markdown."""
    machine = f"{os.cpu_count()} cores shared with other work, Python {platform.python_version()}"
    windows = [windows_row(case) for name, case in cases.items() if name.endswith(": windows")]
    probes = [probe_row(case) for name, case in cases.items() if name.endswith(": probe")]
    tables = "\n".join((COLUMNS, *windows)) + "\n".join((TIMES, *probes))
    head, others = HEAD.format(day=day, machine=machine), "\n".join(other_lines(cases))
    return f"{head}{tables}\n\n{others}\n"


def main() -> None:
    """Run the tests, write their results, and exit with the exit code of pytest."""
    code, found = run(["-m", "soak", "tests/engines", *sys.argv[1:]])
    day = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    (RESULTS / f"{day}-engines.md").write_text(page(kept("engines.json", found), day))
    sys.exit(code)


if __name__ == "__main__":
    main()
