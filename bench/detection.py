"""The drift detector beside others on the same seeded streams: false alarms, delays, anomalies.

    python bench/detection.py [--seeds 20] [--jobs 2] [--cost] [--json FILE]

river's detectors are measured where river can be imported; they get the logarithm of the value.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import statistics
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from costprobe.domain.detection.detector import Detector  # noqa: E402 - the path first
from detection_cost import FED_DAYS, memory_of, speed_of  # noqa: E402 - the path first
from streams import PER_DAY, Recipe, Stream, changes, make, recipes  # noqa: E402 - as above
from table import Table, add_json, finish  # noqa: E402 - as above

MONTH_VALUES = 30 * PER_DAY
MISSED_AFTER = 3 * PER_DAY
UPDATES_PER_S_GOAL = 150_000
SPEED_VALUES = 20_000
# A thousand states of 16 kB, and half as much again for Python's own.
MEMORY_MB_GOAL = 24
COST_NOTE = (
    "ours tells drifts from anomalies, takes the day's pattern out and says since when; river's"
    " tell that something drifted"
)
KINDS = ("2 %", "5 %", "10 %", "30 %", "ramp 3 d", "ramp 14 d")
APART = {"weekends", "weekends, daily", "wander"}
WARM_UP = 36
QUIET = 36  # after an alarm, a plain score says nothing for so many values

Update = Callable[[float, float], list[str]]


def ours() -> Update:
    detector = Detector()
    return lambda time_s, value: [found.kind for found in detector.update(time_s, value)]


def score(*, is_robust: bool) -> Callable[[], Update]:
    """A rolling day's z-score of 3: with mean and deviation, or with median and MAD."""

    def build() -> Update:
        window: deque[float] = deque(maxlen=PER_DAY)
        state = {"quiet": 0, "middle": 0.0, "spread": 0.0, "age": 0}

        def update(_: float, value: float) -> list[str]:
            x = math.log(value)
            found = []
            if len(window) >= WARM_UP:
                if is_robust and state["age"] % 12 == 0:  # an hour's values move it little
                    middle = statistics.median(window)
                    state["middle"] = middle
                    state["spread"] = 1.4826 * statistics.median(abs(y - middle) for y in window)
                elif not is_robust and state["age"] % 12 == 0:
                    state["middle"] = statistics.fmean(window)
                    state["spread"] = statistics.pstdev(window)
                state["age"] += 1
                far = abs(x - state["middle"]) > 3 * max(state["spread"], 1e-9)
                if far and state["quiet"] <= 0:
                    found, state["quiet"] = ["drift"], QUIET
            state["quiet"] -= 1
            window.append(x)
            return found

        return update

    return build


def of_river(name: str) -> Callable[[], Update]:
    def build() -> Update:
        from river import drift

        kinds = {
            "ADWIN": drift.ADWIN,
            "Page-Hinkley": drift.PageHinkley,
            "KSWIN": lambda: drift.KSWIN(seed=1),
        }
        detector = kinds[name]()

        def update(_: float, value: float) -> list[str]:
            detector.update(math.log(value))
            return ["drift"] if detector.drift_detected else []

        return update

    return build


def detectors(*, alone: bool) -> dict[str, Callable[[], Update]]:
    found: dict[str, Callable[[], Update]] = {"costprobe": ours}
    if alone:
        return found
    try:
        import river  # noqa: F401 - looked for, not used here
    except ImportError:
        print("river is not installed: its detectors are left out (pip install river)\n")
    else:
        found |= {name: of_river(name) for name in ("ADWIN", "Page-Hinkley", "KSWIN")}
    return found | {"3-sigma": score(is_robust=False), "MAD score": score(is_robust=True)}


def found_in(stream: Stream, update: Update) -> tuple[list[int], set[int]]:
    """Indices at which drifts and anomalies were told."""
    drifts, anomalies = [], set()
    for index, (time_s, value) in enumerate(stream.points):
        for kind in update(time_s, value):
            if kind == "drift":
                drifts.append(index)
            else:
                anomalies.add(index)
    return drifts, anomalies


def quiet_job(job: tuple[str, int, bool]) -> list[tuple[str, float, float, int, int, int]]:
    """False drifts and anomalies of one seed's stationary streams."""
    name, seed, alone = job
    build = detectors_quietly(alone=alone)[name]
    rng = random.Random(seed)
    rows: list[tuple[str, float, float, int, int, int]] = []
    for family, recipe in recipes(rng):
        stream = make(recipe, rng)
        drifts, anomalies = found_in(stream, build())
        spikes = {index for index in stream.spikes if index >= WARM_UP}
        hits = len(spikes & anomalies)
        months = len(stream.points) / MONTH_VALUES
        rows.append((family, len(drifts), months, len(spikes), hits, len(anomalies)))
    return rows


