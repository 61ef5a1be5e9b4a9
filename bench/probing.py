"""Overhead of a probe (time that is neither warm-up nor measured) and its share of a day.

    python bench/probing.py [--runs 3] [--json FILE]

Runs the built-in probe with its defaults on the first GPU, or on the CPU if there is none: with a
new child per run and with a kept one, with and without an energy window. The batch size is the
remembered one, as in all but the first run of a daemon. The overhead is the run's wall time in the
daemon minus the time from the first warm-up pass to the end of the last measured one: starting
Python, importing torch, opening the device, building the model. The share of a day applies the
daemon's duty budget to the default schedule with the measured times.
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

from costprobe.adapters.probe_child.results import ProbeFault, ProbeProgress, ProbeResult  # noqa: E402 - as above
from costprobe.adapters.probe_child.runner import ProbeRunner, worker_command  # noqa: E402 - as above
from costprobe.configuration import Config  # noqa: E402 - as above
from costprobe.core.clock import SystemClock  # noqa: E402 - as above
from costprobe.core.records import Device  # noqa: E402 - as above
from costprobe.probing.jobs import DutyBudget  # noqa: E402 - as above
from costprobe.probing.run import model_request  # noqa: E402 - as above
from costprobe.probing.settings import ProbeConfig  # noqa: E402 - as above
from proc_usage import cpu_s, memory_mb  # noqa: E402 - as above
from table import Table, add_json, finish  # noqa: E402 - the path first

DAY_S = 86_400
NS = 1_000_000_000
WARM_UP_CAP_S = (
    10.0  # costprobe_probes.timing: limit of the warm-up, of which its progress is a share
)
# Remaining overhead with a kept child: messages on the pipe and the copy to the device.
KEPT_GOAL_PCT = 5


class Run(NamedTuple):
    """One run of a probe, in seconds.

    Attributes:
        wall_s: From the request to the result, or to the child's exit if it is not kept.
        measured_s: Warm-up and steady-state windows.
        busy_s: Time counted by the duty budget.
        cpu_s: CPU time of the child.
        resident_mb: Resident memory of a kept child at the end; otherwise 0.
    """

    wall_s: float
    measured_s: float
    busy_s: float
    cpu_s: float
    resident_mb: float

    @property
    def overhead_pct(self) -> float:
        """Share of the wall time that is neither warm-up nor measured."""
        return (1 - self.measured_s / self.wall_s) * 100


def first_device() -> Device:
    """Return the first GPU, or the CPU if there is none."""
    if Path("/proc/driver/nvidia/version").exists():
        from costprobe.adapters.sensors.child.nvidia import NvidiaSensor
        from costprobe.adapters.sensors.child.nvml import Library

        library = Library()
        library.open()
        return NvidiaSensor(0, library, SystemClock(), lambda *_: None).discover()
    return Device("cpu", "cpu", "cpu", "CPU")


class DeviceRuns:
    """Runs of a probe on one device.

    Args:
        device: Device of the probe.
        probe: Probe with its defaults.
    """

    def __init__(self, device: Device, probe: ProbeConfig) -> None:
        self._device = device
        self._probe = probe
        self._remembered: dict[str, object] = {}

    def runs(self, count: int, *, energy: bool, keep_alive: bool) -> list[Run]:
        """Return `count` runs; a kept child is started by an extra run that is not counted."""
        runner = ProbeRunner(worker_command(sys.executable), 600.0, Event(), keep_alive=keep_alive)
        try:
            if keep_alive:
                self._run(runner, energy=energy)
            return [self._run(runner, energy=energy) for _ in range(count)]
        finally:
            runner.close()

    def search(self) -> None:
        """Search the batch size and remember it."""
        runner = ProbeRunner(worker_command(sys.executable), 600.0, Event())
        self._run(runner, energy=False)
        runner.close()

    def _run(self, runner: ProbeRunner, *, energy: bool) -> Run:
        begins_ns: list[int] = []

        def on_progress(progress: ProbeProgress) -> None:
            if progress.phase == "warmup" and not begins_ns:
                done_ns = int(progress.done * WARM_UP_CAP_S * NS)
                begins_ns.append(time.monotonic_ns() - done_ns)

        pid = _pid_of(runner)
        before_s = 0.0 if pid is None else cpu_s(pid)
        request = model_request(self._probe, self._device, self._remembered, energy=energy)
        ended_before = os.times()
        began_ns = time.monotonic_ns()
        outcome = runner.run(
            request, self._device.name, on_edge=lambda: None, on_progress=on_progress
        )
        wall_ns = time.monotonic_ns() - began_ns
        if isinstance(outcome, ProbeFault):
            raise SystemExit(f"the probe failed: {outcome.title} {' '.join(outcome.stderr_tail)}")
        ended_after = os.times()
        ended_s = (
            ended_after.children_user
            + ended_after.children_system
            - ended_before.children_user
            - ended_before.children_system
        )
        self._remember(outcome)
        begin_ns = begins_ns[0] if begins_ns else outcome.steady_start_ns
        pid = _pid_of(runner)
        return Run(
            wall_ns / NS,
            (outcome.steady_end_ns - begin_ns) / NS,
            outcome.busy_s,
            ended_s if pid is None else cpu_s(pid) - before_s,
            0.0 if pid is None else memory_mb(pid)[1],
        )

    def _remember(self, result: ProbeResult) -> None:
        self._remembered = {"batch": result.batch, "fingerprint": result.fingerprint}


def _pid_of(runner: ProbeRunner) -> int | None:
    """Return the process id of a runner's child; None while there is none."""
    child = runner._child  # noqa: SLF001 - no public access is needed elsewhere
    return None if child is None else child.pid


