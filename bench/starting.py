"""How long commands and the daemon take to start, beside an interpreter that does nothing.

Whole processes, taken in turns with `python -c pass` so that all see the same machine; medians.
The daemon runs beside eight fake GPUs and is ready when READY=1 comes to the socket that it was
told of, as systemd does it. It must not have loaded torch until then.

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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fakes.nvml import FakeNvml  # noqa: E402 - it lies with the tests
from proc_usage import cpu_s, tree_of  # noqa: E402 - beside this file
from table import Table, add_json, finish  # noqa: E402 - beside this file

HELP_S, STATUS_S, READY_S = 0.120, 0.250, 1.5
READY_WAIT_S = 60.0
GPUS = 8
BARE = "python -c pass"


def spent(command, env):
    """Wall and CPU seconds of a whole process; its output is thrown away."""
    before, started_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=True)
    wall_s = time.monotonic() - started_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall_s, used_s


def in_turns(commands, env, times):
    """The medians of wall and CPU seconds, by name, of commands that take turns."""
    found = {name: [] for name in commands}
    for command in commands.values():
        spent(command, env)  # the first of all reads the disk
    for _ in range(times):
        for name, command in commands.items():
            found[name].append(spent(command, env))
    return {
        name: tuple(statistics.median(column) for column in zip(*rows, strict=True))
        for name, rows in found.items()
    }


def environment():
    """Ours as an installed package runs: with its byte code kept."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env


class Daemon:
    """A daemon that was started, once it says READY=1 on a socket as systemd's.

    Args:
        folder: For its configuration, its store and the socket.
        config: The configuration file.
        env: Its environment.

    Attributes:
        ready_s: How long that took.
        cpu_s: CPU seconds of it and its children until then.
        has_torch: Whether any of them had torch's libraries mapped then.
    """

    def __init__(self, folder, config, env):
        address = str(folder / "notify")
        Path(address).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
            ear.bind(address)
            ear.settimeout(READY_WAIT_S)
            started_s = time.monotonic()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "agent", "--config", str(config), "run"],
                cwd=ROOT,
                env={**env, "NOTIFY_SOCKET": address},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                while b"READY=1" not in ear.recv(4096).splitlines():
                    pass
            except TimeoutError:
                self.stop()
                raise
            self.ready_s = time.monotonic() - started_s
        tree = tree_of(self.process.pid)
        self.cpu_s = sum(cpu_s(pid) for pid in tree)
        maps = Path(f"/proc/{self.process.pid}/maps").read_text()
        self.has_torch = "libtorch" in maps

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def measured(folder, times):
    """Medians by name, with the daemon's; and whether it had loaded torch."""
    fake = FakeNvml(folder, gpus=GPUS)
    config = folder / "infercost.toml"
    config.write_text(f'[store]\npath = "{folder}/infercost.db"\n')
    env = environment()
    starts, has_torch = [], False
    for _ in range(max(1, times // 2)):
        daemon = Daemon(folder, config, {**env, **fake.env()})
        daemon.stop()
        starts.append((daemon.ready_s, daemon.cpu_s))
        has_torch |= daemon.has_torch
    daemon = Daemon(folder, config, {**env, **fake.env()})
    infercost = [sys.executable, "-m", "agent"]
    commands = {
        BARE: [sys.executable, "-c", "pass"],
        "infercost --help": [*infercost, "--help"],
        "infercost status": [*infercost, "--config", str(config), "status"],
    }
    try:
        found = in_turns(commands, env, times)
    finally:
        daemon.stop()
    found["daemon ready"] = tuple(statistics.median(column) for column in zip(*starts, strict=True))
    return found, has_torch


def results(found, has_torch, times):
    """The lines of the bench's contract."""
    bare_s, bare_cpu_s = found[BARE]
    lines = []
    for name, goal_s in (
        ("infercost --help", HELP_S),
        ("infercost status", STATUS_S),
        ("daemon ready", READY_S),
    ):
        wall_s, used_s = found[name]
        note = f"median of {times}; CPU {used_s * 1000:.0f} ms ({used_s / bare_cpu_s:.1f} x)"
        is_met = wall_s <= goal_s
        if name == "daemon ready":
            is_met = is_met and not has_torch
            note += f"; {GPUS} fake GPUs; torch was {'' if has_torch else 'not '}loaded before"
        lines.append(
            {
                "issue_line": 5,
                "name": name,
                "ours": wall_s * 1000,
                "unit": "ms",
                "peer": bare_s * 1000,
                "peer_name": BARE,
                "ratio": wall_s / bare_s,
                "goal": f"at most {goal_s * 1000:.0f} ms",
                "met": is_met,
                "note": note,
            }
        )
    return lines


def main():
    parser = argparse.ArgumentParser(description="How long commands and the daemon take to start.")
    parser.add_argument("--times", type=int, default=20)
    add_json(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found, has_torch = measured(Path(folder), arguments.times)
    lines = results(found, has_torch, arguments.times)
    return finish(Table(rows=lines), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
