"""Steps of gpu_check.sh; the result and the duration of each are written to files."""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from costprobe.adapters.sensors.child.nvidia import NvidiaSensor
from costprobe.adapters.sensors.child.nvml import Library
from costprobe.core.clock import Clock, SystemClock
from proc_usage import Usage, tree_of

DAEMON_S = 90
# The daemon at rest: the start and the comparison of the sensors, then the measurement.
SETTLE_S, REST_S = 25, 45
STEP_LIMIT_S = 200
IDLE_S = 10
REPOSITORY = Path(__file__).resolve().parents[1]


class StepReport:
    """Runs the steps and writes their results.

    Args:
        folder: Folder of the result files and the logs.
        device: "gpu" or "cpu".
    """

    def __init__(self, folder: Path, device: str) -> None:
        self.folder, self.device = folder, device
        self.report: dict[str, Any] = {
            "began": datetime.now(tz=UTC).isoformat(timespec="seconds"),
            "steps": {},
        }

    def step(self, name: str, function: Callable[[], dict[str, Any]]) -> None:
        """Run a step and record its result; an error is recorded, too."""
        began_s = time.monotonic()
        print(f"{name} ...", flush=True)
        try:
            result = {"ok": True, **function()}
        except (KeyError, OSError, ValueError, subprocess.SubprocessError) as error:
            result = {"ok": False, "error": f"{type(error).__name__}: {error}"[:2000]}
        result["duration_s"] = round(time.monotonic() - began_s, 1)
        self.report["steps"][name] = result
        self.write()

    def run(self, name: str, *command: str, limit_s: float = STEP_LIMIT_S) -> tuple[int, str]:
        """Run a command, log its output to a file, and return its exit code and output.

        Raises:
            ValueError: The command failed.
        """
        log = self.folder / f"{name}.log"
        with log.open("w") as file:
            process = subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, timeout=limit_s, check=False
            )
        text = log.read_text(errors="replace")
        # 3: `costprobe status` of a daemon that has ended.
        if process.returncode not in (0, 1, 3):
            raise ValueError(f"exit code {process.returncode}: {text[-500:]}")
        return process.returncode, text

    def write(self) -> None:
        """Write the report as JSON and as text."""
        (self.folder / "gpu_check.json").write_text(json.dumps(self.report, indent=1))
        (self.folder / "gpu_check.txt").write_text(report_text(self.report))


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


def check_sensor() -> dict[str, Any]:
    """Return every metric of the first GPU, the sampling times, and the counter's step."""
    clock = SystemClock()
    faults: list[object] = []
    library = Library()
    driver = library.open()
    sensor = NvidiaSensor(0, library, clock, lambda _, fault: faults.append(fault))
    device = sensor.discover()
    durations_ms, sample = [], None
    for _ in range(20):
        began_ns = clock.monotonic_ns()
        sample = sensor.sample()
        durations_ms.append((clock.monotonic_ns() - began_ns) / 1e6)
        time.sleep(0.1)
    if sample is None:
        raise ValueError("the sensor returned no sample")
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
        "faults": [str(fault) for fault in faults],
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


