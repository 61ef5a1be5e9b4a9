"""The steps of gpu_check.sh: each in a process of its own, its outcome beside its time."""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

DAEMON_S = 180
STEP_LIMIT_S = 200
IDLE_S = 10
REPOSITORY = Path(__file__).resolve().parents[1]


class Check:
    """What was found so far, and where it is written."""

    def __init__(self, folder, device):
        self.folder, self.device = folder, device
        self.found: dict[str, Any] = {
            "began": datetime.now(tz=UTC).isoformat(timespec="seconds"),
            "steps": {},
        }

    def step(self, name, do):
        """Runs a step; one that fails is recorded, and the next one runs."""
        began_s = time.monotonic()
        print(f"{name} ...", flush=True)
        try:
            result = {"ok": True, **do()}
        except (KeyError, OSError, ValueError, subprocess.SubprocessError) as error:
            result = {"ok": False, "error": f"{type(error).__name__}: {error}"[:2000]}
        result["took_s"] = round(time.monotonic() - began_s, 1)
        self.found["steps"][name] = result
        self.write()

    def run(self, name, *command, limit_s=STEP_LIMIT_S):
        """Runs a command; its output is kept in a file, and given."""
        log = self.folder / f"{name}.log"
        with log.open("w") as file:
            done = subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, timeout=limit_s, check=False
            )
        text = log.read_text(errors="replace")
        # 3: `costprobe status` of a daemon that has ended.
        if done.returncode not in (0, 1, 3):
            raise ValueError(f"exit code {done.returncode}: {text[-500:]}")
        return done.returncode, text

    def write(self):
        (self.folder / "gpu_check.json").write_text(json.dumps(self.found, indent=1))
        (self.folder / "gpu_check.txt").write_text(table(self.found))


def machine():
    """What is measured on."""
    import torch

    found = {"torch": torch.__version__, "cuda": torch.version.cuda, "cpus": os.cpu_count()}
    version = Path("/proc/driver/nvidia/version")
    if version.exists():
        found["driver"] = version.read_text().splitlines()[0]
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name(0)
        found["l2_bytes"] = torch.cuda.get_device_properties(0).L2_cache_size
    return found