def change_job(job: tuple[str, int, bool]) -> list[tuple[str, int | None, int]]:
    """Delay and number of reports for one seed's changes; None is missed."""
    name, seed, alone = job
    build = detectors_quietly(alone=alone)[name]
    rows = []
    for kind in KINDS:
        rng = random.Random(100_000 + seed)
        stream = make(changes(rng, kind), rng)
        rows.append((kind, *delay_of(stream, build())))
    return rows


def delay_of(stream: Stream, update: Update) -> tuple[int | None, int]:
    """Values from the first changed one to the report, both counted; and how many reports."""
    begun = stream.change_at or 0
    later = [index for index in found_in(stream, update)[0] if index >= begun]
    return (later[0] - begun + 1 if later else None), len(later)


def noise_job(job: tuple[float, float, int]) -> tuple[float, float, int | None]:
    """Delay of a 2 % step in one kind of noise."""
    sigma, phi, seed = job
    rng = random.Random(200_000 + seed)
    recipe = Recipe(
        16, sigma, phi, change=rng.choice((0.02, -0.02)), change_day=rng.uniform(10, 12)
    )
    return sigma, phi, delay_of(make(recipe, rng), ours())[0]


def detectors_quietly(*, alone: bool) -> dict[str, Callable[[], Update]]:
    return {"costprobe": ours} if alone else detectors(alone=False)


def median_of(delays: list[int | None]) -> str:
    known = sorted(math.inf if delay is None else delay for delay in delays)
    middle = statistics.median(known)
    return "never" if middle == math.inf else f"{middle:g}"


def missed(delays: list[int | None]) -> int:
    return sum(delay is None or delay > MISSED_AFTER for delay in delays)


