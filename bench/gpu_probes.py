"""Steps of gpu_check.py that run costprobe itself: probes beside other work, a server, an alert."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from gpu_server import NAME

HERE = Path(__file__).resolve().parent
PROBE = '[[probe]]\nname = "p"\nkind = "{kind}"\n{more}\n'
MODEL = 'dtype = "bf16"\nwhen_busy = "run"\n'
PRICE = '[[price]]\nplan = "on_demand"\nper_hour = 4.0\ncurrency = "USD"\n'
# Throughput of runs with and without an energy window: one definition, so one value.
SAME_RATE = 0.03
SHOWN = (
    "batch", "latency_p50_ms", "latency_rel_err", "throughput_per_s", "contended", "samples",
    "stop_reason", "energy", "fields", "exit_code", "output",
)  # fmt: skip
LOAD = """
import torch
matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
print("loaded", flush=True)
while True:
    for _ in range(50):
        matrix @ matrix
    torch.cuda.synchronize()
"""
# Holds all but 12 GiB beside the reserve, a tenth of the memory, and uses what it holds.
HOLD = """
import time, torch
free, total = torch.cuda.mem_get_info()
held = torch.empty(free - total // 10 - (12 << 30), dtype=torch.uint8, device="cuda")
print("held", flush=True)
while True:
    held[: 1 << 20].add_(1)
    time.sleep(0.1)
"""
BUSY = "while True: pass"
RUNS_BEFORE, RUNS_AFTER = 14, 12
NAMES = {"gpu": "gpu0", "cpu": "cpu"}


@contextmanager
def running(*command: str, env: Mapping[str, str] | None = None) -> Iterator[tuple[str, Any]]:
    """Run a program that prints a line when it is ready; yield the line and the process."""
    given = {**os.environ, **(env or {})}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=given) as process:
        try:
            line = (process.stdout or sys.stdin).readline().strip()
            if not line:
                raise ValueError(f"{command[:2]} ended before it was ready")
            yield line, process
        finally:
            process.kill()


def probe(folder: Path, text: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the result of one run of the probe of a configuration, or its exit code and output."""
    path = folder / "probe.toml"
    path.write_text(f'[store]\npath = "{folder}/probe.db"\n{text}')
    command = (sys.executable, "-m", "costprobe", "--config", str(path), "probe", "p", "--json")
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})}
    )
    if done.returncode != 0:
        return {"exit_code": done.returncode, "output": (done.stdout + done.stderr)[-800:]}
    result = json.loads(done.stdout.strip().splitlines()[-1])
    shown = {name: result[name] for name in SHOWN if result.get(name) is not None}
    # What is known if the step is ended by its limit.
    print(json.dumps(shown), flush=True)
    return shown


def transformer(more: str) -> str:
    return PROBE.format(kind="transformer", more=MODEL + more)


def alternate(folder: Path, _device: str) -> dict[str, Any]:
    """Return runs with and without an energy window, whose throughput must be the same."""
    found, missed = {}, []
    for batch in (8, 256):
        rates: dict[str, list[float]] = {"true": [], "false": []}
        for run in (1, 2):
            for energy, kept in rates.items():
                result = probe(folder, transformer(f"batch = {batch}\nenergy = {energy}"))
                found[f"batch {batch}, energy {energy}, {run}"] = result
                kept.append(result["throughput_per_s"])
        ratio = sum(rates["false"]) / sum(rates["true"])
        if abs(ratio - 1) > SAME_RATE:
            missed.append(f"batch {batch}: without energy {ratio:.3f} of the throughput")
    return {"runs": found, "missed": missed}


def hostload(folder: Path, _device: str) -> dict[str, Any]:
    """Return a launch-bound probe beside busy processors: its wait for one must be in the result."""
    text = transformer("batch = 8\nenergy = false")
    found = {"quiet host": probe(folder, text)}
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        found["busy host"] = probe(folder, text)
    finally:
        for process in busy:
            process.kill()
    waits = [result.get("fields", {}).get("cpu_wait_pct") or 0.0 for result in found.values()]
    is_seen = waits[1] > waits[0]
    missed = [] if is_seen else [f"cpu_wait_pct is {waits[1]:g} % beside busy processors"]
    return {"runs": found, "missed": missed}


def oom(folder: Path, _device: str) -> dict[str, Any]:
    """Return a batch search beside a neighbour that holds the memory; it must survive."""
    kind, missed = "decoder:1B/decode", []
    with running(sys.executable, "-c", HOLD) as (_, neighbour):
        text = MODEL + "energy = false\ncontext_tokens = {}\nbatch = {}"
        searched = probe(folder, PROBE.format(kind=kind, more=text.format(2048, '"auto"')))
        fixed = probe(folder, PROBE.format(kind=kind, more=text.format(8192, 512)))
        if neighbour.poll() is not None:
            missed.append("the neighbour ended")
    if "exit_code" in searched:
        missed.append("the batch search failed")
    if "exit_code" not in fixed:
        missed.append("a batch that does not fit was not refused")
    return {"searched": searched, "fixed": fixed, "missed": missed}


