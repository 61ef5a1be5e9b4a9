"""Compare load points and calibrations with a real vLLM on the CPU, and write a dated page of the results.

    python bench/vllm.py -k agrees          # the load points beside `vllm bench serve`
    python bench/vllm.py -k serial          # the division between prompt and generated tokens
    python bench/vllm.py -k chunked         # the same with chunked prefill

Each takes 18 to 40 minutes, and needs two processor cores without other work; without an option all of them run.

Further arguments are passed to pytest, which runs the soak tests of `tests/engines`. Results of tests that
did not run are kept.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from soak import MACHINE, RESULTS, kept, run

TESTS = ("tests/engines/test_real_load.py", "tests/engines/test_real_calibration.py")
HEAD = """# {day}: load points and calibration on a real vLLM on the CPU

`python bench/vllm.py`: {machine}. Results of earlier runs that were not repeated are kept, each with its date.
"""
LOAD = """
## {name}

{when}, {runs} runs of each, load average before {load}. Medians of ours and of `vllm bench serve`, and the mean of their ratios in each
run, with the interval of 95 %: over requests that began within a window under constant load, and against the figures
that it prints, which include the rise and the fall of the load. `shown`: the interval is within 2 %.

| figure | ours | theirs | same definition | shown | as printed |
| --- | --- | --- | --- | --- | --- |
"""
SPLIT = """
## {name}

{when}, load average before {load}. Share of the prompt tokens in the device time by the calibration, and in the time of the engine's steps.
Milliseconds of a prompt token and of a generated token. `busy`: share of the window in which the engine ran steps.

| load | ours | engine | points | of the smaller share | ours ms in, out | engine ms in, out | busy |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
BOUND = 0.02


def load_rows(case: Mapping[str, Any]) -> Iterator[str]:
    """Format the comparison of a load."""
    for name, found in case["figures"].items():
        (ratio, low, high), printed = found["same_definition"], found["as_printed"]
        shown = "yes" if low >= 1 - BOUND and high <= 1 + BOUND else "**no**"
        yield (
            f"| {name} | {found['ours']:.3f} | {found['theirs']:.3f} | {ratio:.4f} ({low:.4f} to {high:.4f})"
            f" | {shown} | {printed[0]:.4f} ({printed[1]:.4f} to {printed[2]:.4f}) |"
        )


def split_rows(case: Mapping[str, Any]) -> Iterator[str]:
    """Format the comparison of the calibrations."""
    for row in case["rows"]:
        ours, engine = row["ours_pct"], row["engine_pct"]
        apart = ours - engine
        relative = 100 * abs(apart) / min(engine, 100 - engine)
        cells = (
            row["name"],
            f"{ours:.1f} %",
            f"{engine:.1f} %",
            f"{apart:+.1f}",
            f"{relative:.0f} %",
            ", ".join(f"{each:.3g}" for each in row["ours_ms"]),
            ", ".join(f"{each:.3g}" for each in row["engine_ms"]),
            f"{100 * row['busy_share']:.0f} %",
        )
        yield f"| {' | '.join(cells)} |"


def page(cases: Mapping[str, Mapping[str, Any]], day: str) -> str:
    """Format all results as Markdown."""
    text = HEAD.format(day=day, machine=MACHINE)
    for name, case in sorted(cases.items()):
        head, rows = (LOAD, load_rows(case)) if "figures" in case else (SPLIT, split_rows(case))
        text += head.format(name=name, **case) + "\n".join(rows) + "\n"
    return text


def main() -> None:
    """Run the tests, write and print their results, and exit with the exit code of pytest."""
    now, before = datetime.now(tz=UTC), os.getloadavg()[0]
    code, found = run(["-n0", "-q", "-rs", "-m", "soak", *TESTS, *sys.argv[1:]])
    about = {"when": f"{now:%Y-%m-%d %H:%M} UTC", "load": round(before, 2)}
    cases = kept("vllm.json", {name: {**case, **about} for name, case in found.items()})
    text = page(cases, f"{now:%Y-%m-%d}")
    (RESULTS / f"{now:%Y-%m-%d}-vllm.md").write_text(text)
    print(text)
    sys.exit(code)


if __name__ == "__main__":
    main()