def check_energy() -> dict[str, Any]:
    """Return the power when idle and under load, and the counter's ratio to the sampled power."""
    import torch
    from costprobe.adapters.sensors.child.energy import compare

    clock = SystemClock()
    library = Library()
    library.open()
    sensor = NvidiaSensor(0, library, clock, lambda *_: None)
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
        verdict = compare(first, last, powers) if first and last else None
        return {
            "power_w": mean_w,
            "counter_w": counter_w,
            "counter_to_power": None if verdict is None else verdict.ratio,
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
    return {"idle": idle, "load": loaded}


def check_agreement(check: StepReport) -> dict[str, Any]:
    """Return the comparison with other timers."""
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


def write_config(check: StepReport, **probe: object) -> Path:
    """Write a configuration with one probe and return its path."""
    keys = "".join(f"{name} = {json.dumps(value)}\n" for name, value in probe.items())
    path = check.folder / "costprobe.toml"
    path.write_text(
        f'[store]\npath = "{check.folder}/costprobe.db"\n[probing]\nduty = 1\n'
        f'[[probe]]\nname = "check"\n{keys}'
    )
    return path


def check_sweep(check: StepReport) -> dict[str, Any]:
    """Return the stored result of a batch sweep."""
    options: dict[str, object] = {"dtype": "bf16"}
    if check.device == "cpu":
        options = {"threads": 2}
    config = write_config(check, kind="transformer", **options)
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
    result: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return result


def check_probes(check: StepReport) -> dict[str, Any]:
    """Return the result of one probe run for each way to run a forward pass."""
    results = {}
    modes: dict[str, dict[str, object]] = {
        "plain": {},
        "cold": {"cold": True},
        "cuda_graph": {"cuda_graph": True},
    }
    for name, options in modes.items():
        if check.device == "cpu" and name == "cuda_graph":
            continue
        dtype = "fp32" if check.device == "cpu" else "bf16"
        config = write_config(check, kind="transformer", dtype=dtype, batch=8, **options)
        command = (sys.executable, "-m", "costprobe", "--config", str(config), "probe", "--json")
        code, text = check.run(f"probe-{name}", *command)
        if code:
            raise ValueError(f"{name}: {text[-300:]}")
        results[name] = json.loads(text.strip().splitlines()[-1])
    return {"modes": results}


def check_rest(check: StepReport) -> dict[str, Any]:
    """Return the CPU time and the memory of a daemon without probes."""
    path = check.folder / "rest.toml"
    path.write_text(f'[store]\npath = "{check.folder}/rest.db"\n')
    with (check.folder / "rest.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "costprobe", "--config", str(path), "run"],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        time.sleep(SETTLE_S)
        usage = Usage(process.pid)
        time.sleep(REST_S)
        found = usage.measured()
        process.send_signal(signal.SIGINT)
        process.wait(30)
    return {**found, "cpu_pct": found["cpu_s_per_h"] / 36}


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def process_kind(pid: int) -> str:
    """Return which of costprobe's processes this is."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return "ended"
    for module, kind in (
        ("costprobe.adapters.sensors.child.main", "sensor child"),
        ("costprobe.adapters.load_child.main", "load child"),
        ("costprobe_probes.worker", "probe child"),
    ):
        if module in command:
            return kind
    return "daemon"


def check_daemon(check: StepReport, seconds: float) -> dict[str, Any]:
    """Run a daemon with a new store; return its rows, events, and the memory of all processes.

    Raises:
        ValueError: The daemon ended.
    """
    dtype: dict[str, object] = {} if check.device == "cpu" else {"dtype": "bf16"}
    config = write_config(check, kind="transformer", every="30s", when_busy="run", **dtype)
    peaks: dict[str, int] = {}
    with (check.folder / "daemon.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "costprobe", "--config", str(config), "run"],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s and process.poll() is None:
            for pid in tree_of(process.pid):
                kind = process_kind(pid)
                peaks[kind] = max(peaks.get(kind, 0), rss_bytes(pid))
            time.sleep(0.5)
        if process.poll() is not None:
            raise ValueError("the daemon ended early: see daemon.log")
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
            line
            for line in (check.folder / "daemon.log").read_text().splitlines()
            if "inf/s" in line
        ],
        "events": [line for line in rows.splitlines() if line.startswith("event,")][:20],
    }


def report_text(report: dict[str, Any]) -> str:
    """Format the report as readable text."""
    lines = [f"gpu_check of {report['began']}", json.dumps(report.get("machine", {}))]
    for name, step in report["steps"].items():
        lines.append(f"\n== {name}: {'ok' if step['ok'] else 'FAILED'}, {step['duration_s']} s")
        lines += [f"  {agreement_line(row)}" for row in step.get("rows", []) if name == "agreement"]
        lines += [f"  {json.dumps(point)}" for point in step.get("points", [])]
        lines += [f"  {line}" for line in step.get("probe_lines", [])]
        hidden = {"ok", "duration_s", "points", "probe_lines", "modes", "sensor"}
        hidden |= {"rows"} if name == "agreement" else set()
        shown = {key: value for key, value in step.items() if key not in hidden}
        lines.append(f"  {json.dumps(shown, default=str)}")
    return "\n".join(lines) + "\n"


def agreement_line(row: dict[str, Any]) -> str:
    """Format one comparison with another timer."""
    missed = "  MISSED" if row["good"] is False else ""
    return (
        f"{row['device']:7} {row['module']:12} {row['mode']:5} {row['ours_ms']:9.3f} ms"
        f" {row['theirs_ms']:9.3f} ms  ratio {row['ratio']:.3f}{missed}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks that need a real GPU.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--daemon-s", type=int, default=DAEMON_S)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    options.folder = options.folder.resolve()
    check = StepReport(options.folder, options.device)
    check.report["machine"] = machine()
    if options.device == "gpu" and "gpu" not in check.report["machine"]:
        print(
            "gpu_check: torch found no GPU; run the steps on the CPU with --device cpu",
            file=sys.stderr,
        )
        return 2
    if options.device == "gpu":
        check.step("sensors", check_sensor)
        check.step("energy", check_energy)
    check.step("probes", lambda: check_probes(check))
    check.step("agreement", lambda: check_agreement(check))
    check.step("sweep", lambda: check_sweep(check))
    check.step("rest", lambda: check_rest(check))
    check.step("daemon", lambda: check_daemon(check, options.daemon_s))
    print((options.folder / "gpu_check.txt").read_text())
    return int(not all(step["ok"] for step in check.report["steps"].values()))


if __name__ == "__main__":
    sys.exit(main())
