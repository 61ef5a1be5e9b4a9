"""CPU and memory of the daemon and its sensor child, compared with other projects' monitors.

Eight GPUs (the tests' fake libnvidia-ml.so.1, behind the real pynvml), whose power changes every
second, at one reading a second. All run at the same time on the same library.

Usage: python bench/footprint.py [--seconds 600] [--json FILE] [--without-peers]
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

import footprint_peers as peers
from fakes.nvml import FakeNvml
from fakes.servers import free_port
from proc_usage import ProcUsage, Usage, children_of, name_of
from table import Table, add_json, finish

GPUS = 8
# After the start, the self-test of the counters and the first evaluation of alerts, which take ten
# seconds. On a busy machine some peers' imports take longer.
SETTLE_S, SETTLE_MAX_S = 30.0, 240.0
CALM_CPU_PCT = 10.0
GOAL_CPU_PCT, GOAL_MB = 0.3, 64.0
GOAL_CPU_RATIO = 1.0
OURS = "costprobe"
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


def started(
    folder: Path, fake: FakeNvml, wanted: Sequence[peers.Peer]
) -> tuple[dict[str, Process], dict[str, str]]:
    """Start ours and the peers.

    Returns:
        The processes by name, and the reasons of those that are missing.
    """
    config = folder / "costprobe.toml"
    config.write_text(f'[store]\npath = "{folder}/costprobe.db"\n')
    ours = [sys.executable, "-m", "costprobe", "--config", str(config), "run"]
    processes: dict[str, Process] = {}
    missing = {}
    for peer in wanted:
        try:
            command = peers.command_of(peer, free_port())
        except peers.MissingError as error:
            missing[peer.name] = str(error)
        else:
            log = folder / f"{peer.name}.log"
            processes[peer.name] = start(command, fake.env(), log)
            if peer.script and not until(partial(_is_ready, log)):
                stop(processes.pop(peer.name))
                missing[peer.name] = f"it was not ready within {SETTLE_MAX_S:.0f} s"
    processes = {OURS: start(ours, fake.env(), folder / f"{OURS}.log"), **processes}
    daemon = processes[OURS]
    until(lambda: bool(children_of(daemon.pid)) or daemon.poll() is not None)
    time.sleep(SETTLE_S)
    settle(processes)
    return processes, missing


def _is_ready(log: Path) -> bool:
    return b"READY" in log.read_bytes()


def until(condition: Callable[[], bool]) -> bool:
    """Wait for a condition; return whether it was met in time."""
    ends_s = time.monotonic() + SETTLE_MAX_S
    while time.monotonic() < ends_s:
        if condition():
            return True
        time.sleep(0.5)
    return False


def settle(processes: Mapping[str, Process]) -> None:
    """Wait until each running process uses little CPU, or for SETTLE_MAX_S."""
    ends_s = time.monotonic() + SETTLE_MAX_S
    while time.monotonic() < ends_s:
        usages = [Usage(one.pid) for one in processes.values() if one.poll() is None]
        time.sleep(4.0)
        if all(usage.measured()["cpu_s_per_h"] / 36 < CALM_CPU_PCT for usage in usages):
            return


def measured(
    folder: Path, seconds: float, wanted: Sequence[peers.Peer]
) -> tuple[dict[str, ProcUsage], dict[str, str]]:
    """Return the resource usage of each process by name, and the reasons of missing ones."""
    fake = FakeNvml(folder, gpus=GPUS)
    script_power(fake, seconds)
    processes, missing = started(folder, fake, wanted)
    try:
        usages = {}
        for name, process in processes.items():
            if process.poll() is None:
                usages[name] = Usage(process.pid)
                continue
            lines = (folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
            missing[name] = f"it ended: {lines[-1] if lines else process.returncode}"
        if OURS in usages:
            usages |= {f"  {name}": Usage(pid) for name, pid in parts_of(processes[OURS].pid)}
        time.sleep(seconds)
        uses = {name: usage.measured() for name, usage in usages.items()}
        return uses, missing
    finally:
        for process in processes.values():
            stop(process)


def parts_of(daemon_pid: int) -> list[tuple[str, int]]:
    """Return the names and process ids of the daemon's children."""
    return [(name_of(pid), pid) for pid in children_of(daemon_pid)]


def best_peer(uses: Mapping[str, ProcUsage]) -> tuple[str, float | None]:
    """Return the name and the CPU seconds per hour of the cheapest peer; ("", None) without one."""
    of_peers = [
        (use["cpu_s_per_h"], name)
        for name, use in uses.items()
        if name != OURS and not name.startswith(" ") and use["cpu_s_per_h"]
    ]
    if not of_peers:
        return "", None
    cpu_s, name = min(of_peers)
    return name, cpu_s


def results(uses: Mapping[str, ProcUsage], missing: Mapping[str, str], seconds: float) -> Table:
    """Return the rows that are compared with goals."""
    ours = uses[OURS]
    without = "".join(f"; {name} is missing: {reason}" for name, reason in missing.items())
    note = f"{GPUS} fake GPUs, 1 reading/s, {seconds:.0f} s, no sink{without}"
    table = Table()
    for name, value, unit, limit in (
        ("CPU of daemon and sensor", ours["cpu_s_per_h"] / 36, "% of a core", GOAL_CPU_PCT),
        ("memory of daemon and sensor (PSS)", ours["pss_mb"], "MB", GOAL_MB),
    ):
        table.row(name, value, unit, goal=f"≤ {limit:g}", note=note)
    peer_name, peer = best_peer(uses)
    table.row(
        "CPU compared with the best peer",
        ours["cpu_s_per_h"],
        "s/h",
        peer=peer,
        peer_name=peer_name,
        goal=f"at most {GOAL_CPU_RATIO:g} x",
        met=ours["cpu_s_per_h"] <= GOAL_CPU_RATIO * peer if peer else None,
        note=note,
    )
    return table


def show(uses: Mapping[str, ProcUsage], missing: Mapping[str, str]) -> None:
    """Print the resource usage of each process."""
    titles = ("CPU s/h", "% of a core", "PSS MB", "RSS MB", "processes", "wake-ups/s")
    print(f"{'':28}" + "".join(f"{title:>12}" for title in titles))
    for name, use in uses.items():
        cells = (use["cpu_s_per_h"], use["cpu_s_per_h"] / 36, use["pss_mb"], use["rss_mb"])
        numbers = "".join(f"{cell:12.2f}" for cell in cells)
        print(f"{name:28}{numbers}{use['processes']:12d}{use['wakes_per_s']:12.1f}")
    for name, reason in missing.items():
        print(f"{name:28}missing: {reason}")
    print()


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU and memory compared with other monitors.")
    parser.add_argument("--seconds", type=float, default=600.0)
    add_json(parser)
    parser.add_argument("--without-peers", action="store_true")
    arguments = parser.parse_args()
    wanted = () if arguments.without_peers else peers.ALL
    with tempfile.TemporaryDirectory() as folder:
        uses, missing = measured(Path(folder), arguments.seconds, wanted)
    if OURS not in uses or uses[OURS]["processes"] < 2:
        sys.exit(f"the daemon did not run with its sensor child: {missing.get(OURS, '')}")
    show(uses, missing)
    return finish(results(uses, missing, arguments.seconds), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