def mps(folder: Path, _device: str) -> dict[str, Any]:
    """Return probes alone and beside a neighbour, time-sliced and under MPS."""
    pipes, logs = folder / "mps", folder / "mps-log"
    pipes.mkdir(exist_ok=True)
    logs.mkdir(exist_ok=True)
    under_mps = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_MPS_LOG_DIRECTORY": str(logs)}
    text, control = transformer("batch = 256"), "nvidia-cuda-mps-control"
    with running(sys.executable, "-c", LOAD):
        found = {"time-sliced, neighbour": probe(folder, text)}
    wanted = {"time-sliced, neighbour": True}
    environment = {**os.environ, **under_mps}
    if subprocess.run([control, "-d"], env=environment, check=False).returncode == 0:
        wanted |= {"MPS, alone": False, "MPS, neighbour": True}
        try:
            found["MPS, alone"] = probe(folder, text, under_mps)
            with running(sys.executable, "-c", LOAD, env=under_mps):
                found["MPS, neighbour"] = probe(folder, text, under_mps)
        finally:
            subprocess.run([control], input=b"quit\n", env=environment, check=False)
    missed = [
        f"{name}: contended is {found[name].get('contended')}, not {is_contended}"
        for name, is_contended in wanted.items()
        if found[name].get("contended") is not is_contended
    ]
    return {"runs": found, "missed": missed}


def served(folder: Path, device: str) -> dict[str, Any]:
    """Return a probe of a server on this machine, with the energy of its device."""
    with running(sys.executable, str(HERE / "gpu_server.py")) as (port, _):
        more = (
            f'url = "http://127.0.0.1:{port}"\nmodel = "{NAME}"\nconcurrency = 4\nrequests = 64\n'
            f'max_tokens = 32\ndevices = ["{NAMES[device]}"]'
        )
        result = probe(folder, PRICE + PROBE.format(kind="openai", more=more))
    has_energy = (result.get("energy") or {}).get("energy_per_inference_j") is not None
    return {"run": result, "missed": [] if has_energy else ["no energy of a request"]}


@contextmanager
def webhook(bodies: list[str]) -> Iterator[int]:
    """Collect what is posted to a port of this machine; yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Log nothing."""

        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])).decode())
            self.send_response(200)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()


@contextmanager
def daemon(
    config: Path, log: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon with its output in a file until the context is left."""
    command = (sys.executable, "-m", "costprobe", "--config", str(config), "run")
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=env)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def alert(folder: Path, device: str) -> dict[str, Any]:
    """Return how many runs pass until work that grew by a third is an alert at a webhook."""
    bodies: list[str] = []
    slow, log, path = folder / "slow", folder / "daemon.log", folder / "alert.toml"
    slow.unlink(missing_ok=True)
    batch, width = (1, "fp32") if device == "cpu" else (1024, "bf16")
    with ExitStack() as stack:
        port = stack.enter_context(webhook(bodies))
        path.write_text(
            f'[store]\npath = "{folder}/alert.db"\n[probing]\nduty = 1\n[detection]\nwarm_up = 12\n'
            '[alerting]\nevaluate_every = "1s"\n[[notifier]]\nkind = "webhook"\nname = "hook"\n'
            f'url = "http://127.0.0.1:{port}/"\n{PRICE}'
            '[[probe]]\nname = "work"\nkind = "module"\nmodule = "gpu_models:work"\n'
            f'dtype = "{width}"\nbatch = {batch}\ndevices = ["{NAMES[device]}"]\nevery = "2s"\n'
            'deadline = "30s"\nenergy = false\nmin_samples = 100\nsample_cap = "500ms"\n'
            'keep_alive = true\nwhen_busy = "run"\n'
        )
        env = {**os.environ, "SLOW_FLAG": str(slow), "PYTHONPATH": _with_here()}
        process = stack.enter_context(daemon(path, log, env))

        def runs() -> int:
            if process.poll() is not None:
                raise ValueError("the daemon ended: see daemon.log")
            return log.read_text().count("inf/s")

        while runs() < RUNS_BEFORE:
            time.sleep(0.5)
        slow.touch()
        before = runs()
        while not bodies and runs() < before + RUNS_AFTER:
            time.sleep(0.5)
        after = runs() - before
    missed = [] if bodies else [f"no notice within {after} runs after the change"]
    return {"runs_to_notice": after, "notices": bodies, "missed": missed}


def _with_here() -> str:
    paths: Sequence[str] = (str(HERE), os.environ.get("PYTHONPATH", ""))
    return os.pathsep.join(filter(None, paths))