def sensor_pass():
    """Every metric of the first GPU, how long each sample took, and the counter's step."""
    from costprobe.adapters.sensors.child.nvidia import NvidiaSensor
    from costprobe.adapters.sensors.child.nvml import Library
    from costprobe.core.clock import SystemClock

    clock, told = SystemClock(), []
    library = Library()
    driver = library.open()
    sensor = NvidiaSensor(0, library, clock, lambda _, fault: told.append(fault))
    device = sensor.discover()
    took_ms, sample = [], None
    for _ in range(20):
        began_ns = clock.monotonic_ns()
        sample = sensor.sample()
        took_ms.append((clock.monotonic_ns() - began_ns) / 1e6)
        time.sleep(0.1)
    if sample is None:
        raise ValueError("the sensor returned no sample")
    values = {name: value for name, value in sample._asdict().items() if name != "t_ns"}
    return {
        "driver": driver.driver_version,
        "model": device.model,
        "mig_devices": [part.name for part in sensor.slices()],
        "sample_ms_max": max(took_ms),
        "sample_ms_median": sorted(took_ms)[len(took_ms) // 2],
        "metrics": {name: value for name, value in values.items() if value is not None},
        "absent": [name for name, value in values.items() if value is None],
        "reports_process_use": sensor.util_by_pid_pct(clock.monotonic_ns() - 2 * 10**9) is not None,
        "buffers_samples": sensor.read_power_samples() is not None,
        "counter_step_ms": counter_step_ms(sensor, clock),
        "told": [str(fault) for fault in told],
    }


def counter_step_ms(sensor, clock):
    """How often the energy counter advances; read fast here alone, where no energy is taken."""
    if sensor.read_energy() is None:
        return None
    ends_ns = clock.monotonic_ns() + 2 * 10**9
    last, changed_ns = sensor.read_energy().energy_j, []
    while clock.monotonic_ns() < ends_ns:
        reading = sensor.read_energy()
        if reading is not None and reading.energy_j != last:
            last = reading.energy_j
            changed_ns.append(reading.t_ns)
    gaps_ms = sorted((b - a) / 1e6 for a, b in pairwise(changed_ns))
    return gaps_ms[len(gaps_ms) // 2] if gaps_ms else None


def energy_pass():
    """Idle power, then ten seconds of load: its power, and the counter against the power."""
    import torch
    from costprobe.adapters.sensors.child.nvidia import NvidiaSensor
    from costprobe.adapters.sensors.child.nvml import Library
    from costprobe.adapters.sensors.child.selftest import compare
    from costprobe.core.clock import SystemClock

    clock = SystemClock()
    library = Library()
    library.open()
    sensor = NvidiaSensor(0, library, clock, lambda *_: None)
    sensor.discover()

    def watched(seconds):
        first, powers = sensor.read_energy(), []
        ends_ns = clock.monotonic_ns() + int(seconds * 1e9)
        while clock.monotonic_ns() < ends_ns:
            watts = sensor.read_power_w()
            if watts is not None:
                powers.append((clock.monotonic_ns(), watts))
            time.sleep(0.1)
        last = sensor.read_energy()
        mean_w = sum(w for _, w in powers) / len(powers)
        counted_w = None
        if first is not None and last is not None:
            counted_w = (last.energy_j - first.energy_j) / ((last.t_ns - first.t_ns) / 1e9)
        verdict = compare(first, last, powers) if first and last else None
        return {
            "power_w": mean_w,
            "counter_w": counted_w,
            "counter_to_power": None if verdict is None else verdict.ratio,
        }

    idle = watched(IDLE_S)
    stop = threading.Event()
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)

    def load():
        while not stop.is_set():
            for _ in range(20):
                torch.mm(a, a)
            torch.cuda.synchronize()

    thread = threading.Thread(target=load)
    thread.start()
    try:
        time.sleep(2)
        loaded = watched(10)
    finally:
        stop.set()
        thread.join()
    return {"idle": idle, "load": loaded}


def agreement(check):
    out = check.folder / "agreement.json"
    devices = "cpu" if check.device == "cpu" else "cuda:0"
    script = str(REPOSITORY / "bench" / "agreement.py")
    code, _ = check.run(
        "agreement",
        sys.executable,
        script,
        "--rounds",
        "3",
        "--devices",
        devices,
        "--json",
        str(out),
    )
    return {"goals_met": code == 0, "rows": json.loads(out.read_text())}


def config_of(check, **probe):
    keys = "".join(f"{name} = {json.dumps(value)}\n" for name, value in probe.items())
    path = check.folder / "costprobe.toml"
    path.write_text(
        f'[store]\npath = "{check.folder}/costprobe.db"\n[probing]\nduty = 1\n'
        f'[[probe]]\nname = "check"\n{keys}'
    )
    return path


def sweep(check):
    on_cpu = check.device == "cpu"
    more = {"max_batch": 4, "threads": 2} if on_cpu else {"dtype": "bf16", "max_batch": 1024}
    config = config_of(check, kind="transformer", **more)
    command = (
        sys.executable,
        "-m",
        "costprobe",
        "--config",
        str(config),
        "probe",
        "check",
        "--sweep",
    )
    code, _ = check.run("sweep", *command)
    if code:
        raise ValueError("the sweep failed: see sweep.log")
    _, text = check.run("sweep-stored", *command, "--stored", "--json")
    return json.loads(text.strip().splitlines()[-1])


def probes(check):
    """One run of each way to run a pass, as the command line shows it."""
    found = {}
    ways = {"plain": {}, "cold": {"cold": True}, "cuda_graph": {"cuda_graph": True}}
    for name, more in ways.items():
        if check.device == "cpu" and name == "cuda_graph":
            continue
        dtype = "fp32" if check.device == "cpu" else "bf16"
        config = config_of(check, kind="transformer", dtype=dtype, batch=8, **more)
        command = (sys.executable, "-m", "costprobe", "--config", str(config), "probe", "--json")
        code, text = check.run(f"probe-{name}", *command)
        if code:
            raise ValueError(f"{name}: {text[-300:]}")
        found[name] = json.loads(text.strip().splitlines()[-1])
    return {"ways": found}


def children_of(pid):
    """A process and all below it; each thread has children of its own."""
    direct = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            direct += [int(text) for text in listed.read_text().split()]
    return [pid, *(found for child in direct for found in children_of(child))]


def rss_bytes(pid):
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def kind_of(pid):
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return "gone"
    for sign, kind in (
        ("costprobe.adapters.sensors.child.main", "sensor child"),
        ("costprobe_probes.worker", "probe child"),
    ):
        if sign in words:
            return kind
    return "daemon"


def daemon(check, seconds):
    """A daemon with its own store for some minutes: rows, events, and memory of all processes."""
    dtype = {} if check.device == "cpu" else {"dtype": "bf16"}
    config = config_of(check, kind="transformer", every="30s", when_busy="run", **dtype)
    peaks: dict[str, int] = {}
    with (check.folder / "daemon.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "costprobe", "--config", str(config), "run"],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s and process.poll() is None:
            for pid in children_of(process.pid):
                kind = kind_of(pid)
                peaks[kind] = max(peaks.get(kind, 0), rss_bytes(pid))
            time.sleep(0.5)
        if process.poll() is not None:
            raise ValueError("the daemon ended by itself: see daemon.log")
        process.send_signal(signal.SIGINT)
        process.wait(30)
    command = (sys.executable, "-m", "costprobe", "--config", str(config))
    _, rows = check.run("export", *command, "export", "--since", "1h", "--format", "line")
    _, status = check.run("status", *command, "status", "--json")
    counts: dict[str, int] = {}
    for line in rows.splitlines():
        name = line.partition(",")[0]
        counts[name] = counts.get(name, 0) + 1
    return {
        "seconds": seconds,
        "rows": counts,
        "rss_peak_bytes": peaks,
        "sensor": json.loads(status)["sensor"],
        "probe_lines": [
            x for x in (check.folder / "daemon.log").read_text().splitlines() if "inf/s" in x
        ],
        "events": [line for line in rows.splitlines() if line.startswith("event,")][:20],
    }


def table(found):
    """The outcome for people."""
    lines = [f"gpu_check of {found['began']}", json.dumps(found.get("machine", {}))]
    for name, step in found["steps"].items():
        lines.append(f"\n== {name}: {'good' if step['ok'] else 'FAILED'}, {step['took_s']} s")
        lines += [f"  {compared(row)}" for row in step.get("rows", []) if name == "agreement"]
        lines += [f"  {json.dumps(point)}" for point in step.get("points", [])]
        lines += [f"  {line}" for line in step.get("probe_lines", [])]
        hidden = {"ok", "took_s", "points", "probe_lines", "ways", "sensor"}
        hidden |= {"rows"} if name == "agreement" else set()
        rest = {key: value for key, value in step.items() if key not in hidden}
        lines.append(f"  {json.dumps(rest, default=str)}")
    return "\n".join(lines) + "\n"


def compared(row):
    missed = "  MISSED" if row["good"] is False else ""
    return (
        f"{row['device']:7} {row['module']:12} {row['mode']:5} {row['ours_ms']:9.3f} ms"
        f" {row['theirs_ms']:9.3f} ms  ratio {row['ratio']:.3f}{missed}"
    )


def main():
    parser = argparse.ArgumentParser(description="What only a real GPU can show.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--daemon-s", type=int, default=DAEMON_S)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    asked.folder = asked.folder.resolve()
    check = Check(asked.folder, asked.device)
    check.found["machine"] = machine()
    if asked.device == "gpu" and "gpu" not in check.found["machine"]:
        print("no GPU that this torch can use; --device cpu tries the steps out", file=sys.stderr)
        return 2
    if asked.device == "gpu":
        check.step("sensors", sensor_pass)
        check.step("energy", energy_pass)
    check.step("probes", lambda: probes(check))
    check.step("agreement", lambda: agreement(check))
    check.step("sweep", lambda: sweep(check))
    check.step("daemon", lambda: daemon(check, asked.daemon_s))
    print((asked.folder / "gpu_check.txt").read_text())
    return int(not all(step["ok"] for step in check.found["steps"].values()))


if __name__ == "__main__":
    sys.exit(main())
