"""Start times of commands and the daemon, compared with an empty interpreter.

The medians of complete processes, interleaved with `python -c pass` so that all run under the same load.
The daemon monitors eight fake GPUs and is ready when it sends READY=1 to NOTIFY_SOCKET, as under
systemd. It must not have loaded torch until then.

Usage: python bench/starting.py [--times 20] [--json FILE]
"""

import argparse
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

from fakes.nvml import FakeNvml
from proc_usage import cpu_s, tree_of
from table import Table, add_json, finish

HELP, STATUS, DAEMON = "costprobe --help", "costprobe status", "daemon ready"
GOALS_S = {HELP: 0.120, STATUS: 0.250, DAEMON: 1.5}
READY_WAIT_S = 60.0
GPUS = 8
BARE = "python -c pass"


def run_times_s(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Return wall and CPU seconds of a complete process; its output is discarded."""
    before, started_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=True)
    wall_s = time.monotonic() - started_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall_s, used_s


def interleaved(
    commands: Mapping[str, list[str]], env: dict[str, str], times: int
) -> dict[str, tuple[float, float]]:
    """Return the median wall and CPU seconds by name, running the commands alternately."""
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for command in commands.values():
        run_times_s(command, env)  # the first run reads from disk
    for _ in range(times):
        for name, command in commands.items():
            runs[name].append(run_times_s(command, env))
    return {name: medians(rows) for name, rows in runs.items()}


def medians(runs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the median wall and CPU seconds."""
    return statistics.median(wall for wall, _ in runs), statistics.median(cpu for _, cpu in runs)


def environment() -> dict[str, str]:
    """Return the environment of an installed package, with cached byte code."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env


class Started(NamedTuple):
    """A daemon that has sent READY=1.

    Attributes:
        ready_s: Time until READY=1, in s.
        cpu_s: CPU seconds of the daemon and its children until then.
        has_torch: Whether the daemon had mapped torch's libraries by then.
    """

    ready_s: float
    cpu_s: float
    has_torch: bool


@contextmanager
def started(folder: Path, config: Path, env: dict[str, str]) -> Iterator[Started]:
    """Run a daemon, and wait until it is ready."""
    address = folder / "notify"
    address.unlink(missing_ok=True)
    command = [sys.executable, "-m", "costprobe", "--config", str(config), "run"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify_socket:
        notify_socket.bind(str(address))
        notify_socket.settimeout(READY_WAIT_S)
        started_s = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**env, "NOTIFY_SOCKET": str(address)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while b"READY=1" not in notify_socket.recv(4096).splitlines():
                pass
            ready_s = time.monotonic() - started_s
            used_s = sum(map(cpu_s, tree_of(process.pid)))
            maps = Path(f"/proc/{process.pid}/maps").read_text()
            yield Started(ready_s, used_s, "libtorch" in maps)
        finally:
            process.terminate()
            process.wait(30)


def measured(folder: Path, times: int) -> tuple[dict[str, tuple[float, float]], bool]:
    """Return the medians by name, including the daemon's, and whether it had loaded torch."""
    fake = FakeNvml(folder, gpus=GPUS)
    config = folder / "costprobe.toml"
    config.write_text(f'[store]\npath = "{folder}/costprobe.db"\n')
    env = environment()
    starts, has_torch = [], False
    costprobe = [sys.executable, "-m", "costprobe"]
    commands = {
        BARE: [sys.executable, "-c", "pass"],
        HELP: [*costprobe, "--help"],
        STATUS: [*costprobe, "--config", str(config), "status"],
    }
    for _ in range(max(1, times // 2)):
        with started(folder, config, {**env, **fake.env()}) as daemon:
            starts.append((daemon.ready_s, daemon.cpu_s))
            has_torch |= daemon.has_torch
    with started(folder, config, {**env, **fake.env()}):
        by_name = interleaved(commands, env, times)
    by_name[DAEMON] = medians(starts)
    return by_name, has_torch


def results(by_name: Mapping[str, tuple[float, float]], times: int, *, has_torch: bool) -> Table:
    """Return the table."""
    table = Table()
    bare_s, bare_cpu_s = by_name[BARE]
    for name, goal_s in GOALS_S.items():
        wall_s, used_s = by_name[name]
        note = f"median of {times}; CPU {used_s * 1000:.0f} ms ({used_s / bare_cpu_s:.1f} x)"
        is_met = wall_s <= goal_s
        if name == DAEMON:
            is_met = is_met and not has_torch
            note += f"; {GPUS} fake GPUs; torch was {'' if has_torch else 'not '}loaded before"
        table.row(
            name,
            wall_s * 1000,
            "ms",
            peer=bare_s * 1000,
            peer_name=BARE,
            goal=f"at most {goal_s * 1000:.0f} ms",
            met=is_met,
            note=note,
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description="Start times of commands and the daemon.")
    parser.add_argument("--times", type=int, default=20)
    add_json(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        by_name, has_torch = measured(Path(folder), arguments.times)
    return finish(results(by_name, arguments.times, has_torch=has_torch), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
