"""What of a probe's time is work for nothing: neither warm-up nor measured; and a day's share.

    python bench/probing.py [--runs 3] [--json FILE]

Runs the built-in probe on the first GPU, or on the CPU where there is none, at the defaults, with a
child for each run and with one that is kept, with an energy window and without; the batch is the
remembered one, as in all runs of a daemon but its first. Outside is a run's wall time, from the
daemon's side, less that from the first warm-up pass to the end of the last measured one: starting
Python, importing torch, opening the device, making the model. A day is what the daemon's own budget
lets run of the default schedule with the times that were measured here.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from table import Table, add_json, finish  # noqa: E402 - the path first

from agent.clock import SystemClock  # noqa: E402 - as above
from agent.config import Config  # noqa: E402 - as above
from agent.config_probe import ProbeConfig  # noqa: E402 - as above
from agent.daemon.probe_requests import model_request  # noqa: E402 - as above
from agent.model import Device  # noqa: E402 - as above
from agent.probing.duty import DutyBudget  # noqa: E402 - as above
from agent.probing.outcome import ProbeFault, ProbeOutcome, ProbeProgress  # noqa: E402 - as above
from agent.probing.runner import ProbeRunner  # noqa: E402 - as above

DAY_S = 86_400
NS = 1_000_000_000
WARM_UP_CAP_S = 10.0  # probes.timing: what the progress of a warm-up is a share of
# What is left beside a kept child: its answers on the pipe and the copy to the device.
KEPT_GOAL_PCT = 5
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Run(NamedTuple):
    """One run of a probe, in seconds.

    Attributes:
        wall_s: From the request to the result, and to the child's end where it is not kept.
        measured_s: Warm-up and measured regions.
        busy_s: What the budget counts.
        cpu_s: Processor time of the child.
        resident_mb: Memory of the child at the end, where it is kept; else 0.
    """

    wall_s: float
    measured_s: float
    busy_s: float
    cpu_s: float
    resident_mb: float

    @property
    def outside_pct(self) -> float:
        """Share of the wall time that went into neither."""
        return (1 - self.measured_s / self.wall_s) * 100


def the_device() -> Device:
    """The first GPU, as the driver names it, or the CPU."""
    if Path("/proc/driver/nvidia/version").exists():
        from agent.telemetry.gpu import GpuSensor
        from agent.telemetry.nvml import Library

        library = Library()
        library.open()
        return GpuSensor(0, library, SystemClock(), lambda _: None).open()
    return Device("cpu", "cpu", "cpu", "CPU")


class Bench:
    """A probe's runs on one device.

    Args:
        device: Where.
        probe: What, with the defaults.
    """

    def __init__(self, device: Device, probe: ProbeConfig) -> None:
        self._device = device
        self._probe = probe
        self._remembered: dict[str, object] = {}

    def runs(self, count: int, *, energy: bool, keep_alive: bool) -> list[Run]:
        """Some runs; before those of a child that is kept, one that is not counted."""
        runner = ProbeRunner(sys.executable, 600.0, Event(), keep_alive=keep_alive)
        try:
            if keep_alive:
                self._run(runner, energy=energy)
            return [self._run(runner, energy=energy) for _ in range(count)]
        finally:
            runner.close()

    def search(self) -> None:
        """Has the batch found and remembered."""
        runner = ProbeRunner(sys.executable, 600.0, Event())
        self._run(runner, energy=False)
        runner.close()

    def _run(self, runner: ProbeRunner, *, energy: bool) -> Run:
        begins_ns: list[int] = []

        def on_progress(progress: ProbeProgress) -> None:
            if progress.phase == "warmup" and not begins_ns:
                done_ns = int(progress.done * WARM_UP_CAP_S * NS)
                begins_ns.append(time.monotonic_ns() - done_ns)

        child = _Watched(runner)
        before_s = child.cpu_s()
        request = model_request(self._probe, self._device, self._remembered, energy=energy)
        ended_before = os.times()
        began_ns = time.monotonic_ns()
        outcome = runner.run(
            request, self._device.name, on_edge=lambda: None, on_progress=on_progress
        )
        wall_ns = time.monotonic_ns() - began_ns
        if isinstance(outcome, ProbeFault):
            raise SystemExit(f"the probe failed: {outcome.title} {' '.join(outcome.last_words)}")
        ended_after = os.times()
        ended_s = (
            ended_after.children_user
            + ended_after.children_system
            - ended_before.children_user
            - ended_before.children_system
        )
        self._remember(outcome)
        begin_ns = begins_ns[0] if begins_ns else outcome.steady_start_ns
        is_kept = child.is_there()
        return Run(
            wall_ns / NS,
            (outcome.steady_end_ns - begin_ns) / NS,
            outcome.result.busy_s,
            child.cpu_s() - before_s if is_kept else ended_s,
            child.resident_mb() if is_kept else 0.0,
        )

    def _remember(self, outcome: ProbeOutcome) -> None:
        result = outcome.result
        self._remembered = {"batch": result.batch, "fingerprint": result.fingerprint}


class _Watched:
    """A runner's child as the kernel counts it; nothing while there is none."""

    def __init__(self, runner: ProbeRunner) -> None:
        self._runner = runner

    def _folder(self) -> Path | None:
        child = self._runner._child  # noqa: SLF001 - a bench looks where nobody else need
        return None if child is None else Path(f"/proc/{child.pid}")

    def is_there(self) -> bool:
        return self._folder() is not None

    def cpu_s(self) -> float:
        folder = self._folder()
        if folder is None:
            return 0.0
        fields = (folder / "stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def resident_mb(self) -> float:
        folder = self._folder()
        if folder is None:
            return 0.0
        return int((folder / "statm").read_text("ascii").split()[1]) * PAGE_BYTES / 1e6


def median(runs: list[Run], of: Callable[[Run], float]) -> float:
    return statistics.median(of(run) for run in runs)


class Day(NamedTuple):
    """What a day of the default schedule comes to.

    Attributes:
        full: Runs with an energy window.
        latency: Runs without.
        skipped: Runs that the budget had no room for.
        busy_s: Device seconds.
        cpu_s: Processor seconds of the children.
    """

    full: int
    latency: int
    skipped: int
    busy_s: float
    cpu_s: float


def day_of(full: list[Run], latency: list[Run], probe: ProbeConfig) -> Day:
    """A day as the daemon's own budget allows it."""
    budget = DutyBudget(Config().probing.duty)
    full_s, latency_s = (
        median(full, lambda run: run.busy_s),
        median(latency, lambda run: run.busy_s),
    )
    counts = {"full": 0, "latency": 0, "skip": 0}
    busy_s = 0.0
    for time_s in range(0, DAY_S, int(probe.every_s)):
        plan = budget.plan(probe.name, time_s, full_s, latency_s)
        counts[plan] += 1
        if plan != "skip":
            own_s = full_s if plan == "full" else latency_s
            budget.record(probe.name, time_s, own_s, energy=plan == "full")
            busy_s += own_s
    cpu_s = counts["full"] * median(full, lambda run: run.cpu_s)
    cpu_s += counts["latency"] * median(latency, lambda run: run.cpu_s)
    return Day(counts["full"], counts["latency"], counts["skip"], busy_s, cpu_s)


def add_shares(table: Table, runs: dict[tuple[bool, bool], list[Run]], where: str) -> None:
    """The share of a run that is neither warm-up nor measured, a kept child beside one a run."""
    for energy, name in ((True, "with an energy window"), (False, "latency alone")):
        fresh, kept = runs[energy, False], runs[energy, True]
        told = {
            what: f"{median(own, lambda run: run.wall_s):.1f} s a run, of which"
            f" {median(own, lambda run: run.wall_s - run.measured_s):.1f} s outside"
            for what, own in (("fresh", fresh), ("kept", kept))
        }
        fresh_pct = median(fresh, lambda run: run.outside_pct)
        kept_pct = median(kept, lambda run: run.outside_pct)
        table.row(f"outside on {where}, {name}, a child a run", fresh_pct, "%", note=told["fresh"])
        table.row(
            f"outside on {where}, {name}, keep_alive",
            kept_pct,
            "%",
            peer=fresh_pct,
            peer_name="a child a run",
            goal=f"≤ {KEPT_GOAL_PCT}",
            note=f"{told['kept']}; the kept child holds"
            f" {median(kept, lambda run: run.resident_mb):,.0f} MB",
        )


def add_day(
    table: Table, runs: dict[tuple[bool, bool], list[Run]], probe: ProbeConfig, where: str
) -> None:
    """What a day takes of the device and of the processors."""
    cpus = os.cpu_count() or 1
    for keep_alive, name in ((False, "a child a run"), (True, "keep_alive")):
        day = day_of(runs[True, keep_alive], runs[False, keep_alive], probe)
        table.row(
            f"share of {where}'s day that probing takes, {name}",
            day.busy_s / DAY_S * 100,
            "%",
            goal=f"≤ {Config().probing.duty * 100:g}",
            note=f"{day.busy_s:.0f} s: {day.full} runs with an energy window, {day.latency} of"
            f" latency alone, {day.skipped} left out by the budget",
        )
        table.row(
            f"share of the processors' day that probes take, {name}",
            day.cpu_s / DAY_S / cpus * 100,
            "%",
            note=f"{day.cpu_s:.0f} s of {cpus} processors, torch's import included",
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_json(parser)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--long", action="store_true", help="nine runs of each")
    options = parser.parse_args()
    device = the_device()
    probe = ProbeConfig(name="transformer")
    bench = Bench(device, probe)
    bench.search()
    count = 9 if options.long else options.runs
    runs = {
        (energy, keep_alive): bench.runs(count, energy=energy, keep_alive=keep_alive)
        for energy in (True, False)
        for keep_alive in (False, True)
    }
    table = Table(issue_line=6)
    where = "the CPU" if device.kind == "cpu" else device.model
    add_shares(table, runs, where)
    add_day(table, runs, probe, where)
    return finish(table, options.json)


if __name__ == "__main__":
    sys.exit(main())