def median(runs: list[Run], of: Callable[[Run], float]) -> float:
    return statistics.median(of(run) for run in runs)


class Day(NamedTuple):
    """Totals of a day of the default schedule.

    Attributes:
        full: Runs with an energy window.
        latency: Runs without one.
        skipped: Runs skipped because of the budget.
        busy_s: Device seconds.
        cpu_s: CPU seconds of the children.
    """

    full: int
    latency: int
    skipped: int
    busy_s: float
    cpu_s: float


def day_of(full: list[Run], latency: list[Run], probe: ProbeConfig) -> Day:
    """Return the totals of a day under the daemon's duty budget."""
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
    """Add the overhead of a run with a kept child, compared with a child per run."""
    for energy, name in ((True, "with an energy window"), (False, "latency only")):
        fresh, kept = runs[energy, False], runs[energy, True]
        notes = {
            what: f"{median(own, lambda run: run.wall_s):.1f} s per run, of which"
            f" {median(own, lambda run: run.wall_s - run.measured_s):.1f} s overhead"
            for what, own in (("fresh", fresh), ("kept", kept))
        }
        fresh_pct = median(fresh, lambda run: run.overhead_pct)
        kept_pct = median(kept, lambda run: run.overhead_pct)
        table.row(
            f"overhead on {where}, {name}, one child per run", fresh_pct, "%", note=notes["fresh"]
        )
        table.row(
            f"overhead on {where}, {name}, keep_alive",
            kept_pct,
            "%",
            peer=fresh_pct,
            peer_name="one child per run",
            goal=f"≤ {KEPT_GOAL_PCT}",
            note=f"{notes['kept']}; resident memory of the kept child:"
            f" {median(kept, lambda run: run.resident_mb):,.0f} MB",
        )


def add_day(
    table: Table, runs: dict[tuple[bool, bool], list[Run]], probe: ProbeConfig, where: str
) -> None:
    """Add the shares of the device's and the CPUs' day."""
    cpus = os.cpu_count() or 1
    for keep_alive, name in ((False, "one child per run"), (True, "keep_alive")):
        day = day_of(runs[True, keep_alive], runs[False, keep_alive], probe)
        table.row(
            f"share of a day of {where} used by probing, {name}",
            day.busy_s / DAY_S * 100,
            "%",
            goal=f"≤ {Config().probing.duty * 100:g}",
            note=f"{day.busy_s:.0f} s: {day.full} runs with an energy window, {day.latency} with"
            f" latency only, {day.skipped} skipped because of the budget",
        )
        table.row(
            f"share of a day of the CPUs used by probing, {name}",
            day.cpu_s / DAY_S / cpus * 100,
            "%",
            note=f"{day.cpu_s:.0f} s of {cpus} CPUs, including the import of torch",
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_json(parser)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--long", action="store_true", help="nine runs of each")
    options = parser.parse_args()
    device = first_device()
    probe = ProbeConfig(name="transformer")
    bench = DeviceRuns(device, probe)
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