def print_table(header: list[str], rows: Iterator[list[str]]) -> None:
    print("| " + " | ".join(header) + " |")
    print("|" + " --- |" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def cost(table: Table, *, alone: bool) -> None:
    """Adds what detectors cost: ours beside each of river's, at the same values."""
    builders = detectors_quietly(alone=alone)
    speeds = {name: speed_of(build, SPEED_VALUES) for name, build in builders.items()}
    memory_mb = {name: memory_of(build) for name, build in builders.items()}
    peers = [name for name in ("ADWIN", "Page-Hinkley", "KSWIN") if name in builders]
    missing = "" if peers or alone else "river is not installed: pip install costprobe[bench]"
    own_speed, own_mb = speeds["costprobe"], memory_mb["costprobe"]
    whose_turn: Sequence[str | None] = peers or [None]
    for name in whose_turn:
        whose = {"peer_name": f"river {name}"} if name else {}
        table.row(
            "updates a second of a core, one series",
            own_speed,
            "/s",
            peer=speeds.get(name or ""),
            goal=f"≥ {UPDATES_PER_S_GOAL:,}",
            note=missing or COST_NOTE,
            **whose,
        )
        table.row(
            "memory of a thousand series",
            own_mb,
            "MB",
            peer=memory_mb.get(name or ""),
            goal=f"≤ {MEMORY_MB_GOAL}",
            note=missing or f"resident, each fed with {FED_DAYS} days of values",
            **whose,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--base-seed", type=int, default=1000)
    parser.add_argument("--other-seeds", type=int, default=4, help="for the other detectors")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--cost", action="store_true", help="speed and memory alone: a minute")
    add_json(parser)
    options = parser.parse_args()
    table = Table(issue_line=7)
    cost(table, alone=options.ours_only)
    code = finish(table, options.json)
    if options.cost:
        sys.exit(code)
    print()
    names = list(detectors(alone=options.ours_only))

    def seeds(name: str) -> range:
        count = options.seeds if name == "costprobe" else min(options.seeds, options.other_seeds)
        return range(options.base_seed, options.base_seed + count)

    quiet: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    delays: dict[tuple[str, str], list[int | None]] = defaultdict(list)
    reports: dict[tuple[str, str], list[int]] = defaultdict(list)
    noise: dict[tuple[float, float], list[int | None]] = defaultdict(list)
    with multiprocessing.Pool(options.jobs) as pool:
        for name in names:
            jobs = [(name, seed, name == "costprobe") for seed in seeds(name)]
            for rows in pool.imap_unordered(quiet_job, jobs):
                for family, *numbers in rows:
                    quiet[name, family].append(tuple(numbers))
            more = [(name, seed, name == "costprobe") for seed in range(3 * len(jobs))]
            for found in pool.imap_unordered(change_job, more):
                for kind, delay, told in found:
                    delays[name, kind].append(delay)
                    reports[name, kind].append(told)
        cases = [
            (sigma, phi, seed)
            for sigma in (0.005, 0.01, 0.02)
            for phi in (0.0, 0.5)
            for seed in range(options.seeds)
        ]
        for sigma, phi, delay in pool.imap_unordered(noise_job, cases):
            noise[sigma, phi].append(delay)
    sys.exit(code if report(names, quiet, delays, reports, noise) else 1)


def report(names, quiet, delays, reports, noise) -> bool:
    """Prints the tables; True if every goal was met."""
    families = list(dict.fromkeys(family for _, family in quiet))

    def rate(name: str, wanted: set[str]) -> float:
        rows = [row for family in wanted for row in quiet[name, family]]
        return float(sum(row[0] for row in rows) / sum(row[1] for row in rows))

    stationary = set(families) - APART
    print("False drifts for each series and month\n")
    print_table(
        ["family", *names],
        iter(
            [
                *([f, *(f"{rate(name, {f}):.3f}" for name in names)] for f in families),
                [
                    "**all but weekends and wander**",
                    *(f"**{rate(name, stationary):.3f}**" for name in names),
                ],
            ]
        ),
    )
    print("Lasting changes: median delay in values, missed (not within 3 days) of all, reports\n")

    def cell(name: str, kind: str) -> str:
        found = delays[name, kind]
        mean = statistics.fmean(reports[name, kind])
        lost = missed(found) if "ramp" not in kind else sum(delay is None for delay in found)
        return f"{median_of(found)}, {lost} of {len(found)}, {mean:.1f}"

    print_table(
        ["change", *names], ([kind, *(cell(name, kind) for name in names)] for kind in KINDS)
    )
    print("A 2 % step in each noise: median delay of costprobe in values, missed\n")
    print_table(
        ["noise", "AR(1) 0", "AR(1) 0.5"],
        (
            [
                f"{sigma * 100:g} %",
                *(
                    f"{median_of(noise[sigma, phi])}, {missed(noise[sigma, phi])}"
                    for phi in (0, 0.5)
                ),
            ]
            for sigma in (0.005, 0.01, 0.02)
        ),
    )
    rows = [row for (name, _), found in quiet.items() if name == "costprobe" for row in found]
    spikes, hits, told = (sum(row[i] for row in rows) for i in (2, 3, 4))
    recall, precision = hits / spikes, hits / told
    builders = {"costprobe": ours, **detectors_quietly(alone=len(names) == 1)}
    speeds = {
        name: speed_of(builders[name], 60_000 if name == "costprobe" else 6_000) for name in names
    }
    print("Updates a second on one core\n")
    print_table(names, iter([[f"{speeds[name]:,.0f}" for name in names]]))
    price = price_called_drift()
    state = len(filled().state())
    goals = [
        ("false drift, all stationary", rate("costprobe", stationary), "≤", 0.05),
        ("false drift, worst family", max(rate("costprobe", {f}) for f in stationary), "≤", 0.3),
        ("false drift, weekends and wander", max(rate("costprobe", {f}) for f in APART), "<", 1),
        *(
            (f"median delay, {kind}", float(median_of(delays["costprobe", kind])), "≤", limit)
            for kind, limit in zip(KINDS, (12, 4, 3, 3, 130, 480), strict=True)
        ),
        ("steps missed", sum(missed(delays["costprobe", k]) for k in KINDS[:4]), "≤", 0),
        ("anomaly recall", recall, "≥", 0.99),
        ("anomaly precision", precision, "≥", 0.99),
        ("price changes called drift", price, "≤", 0),
        ("updates a second", speeds["costprobe"], "≥", UPDATES_PER_S_GOAL),
        ("state in bytes", state, "≤", 16_384),
    ]
    print("Goals\n")
    print_table(
        ["goal", "measured", "wanted", "met"],
        (
            [name, f"{value:,.4g}" if value < 1000 else f"{value:,.0f}", f"{how} {limit:,g}", met]
            for name, value, how, limit in goals
            for met in ["yes" if is_met(value, how, limit) else "**no**"]
        ),
    )
    return all(is_met(value, how, limit) for _, value, how, limit in goals)


def is_met(value: float, how: str, limit: float) -> bool:
    return {"≤": value <= limit, "<": value < limit, "≥": value >= limit}[how]


def filled() -> Detector:
    detector = Detector()
    stream = make(Recipe(20, 0.01, daily=0.05), random.Random(3))
    for time_s, value in stream.points:
        detector.update(time_s, value)
    return detector


def price_called_drift() -> int:
    """Drifts of the reference cost while the price doubles, falls back, and rises by a tenth.

    The analyst watches `cost_reference`, which is time and energy at the first price.
    """
    found = 0
    for seed in range(10):
        rng = random.Random(300_000 + seed)
        detector = Detector()
        for index, (time_s, time_per_inference) in enumerate(make(Recipe(30), rng).points):
            price = (1.0, 2.0, 1.0, 1.1)[index * 4 // (30 * PER_DAY)]
            cost, reference_price = price * time_per_inference, 1.0
            reference = cost * reference_price / price
            found += sum(f.kind == "drift" for f in detector.update(time_s, reference))
    return found


if __name__ == "__main__":
    main()
