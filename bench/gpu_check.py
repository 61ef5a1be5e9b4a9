"""What requires a real GPU, in steps of at most two minutes: gpu_check.py FOLDER [STEP ...].

Each step is a process with its own limit: one that fails, crashes or hangs does not stop the others. A step
that misses a goal fails, and the exit code is 1. Nothing changes clocks, power limits or the compute mode.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import gpu_probes
import gpu_timing
from costprobe.adapters.sensors.child.nvidia import NvidiaSensor
from costprobe.adapters.sensors.child.nvml import open_driver
from costprobe.core.clock import Clock, SystemClock
from proc_usage import Usage, memory_mb, name_of, tree_of

DAEMON_S = 90
# The daemon at rest: the start and the comparison of the sensors, then the measurement.
SETTLE_S, REST_S = 25, 45
IDLE_S = 10
# Under steady load.
COUNTER_TOLERANCE = 0.1
# Of a core, for eight GPUs at 1 Hz.
REST_CPU_PCT = 0.3
# Of the result of a step, which is in gpu_check.json: too long to read.
HIDDEN = {"ok", "duration_s", "modes", "sensor"}
REPOSITORY = Path(__file__).resolve().parents[1]


class StepError(Exception):
    """A step failed, or a command of it."""


def run(folder: Path, name: str, *command: str) -> tuple[int, str]:
    """Run a command, log its output to a file, and return its exit code and output.

    Raises:
        StepError: The command failed.
    """
    log = folder / f"{name}.log"
    with log.open("w") as file:
        process = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False)
    text = log.read_text(errors="replace")
    # 3: `costprobe status` of a daemon that has ended.
    if process.returncode not in (0, 1, 3):
        raise StepError(f"{name}: exit code {process.returncode}: {text[-500:]}")
    return process.returncode, text


def machine() -> dict[str, Any]:
    """Return the versions and the hardware of this machine."""
    import torch

    facts: dict[str, Any] = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cpus": os.cpu_count(),
    }
    version = Path("/proc/driver/nvidia/version")
    if version.exists():
        facts["driver"] = version.read_text().splitlines()[0]
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name(0)
        facts["l2_bytes"] = torch.cuda.get_device_properties(0).L2_cache_size
    return facts


def check_sensor(_folder: Path, _device: str) -> dict[str, Any]:
    """Return every metric of the first GPU, the sampling times, and the counter's step."""
    clock = SystemClock()
    faults: list[object] = []
    driver = open_driver()
    sensor = NvidiaSensor(0, clock, lambda _, fault: faults.append(fault))
    device = sensor.discover()
    durations_ms, sample = [], None
    for _ in range(20):
        began_ns = clock.monotonic_ns()
        sample = sensor.sample()
        durations_ms.append((clock.monotonic_ns() - began_ns) / 1e6)
        time.sleep(0.1)
    if sample is None:
        raise StepError("the sensor returned no sample")
    values = {name: value for name, value in sample._asdict().items() if name != "t_ns"}
    return {
        "driver": driver.versions.get("driver_version"),
        "model": device.model,
        "mig_devices": [mig_device.name for mig_device in sensor.slices() or ()],
        "sample_ms_max": max(durations_ms),
        "sample_ms_median": sorted(durations_ms)[len(durations_ms) // 2],
        "metrics": {name: value for name, value in values.items() if value is not None},
        "absent": [name for name, value in values.items() if value is None],
        "reports_process_use": sensor.util_by_pid_pct(clock.monotonic_ns() - 2 * 10**9) is not None,
        "buffers_samples": sensor.read_power_samples() is not None,
        "counter_step_ms": counter_step_ms(sensor, clock),
        "missed": [str(fault) for fault in faults],
    }


def counter_step_ms(sensor: NvidiaSensor, clock: Clock) -> float | None:
    """Return the median time between two steps of the energy counter in ms.

    The counter is read as fast as possible, which changes the power; no energy is measured here.
    """
    first = sensor.read_energy()
    if first is None:
        return None
    ends_ns = clock.monotonic_ns() + 2 * 10**9
    last_j, steps_ns = first.energy_j, []
    while clock.monotonic_ns() < ends_ns:
        reading = sensor.read_energy()
        if reading is not None and reading.energy_j != last_j:
            last_j = reading.energy_j
            steps_ns.append(reading.t_ns)
    intervals_ms = sorted((after - before) / 1e6 for before, after in pairwise(steps_ns))
    return intervals_ms[len(intervals_ms) // 2] if intervals_ms else None


def check_energy(_: Path, _device: str) -> dict[str, Any]:
    """Return the power when idle and under load, and the counter's ratio to the sampled power."""
    import torch
    from costprobe.adapters.sensors.child.energy import compare

    clock = SystemClock()
    open_driver()
    sensor = NvidiaSensor(0, clock, lambda *_: None)
    sensor.discover()

    def sample(seconds: float) -> dict[str, float | None]:
        first, powers = sensor.read_energy(), []
        ends_ns = clock.monotonic_ns() + int(seconds * 1e9)
        while clock.monotonic_ns() < ends_ns:
            watts = sensor.read_power_w()
            if watts is not None:
                powers.append((clock.monotonic_ns(), watts))
            time.sleep(0.1)
        last = sensor.read_energy()
        mean_w = sum(watts for _, watts in powers) / len(powers)
        counter_w = None
        if first is not None and last is not None:
            counter_w = (last.energy_j - first.energy_j) / ((last.t_ns - first.t_ns) / 1e9)
        return {
            "power_w": mean_w,
            "counter_w": counter_w,
            "counter_to_power": compare(first, last, powers) if first and last else None,
        }

    idle = sample(IDLE_S)
    stop = threading.Event()
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)

    def multiply() -> None:
        while not stop.is_set():
            for _ in range(20):
                torch.mm(matrix, matrix)
            torch.cuda.synchronize()

    thread = threading.Thread(target=multiply)
    thread.start()
    try:
        time.sleep(2)
        loaded = sample(10)
    finally:
        stop.set()
        thread.join()
    ratio = loaded["counter_to_power"]
    is_off = ratio is not None and abs(ratio - 1) > COUNTER_TOLERANCE
    missed = [f"the counter is {ratio:.2f} of the sampled power under load"] if is_off else []
    return {"idle": idle, "load": loaded, "missed": missed}


def check_agreement(folder: Path, device: str) -> dict[str, Any]:
    """Return the comparison with other timers."""
    out = folder / "agreement.json"
    devices = "cpu" if device == "cpu" else "cuda:0"
    script = str(REPOSITORY / "bench" / "agreement.py")
    options = ("--rounds", "3", "--devices", devices, "--json", str(out))
    code, _ = run(folder, "agreement", sys.executable, script, *options)
    rows = json.loads(out.read_text())
    return {"rows": rows, "missed": ["the agreement of a row, see agreement.log"] if code else []}


def costprobe(folder: Path, name: str, config: Path, *words: str) -> str:
    """Run a command of costprobe with its output in a log; return the output.

    Raises:
        StepError: It failed.
    """
    command = (sys.executable, "-m", "costprobe", "--config", str(config), *words)
    code, text = run(folder, name, *command)
    if code == 1:
        raise StepError(f"{name}: {text[-300:]}")
    return text


def write_config(folder: Path, device: str, **probe: object) -> Path:
    """Write a configuration with one probe of a transformer, in bf16 on a GPU; return its path."""
    keys = {"kind": "transformer", "dtype": "fp32" if device == "cpu" else "bf16", **probe}
    path = folder / "costprobe.toml"
    path.write_text(
        f'[store]\npath = "{folder}/costprobe.db"\n[probing]\nduty = 1\n[[probe]]\nname = "check"\n'
        + "".join(f"{name} = {json.dumps(value)}\n" for name, value in keys.items())
    )
    return path


def last_document(text: str) -> dict[str, Any]:
    """Return the JSON document in the last line of an output."""
    document: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return document


def check_sweep(folder: Path, device: str) -> dict[str, Any]:
    """Return the stored result of a batch sweep."""
    config = write_config(folder, device, **({"threads": 2} if device == "cpu" else {}))
    words = ("probe", "check", "--sweep")
    costprobe(folder, "sweep", config, *words)
    return last_document(costprobe(folder, "sweep-stored", config, *words, "--stored", "--json"))


def check_probes(folder: Path, device: str) -> dict[str, Any]:
    """Return the result of one probe run for each way to run a forward pass."""
    modes = ("plain", "cold", "cuda_graph")[: 2 if device == "cpu" else 3]
    results = {}
    for mode in modes:
        options = {} if mode == "plain" else {mode: True}
        config = write_config(folder, device, batch=8, **options)
        results[mode] = last_document(costprobe(folder, mode, config, "probe", "--json"))
    return {"modes": results}


def check_rest(folder: Path, _device: str) -> dict[str, Any]:
    """Return the CPU time and the memory of a daemon without probes."""
    path = folder / "rest.toml"
    path.write_text(f'[store]\npath = "{folder}/rest.db"\n')
    with gpu_probes.daemon(path, folder / "rest.log") as process:
        time.sleep(SETTLE_S)
        usage = Usage(process.pid)
        time.sleep(REST_S)
        found = usage.measured()
    cpu_pct = found["cpu_s_per_h"] / 36
    missed = [] if cpu_pct <= REST_CPU_PCT else [f"{cpu_pct:.2f} % of a core, not {REST_CPU_PCT} %"]
    return {**found, "cpu_pct": cpu_pct, "missed": missed}


def check_daemon(folder: Path, device: str) -> dict[str, Any]:
    """Run a daemon with a new store; return its rows, events, and the memory of all processes.

    Raises:
        StepError: The daemon ended.
    """
    config = write_config(folder, device, every="30s", when_busy="run")
    peaks: Counter[str] = Counter()
    with gpu_probes.daemon(config, folder / "daemon.log") as process:
        ends_s = time.monotonic() + DAEMON_S
        while time.monotonic() < ends_s and process.poll() is None:
            for pid in tree_of(process.pid):
                with suppress(OSError):  # it has just ended
                    name, rss_mb = name_of(pid), memory_mb(pid)[1]
                    peaks[name] = max(peaks[name], round(rss_mb))
            time.sleep(0.5)
        if process.poll() is not None:
            raise StepError("the daemon ended early: see daemon.log")
    rows = costprobe(folder, "export", config, "export", "--since", "1h", "--format", "line")
    lines = rows.splitlines()
    log = (folder / "daemon.log").read_text().splitlines()
    return {
        "seconds": DAEMON_S,
        "rows": Counter(line.partition(",")[0] for line in lines),
        "rss_peak_mb": peaks,
        "sensor": json.loads(costprobe(folder, "status", config, "status", "--json"))["sensor"],
        "probe_lines": [line for line in log if "inf/s" in line],
        "events": [line for line in lines if line.startswith("event,")][:20],
    }


class Step(NamedTuple):
    """A step.

    Attributes:
        function: Gets the step's folder and the device; returns what it found.
        limit_s: The process is ended after this time.
        runs_on_cpu: Whether it needs no GPU.
    """

    function: Callable[[Path, str], dict[str, Any]]
    limit_s: float
    runs_on_cpu: bool = False


# In the order of a run: first what is new, last what is known well.
STEPS = {
    "fields": Step(gpu_timing.fields, 25),
    "sensors": Step(check_sensor, 30),
    "definitions": Step(gpu_timing.definitions, 60),
    "roofline": Step(gpu_timing.roofline, 90),
    "alternate": Step(gpu_probes.alternate, 180),
    "hostload": Step(gpu_probes.hostload, 90),
    "power": Step(gpu_timing.power, 75),
    "alert": Step(gpu_probes.alert, 150, runs_on_cpu=True),
    "oom": Step(gpu_probes.oom, 90),
    "served": Step(gpu_probes.served, 90, runs_on_cpu=True),
    "mps": Step(gpu_probes.mps, 120),
    "steady": Step(gpu_timing.steady, 75),
    "energy": Step(check_energy, 60),
    "probes": Step(check_probes, 90, runs_on_cpu=True),
    "agreement": Step(check_agreement, 120, runs_on_cpu=True),
    "sweep": Step(check_sweep, 120, runs_on_cpu=True),
    "rest": Step(check_rest, 90, runs_on_cpu=True),
    "daemon": Step(check_daemon, 120, runs_on_cpu=True),
}


def run_step(command: Sequence[str], limit_s: float, folder: Path) -> dict[str, Any]:
    """Run a step in a process of its own, whose last line of output is its result.

    `ok` is false if it failed, missed a goal, or was ended with all its children at its limit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    result: dict[str, Any] = {}
    with (folder / "output.log").open("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # Daemons and loads of a step that did not end them.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        lines = log.read().strip().splitlines()
    if code is None:
        known = {"until_then": lines[-8:]} if lines else {}
        result = {"error": f"ended at its limit of {limit_s:g} s", **known}
    elif code == 0 and lines:
        result = json.loads(lines[-1])
    else:
        result = {"error": f"exit code {code}: {' / '.join(lines[-3:])[-600:]}"}
    is_good = "error" not in result and not result.get("missed")
    return {"ok": is_good, **result, "duration_s": round(time.monotonic() - began_s, 1)}


def step_text(name: str, step: dict[str, Any]) -> str:
    """Format the result of a step as readable text."""
    lines = [f"== {name}: {'ok' if step['ok'] else 'FAILED'}, {step['duration_s']} s"]
    lines += [f"  MISSED  {goal}" for goal in step.get("missed", [])]
    for key, value in step.items():
        if isinstance(value, list) and key != "missed":
            lines += [f"  {item if isinstance(item, str) else json.dumps(item)}" for item in value]
    shown = {k: v for k, v in step.items() if not isinstance(v, list) and k not in HIDDEN}
    return "\n".join([*lines, f"  {json.dumps(shown)}"]) + "\n"


def main() -> int:
    """Run the steps one after another, and write the report after each."""
    parser = argparse.ArgumentParser(description="Checks that need a real GPU.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", nargs="*", metavar="step", help=f"of {', '.join(STEPS)}")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.steps) - set(STEPS):
        parser.error(f"unknown step {', '.join(sorted(unknown))}: one of {', '.join(STEPS)}")
    folder, device = options.folder.resolve(), options.device
    if options.in_process:
        (name,) = options.steps
        print("\n" + json.dumps(STEPS[name].function(folder / name, device), default=str))
        return 0
    facts = machine()
    if device == "gpu" and "gpu" not in facts:
        print(
            "gpu_check: torch found no GPU; run the steps on the CPU with --device cpu",
            file=sys.stderr,
        )
        return 2
    # So that the processes of a step end with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder.mkdir(parents=True, exist_ok=True)
    began = datetime.now(tz=UTC).isoformat(timespec="seconds")
    report: dict[str, Any] = {"began": began, "machine": facts, "steps": {}}
    texts = [f"gpu_check of {began}\n{json.dumps(facts)}\n"]
    print(texts[0], flush=True)
    for name in options.steps or STEPS:
        step = STEPS[name]
        if device == "cpu" and not step.runs_on_cpu:
            continue
        own = (sys.executable, __file__, str(folder), name, "--device", device, "--in-process")
        report["steps"][name] = run_step(own, step.limit_s, folder / name)
        texts.append(step_text(name, report["steps"][name]))
        print(texts[-1], flush=True)
        (folder / "gpu_check.json").write_text(json.dumps(report, indent=1))
        (folder / "gpu_check.txt").write_text("\n".join(texts))
    return int(not all(step["ok"] for step in report["steps"].values()))


if __name__ == "__main__":
    sys.exit(main())
