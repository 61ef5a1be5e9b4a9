"""What the daemon and its sensor child cost, beside other projects' monitors.

Eight GPUs (the tests' fake libnvidia-ml.so.1, behind the real pynvml), whose power changes every
second, at one reading a second. All run side by side, for the same time, on the same library.

Usage: python bench/footprint.py [--seconds 600] [--json FILE] [--without-peers]
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import footprint_peers as peers  # noqa: E402 - beside this file
from fakes.nvml import FakeNvml  # noqa: E402 - it lies with the tests
from proc_usage import Usage, children_of, memory_mb  # noqa: E402 - beside this file
from table import Table, add_json, finish  # noqa: E402 - beside this file

GPUS = 8
# Past the start, the self-test of the counters and the first alerting, which last ten seconds. A
# machine that is busy takes longer to import what some peers do.
SETTLE_S, SETTLE_MAX_S = 30.0, 240.0
CALM_CPU_PCT = 10.0
GOAL_CPU_PCT, GOAL_MB = 0.5, 80.0
GOAL_CPU_RATIO, GOAL_MB_RATIO = 0.5, 1.0
OURS = "infercost"
# What the daemon and its child are built on, loaded by processes that then do nothing: less memory
# than these take cannot be had.
BARE = "  its packages alone"
PACKAGES = ("apscheduler.schedulers.background, click, pydantic, sqlite3", "json, pynvml")
STEPS_MAX = 1800


def script_power(fake, seconds):
    """Lets the power of each GPU change every second."""
    now_ns = fake.clock.monotonic_ns()
    for step in range(min(STEPS_MAX, int(seconds + 3 * SETTLE_MAX_S))):
        for gpu in fake.gpus:
            power_w = 250.0 + (37 * step + 11 * gpu.index) % 100
            gpu.set_power(power_w, at_ns=now_ns + step * 10**9)
    for gpu in fake.gpus:
        gpu.set(util_pct=60)


def free_port():
    """A port on which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(command, env, log):
    """A process in the background; what it says goes to a file."""
    with log.open("wb") as out:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **env},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def stop(process):
    """Ends a process, and what it leaves behind."""
    process.terminate()
    process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def started(folder, fake, wanted):
    """Starts ours and the peers.

    Returns:
        The processes by name, and the reasons of those that are missing.
    """
    config = folder / "infercost.toml"
    config.write_text(f'[store]\npath = "{folder}/infercost.db"\n')
    ours = [sys.executable, "-m", "agent", "--config", str(config), "run"]
    processes, missing = {}, {}
    for peer in wanted:
        try:
            command = peers.command_of(peer, free_port())
        except peers.MissingError as error:
            missing[peer.name] = str(error)
        else:
            log = folder / f"{peer.name}.log"
            processes[peer.name] = start(command, fake.env(), log)
            if peer.script and not until(lambda log=log: b"READY" in log.read_bytes()):
                stop(processes.pop(peer.name))
                missing[peer.name] = f"it was not ready within {SETTLE_MAX_S:.0f} s"
    processes = {OURS: start(ours, fake.env(), folder / f"{OURS}.log"), **processes}
    until(lambda: children_of(processes[OURS].pid) or processes[OURS].poll() is not None)
    time.sleep(SETTLE_S)
    settle(processes)
    return processes, missing


def packages_alone():
    """PSS and RSS in MB of processes that load what ours are built on, and do nothing."""
    idle = [
        subprocess.Popen([sys.executable, "-c", f"import {names}, time; time.sleep(600)"])
        for names in PACKAGES
    ]
    time.sleep(5.0)
    found = [memory_mb(process.pid) for process in idle]
    for process in idle:
        stop(process)
    return tuple(sum(column) for column in zip(*found, strict=True))


def until(condition):
    """Waits for a condition; whether it came about in time."""
    ends_s = time.monotonic() + SETTLE_MAX_S
    while time.monotonic() < ends_s:
        if condition():
            return True
        time.sleep(0.5)
    return False


def settle(processes):
    """Waits until each that lives has come to rest, or for long enough."""
    ends_s = time.monotonic() + SETTLE_MAX_S
    while time.monotonic() < ends_s:
        usages = [Usage(found.pid) for found in processes.values() if found.poll() is None]
        time.sleep(4.0)
        if all(usage.taken()["cpu_s_per_h"] / 36 < CALM_CPU_PCT for usage in usages):
            return


