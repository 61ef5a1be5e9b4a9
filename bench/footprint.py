"""CPU and memory of the daemon and its sensor child.

Eight GPUs (the tests' fake libnvidia-ml.so.1, behind the real pynvml), whose power changes every
second, at one reading a second.

Usage: python bench/footprint.py [--seconds 600]
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fakes.nvml import FakeNvml  # noqa: E402 - part of the tests
from proc_usage import ProcUsage, Usage, children_of, memory_mb  # noqa: E402 - beside this file
from table import Table, finish  # noqa: E402 - beside this file

GPUS = 8
# After the start, the self-test of the counters and the first evaluation of alerts, which take ten
# seconds.
SETTLE_S, SETTLE_MAX_S = 30.0, 240.0
CALM_CPU_PCT = 10.0
GOAL_CPU_PCT, GOAL_MB = 0.3, 64.0
OURS = "costprobe"
# The packages that the daemon and its child are built on, loaded by idle processes: the lower bound
# of their memory.
BARE = "  its packages, idle"
PACKAGES = ("apscheduler.schedulers.background, click, pydantic, sqlite3", "json, pynvml")
STEPS_MAX = 1800
Process = subprocess.Popen[bytes]


def script_power(fake: FakeNvml, seconds: float) -> None:
    """Change the power of each GPU every second."""
    now_ns = fake.clock.monotonic_ns()
    for step in range(min(STEPS_MAX, int(seconds + 3 * SETTLE_MAX_S))):
        for gpu in fake.gpus:
            power_w = 250.0 + (37 * step + 11 * gpu.index) % 100
            gpu.set_power(power_w, at_ns=now_ns + step * 10**9)
    for gpu in fake.gpus:
        gpu.set(util_pct=60)


def start(command: list[str], env: dict[str, str], log: Path) -> Process:
    """Start a process in the background with its output in a file."""
    with log.open("wb") as out:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **env},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def stop(process: Process) -> None:
    """End a process and its descendants."""
    process.terminate()
    process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def started(folder: Path, fake: FakeNvml) -> Process:
    """Start the daemon, and wait until it has settled."""
    config = folder / "costprobe.toml"
    config.write_text(f'[store]\npath = "{folder}/costprobe.db"\n')
    command = [sys.executable, "-m", "costprobe", "--config", str(config), "run"]
    daemon = start(command, fake.env(), folder / "daemon.log")
    until(lambda: bool(children_of(daemon.pid)) or daemon.poll() is not None)
    time.sleep(SETTLE_S)
    ends_s = time.monotonic() + SETTLE_MAX_S
    while time.monotonic() < ends_s and daemon.poll() is None:
        usage = Usage(daemon.pid)
        time.sleep(4.0)
        if usage.measured()["cpu_s_per_h"] / 36 < CALM_CPU_PCT:
            break
    return daemon


def packages_alone() -> tuple[float, float]:
    """Return PSS and RSS in MB of idle processes that load the packages that ours are built on."""
    idle = [
        subprocess.Popen([sys.executable, "-c", f"import {names}, time; time.sleep(600)"])
        for names in PACKAGES
    ]
    time.sleep(5.0)
    sizes = [memory_mb(process.pid) for process in idle]
    for process in idle:
        stop(process)
    return sum(pss for pss, _ in sizes), sum(rss for _, rss in sizes)


def until(condition: Callable[[], bool]) -> bool:
    """Wait for a condition; return whether it was met in time."""
    ends_s = time.monotonic() + SETTLE_MAX_S
    while time.monotonic() < ends_s:
        if condition():
            return True
        time.sleep(0.5)
    return False


def measured(folder: Path, seconds: float) -> dict[str, ProcUsage]:
    """Return the resource usage of the daemon, of each of its children, and of its packages alone."""
    fake = FakeNvml(folder, gpus=GPUS)
    script_power(fake, seconds)
    daemon = started(folder, fake)
    try:
        usages = {OURS: Usage(daemon.pid)}
        usages |= {f"  {name}": Usage(pid) for name, pid in parts_of(daemon.pid)}
        time.sleep(seconds)
        if daemon.poll() is not None:
            sys.exit(f"the daemon ended: {(folder / 'daemon.log').read_text(errors='replace')}")
        uses = {name: usage.measured() for name, usage in usages.items()}
    finally:
        stop(daemon)
    pss_mb, rss_mb = packages_alone()
    uses[BARE] = {
        "cpu_s_per_h": 0.0,
        "wakes_per_s": 0.0,
        "pss_mb": pss_mb,
        "rss_mb": rss_mb,
        "processes": len(PACKAGES),
    }
    return uses


def parts_of(daemon_pid: int) -> list[tuple[str, int]]:
    """Return the names and process ids of the daemon's children."""
    return [
        (Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2].decode(), pid)
        for pid in children_of(daemon_pid)
    ]


def results(uses: Mapping[str, ProcUsage], seconds: float) -> Table:
    """Return the rows that are compared with goals."""
    ours, bare, table = uses[OURS], uses[BARE], Table()
    note = (
        f"{GPUS} fake GPUs, 1 reading/s, {seconds:.0f} s, no sink;"
        f" the packages alone, idle: {bare['pss_mb']:.1f} MB ({bare['rss_mb']:.1f} RSS)"
    )
    for name, value, unit, limit in (
        ("CPU of daemon and sensor", ours["cpu_s_per_h"] / 36, "% of a core", GOAL_CPU_PCT),
        ("memory of daemon and sensor (PSS)", ours["pss_mb"], "MB", GOAL_MB),
    ):
        table.row(name, value, unit, goal=f"≤ {limit:g}", note=note)
    return table


def show(uses: Mapping[str, ProcUsage]) -> None:
    """Print the resource usage of each process."""
    titles = ("CPU s/h", "% of a core", "PSS MB", "RSS MB", "processes", "wake-ups/s")
    print(f"{'':28}" + "".join(f"{title:>12}" for title in titles))
    for name, use in uses.items():
        cells = (use["cpu_s_per_h"], use["cpu_s_per_h"] / 36, use["pss_mb"], use["rss_mb"])
        numbers = "".join(f"{cell:12.2f}" for cell in cells)
        print(f"{name:28}{numbers}{use['processes']:12d}{use['wakes_per_s']:12.1f}")
    print()


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU and memory of the daemon.")
    parser.add_argument("--seconds", type=float, default=600.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        uses = measured(Path(folder), arguments.seconds)
    if uses[OURS]["processes"] < 2:
        sys.exit("the daemon did not run with its sensor child")
    show(uses)
    return finish(results(uses, arguments.seconds))


if __name__ == "__main__":
    sys.exit(main())