def measured(folder, seconds, wanted):
    """What each used in so many seconds, by name, and why some are missing."""
    fake = FakeNvml(folder, gpus=GPUS)
    script_power(fake, seconds)
    processes, missing = started(folder, fake, wanted)
    try:
        usages = {}
        for name, process in processes.items():
            if process.poll() is None:
                usages[name] = Usage(process.pid)
                continue
            words = (folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
            missing[name] = f"it ended: {words[-1] if words else process.returncode}"
        if OURS in usages:
            usages |= {f"  {name}": Usage(pid) for name, pid in parts_of(processes[OURS].pid)}
        time.sleep(seconds)
        found = {name: usage.taken() for name, usage in usages.items()}
        pss_mb, rss_mb = packages_alone()
        zeros = dict.fromkeys(("cpu_s_per_h", "wakes_per_s"), 0.0)
        found[BARE] = zeros | {"pss_mb": pss_mb, "rss_mb": rss_mb, "processes": len(PACKAGES)}
        return found, missing
    finally:
        for process in processes.values():
            stop(process)


def parts_of(daemon):
    """The processes that the daemon started, with their names."""
    return [
        (Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2].decode(), pid)
        for pid in children_of(daemon)
    ]


def best(found, key):
    """The peer that uses the least: (name, use); none where there is no peer."""
    uses = [
        (use[key], name)
        for name, use in found.items()
        if name != OURS and not name.startswith(" ") and use[key]
    ]
    return min(uses)[::-1] if uses else ("", None)


def results(found, missing, seconds):
    """What is judged, as a table."""
    ours = found[OURS]
    without = "".join(f"; {name} is missing: {why}" for name, why in missing.items())
    note = f"{GPUS} fake GPUs, 1 reading/s, {seconds:.0f} s, no sink{without}"
    table = Table(issue_line=1)
    bare = found[BARE]
    note += f"; what ours is built on, loaded and idle: {bare['pss_mb']:.1f} MB ({bare['rss_mb']:.1f} as if alone)"
    for name, value, unit, most in (
        ("CPU of daemon and sensor", ours["cpu_s_per_h"] / 36, "% of a core", GOAL_CPU_PCT),
        ("memory of daemon and sensor (PSS)", ours["pss_mb"], "MB", GOAL_MB),
    ):
        table.row(name, value, unit, goal=f"≤ {most:g}", note=note)
    for key, name, unit, most in (
        ("cpu_s_per_h", "CPU beside the best peer", "s/h", GOAL_CPU_RATIO),
        ("pss_mb", "memory beside the best peer (PSS)", "MB", GOAL_MB_RATIO),
        ("rss_mb", "memory beside the best peer, as if alone (RSS)", "MB", GOAL_MB_RATIO),
    ):
        peer_name, peer = best(found, key)
        is_met = ours[key] <= most * peer if peer else None
        goal = f"at most {most:g} x"
        table.row(
            name, ours[key], unit, peer=peer, peer_name=peer_name, goal=goal, met=is_met, note=note
        )
    return table


def show(found, missing):
    """Prints the use of each."""
    head = ("CPU s/h", "% of a core", "PSS MB", "RSS MB", "processes", "wakes/s")
    print(f"{'':28}" + "".join(f"{word:>12}" for word in head))
    for name, use in found.items():
        cells = (use["cpu_s_per_h"], use["cpu_s_per_h"] / 36, use["pss_mb"], use["rss_mb"])
        numbers = "".join(f"{cell:12.2f}" for cell in cells)
        print(f"{name:28}{numbers}{use['processes']:12d}{use['wakes_per_s']:12.1f}")
    for name, why in missing.items():
        print(f"{name:28}missing: {why}")
    print()


def main():
    parser = argparse.ArgumentParser(description="CPU and memory beside other monitors.")
    parser.add_argument("--seconds", type=float, default=600.0)
    add_json(parser)
    parser.add_argument("--without-peers", action="store_true")
    arguments = parser.parse_args()
    wanted = () if arguments.without_peers else peers.ALL
    with tempfile.TemporaryDirectory() as folder:
        found, missing = measured(Path(folder), arguments.seconds, wanted)
    if OURS not in found or found[OURS]["processes"] < 2:
        sys.exit(f"the daemon did not run with its sensor child: {missing.get(OURS, '')}")
    show(found, missing)
    return finish(results(found, missing, arguments.seconds), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
