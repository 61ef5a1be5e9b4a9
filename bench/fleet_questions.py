"""Time and memory of each question of `costprobe fleet` over the hourly rows of a fleet.

    nice -n 10 python bench/fleet_questions.py --hosts 1000 --days 30
    nice -n 10 python bench/fleet_questions.py --hosts 1000 --days 14 --peers

A real VictoriaMetrics is filled with the hourly rows of hosts with eight GPUs, one service and a probe on
each GPU, a part of a service of ten hosts, and a week of rows of `agent`, through its import API. Each question runs as the command does: a
process of its own, whose time and peak memory include the interpreter's start. The cost that `spend --fleet` prints
must be the sum of what was imported. With `--peers` the rows are those of the probes, which `outliers` and `change`
ask about: half of the hosts change their driver.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

from fakes.servers import VictoriaMetrics, get, running
from proc_usage import cpu_s as cpu_of
from table import Table, add_json, finish

GPUS = 8
# One host in so many has a GPU that is slower by SLOWER.
SICK_EVERY = 13
SLOWER = 0.3
HOUR_S = 3600
AGENT_DAYS = 7
AGENT_S = 60
VARIANTS = 64
HOSTS_PER_REQUEST = 20
TIMES = 3
GOAL_S, GOAL_BYTES = 2.0, 200e6
LATE_S = 2 * HOUR_S
# Services over hosts: one in so many has a member without its last hours.
GROUP_HOSTS, SILENT_EVERY, SILENT_H = 10, 10, 30
OF_GROUPS = (
    *("cost_cost_total", "cost_cost_idle", "cost_cost_idle_known", "cost_window_s"),
    *("cost_energy_j", "serving_requests", "serving_errors", "serving_tokens_in"),
    *("serving_cached_tokens", "serving_tokens_out", "slo_requests", "slo_requests_met"),
)
MEASURED = """
import json, resource, subprocess, sys, time
began_s = time.perf_counter()
code = subprocess.run(sys.argv[1:]).returncode
seconds = time.perf_counter() - began_s
used = resource.getrusage(resource.RUSAGE_CHILDREN)
cpu_s, peak_bytes = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
print(json.dumps({"seconds": seconds, "cpu_s": cpu_s, "peak_bytes": peak_bytes}), file=sys.stderr)
sys.exit(code)
"""
QUESTIONS = (
    "status --fleet",
    "status --fleet --by label:rack",
    "spend --fleet",
    "spend --fleet --by host",
    "spend --fleet --by gpu_model",
    "spend --fleet --by label:rack",
    "spend --fleet --by service",
    "compare --fleet",
    "compare --fleet --by gpu_model",
    "compare --fleet --by group",
    "forecast --fleet",
    "report --fleet",
)
PEER_QUESTIONS = (
    "fleet outliers",
    "fleet outliers --within label:rack",
    "fleet change driver",
    "fleet change driver --within label:rack",
)
PROBED = (
    *("probe_throughput_per_s", "probe_energy_per_inference_j", "probe_sm_clock_mhz"),
    *("probe_mem_clock_mhz", "probe_power_limit_w", "probe_throttled_thermal_pct"),
    *(
        "probe_throttled_power_pct",
        "probe_temp_max_c",
        "probe_mem_used_pct",
        "probe_ecc_uncorrected",
    ),
)


class SimulatedFleet:
    """Hourly series of a fleet as VictoriaMetrics imports them.

    Args:
        hosts: Number of hosts.
        days: Length of the history.
        end_s: End of the history, a full hour.
    """

    def __init__(self, hosts: int, days: int, end_s: int) -> None:
        self.hosts, self.start_s, self.end_s = hosts, end_s - days * 86_400, end_s
        hours = list(range(self.start_s + HOUR_S, end_s + 1, HOUR_S))
        minutes = list(range(end_s - AGENT_DAYS * 86_400, end_s + 1, AGENT_S))
        self._hours = json.dumps([time_s * 1000 for time_s in hours])
        self._agent = json.dumps([40 << 20] * len(minutes)), json.dumps([s * 1000 for s in minutes])
        rng = random.Random(1)
        # Six digits, as roll-ups have about as many.
        self._values = [[round(rng.uniform(0.5, 1.5), 6) for _ in hours] for _ in range(VARIANTS)]
        self._texts = [json.dumps(values) for values in self._values]
        self._window = json.dumps([float(HOUR_S)] * len(hours))
        self._slow = json.dumps([round(value / (1 + SLOWER), 6) for value in self._values[0]])
        self.samples = 0
        self.cost = 0.0

    def of_host(self, number: int) -> Iterator[str]:
        """Yield the series of a host as lines of the import API."""
        host = {"host": f"gpu-node-{number:05}.example.com", "rack": f"r{number % 40:02}"}
        model = "NVIDIA H100" if number % 3 else "NVIDIA A100"
        money = {"currency": "USD"}
        for gpu in range(GPUS):
            device = {**host, "device": f"gpu{gpu}"}
            board = {**device, **money, "kind": "gpu", "uuid": f"{number}-{gpu}", "model": model}
            for field in ("cost", "energy_j", "util_pct", "carbon_g", "carbon_energy_j"):
                yield self._line(f"device_{field}", board, number * GPUS + gpu)
            self.cost += math.fsum(self._values[(number * GPUS + gpu) % VARIANTS])
            for part in ("busy", "idle"):
                labels = {**device, **money, "service": "chat", "part": part}
                yield self._line("allocation_cost", labels, gpu)
            probed = {**device, **money, "probe": "ranker", "basis": "probe", "plan": "owned"}
            for field in ("cost_per_inference", "energy_per_inference_j"):
                yield self._line(f"cost_{field}", probed, number + gpu)
        served = {**host, **money, "service": "chat", "basis": "serving", "plan": "owned"}
        for field in (
            *("cost_total", "cost_idle", "cost_tokens_in", "cost_tokens_out", "energy_j"),
            *("inferences", "requests", "tokens_in", "tokens_out"),
        ):
            yield self._line(f"cost_{field}", served, number)
        yield from self._member(number, host)
        values, times = self._agent
        labels = {"__name__": "agent_rss_bytes", "db": "costprobe", "version": "0.1.0", **host}
        self.samples += values.count(",") + 1
        yield f'{{"metric":{json.dumps(labels)},"values":{values},"timestamps":{times}}}'

    def _member(self, number: int, host: dict[str, str]) -> Iterator[str]:
        group, place = divmod(number, GROUP_HOSTS)
        tags = {"service": "llm", "service_group": f"llm-{group}"}
        tags |= {**host, "service_role": "prefill" if place % 2 else "decode"}
        paid = {"basis": "serving", "plan": "owned", "currency": "USD", "device": "gpu0+gpu1"}
        more = {"cost": paid, "serving": {"engine": "vllm"}, "slo": {"bound": "ttft_p90"}}
        is_silent = not (place or group % SILENT_EVERY)
        part = slice(None, -SILENT_H) if is_silent else slice(None)
        for name in OF_GROUPS:
            labels = {**tags, **more[name.partition("_")[0]]}
            line = self._line(name, labels, number, part)
            if name == "cost_window_s":
                values = self._texts[number % VARIANTS]
                window = self._window
                if is_silent:
                    values, window = (json.dumps(json.loads(one)[part]) for one in (values, window))
                line = line.replace(values, window)
            yield line

    def peers_of_host(self, number: int) -> Iterator[str]:
        """Yield the series of a host's probes; hosts with an odd number change their driver once."""
        host = {"host": f"gpu-node-{number:05}.example.com", "rack": f"r{number % 40:02}"}
        changed = len(self._values[0]) * (1 + number % 8) // 10 if number % 2 else 0
        for gpu in range(GPUS):
            device, variant = {**host, "device": f"gpu{gpu}"}, number * GPUS + gpu
            board = {**device, "kind": "gpu", "model": "NVIDIA H100", "currency": "USD"}
            for field in ("util_pct", "price_rate_per_h", "cost"):
                yield self._line(f"device_{field}", board, variant)
            probe = {**device, "probe": "ranker"}
            for name in PROBED:
                line = self._line(name, {**probe, "batch": "8"}, variant)
                if name == PROBED[0] and gpu == 0 and number % SICK_EVERY == 0:
                    line = line.replace(self._texts[variant % VARIANTS], self._slow)
                yield line
            priced = {**probe, "basis": "probe", "plan": "owned", "currency": "USD"}
            for field in ("cost_hardware", "cost_energy"):
                yield self._line(f"cost_{field}", priced, variant)
            software = {**probe, "torch": "2.13", "dtype": "float16"}
            for driver, part in (("550.54", slice(changed)), ("560.28", slice(changed, None))):
                yield self._line("software_probe_runs", {**software, "driver": driver}, 0, part)

    def _line(
        self, name: str, labels: dict[str, str], variant: int, part: slice = slice(None)
    ) -> str:
        metric = json.dumps({"__name__": name, "db": "costprobe_hourly", **labels})
        values, times = self._texts[variant % VARIANTS], self._hours
        if part != slice(None):
            values, times = (json.dumps(json.loads(text)[part]) for text in (values, times))
        self.samples += values.count(",") + 1
        return f'{{"metric":{metric},"values":{values},"timestamps":{times}}}'


def fill(
    server: VictoriaMetrics, fleet: SimulatedFleet, lines: Callable[[int], Iterable[str]]
) -> float:
    """Import the series of all hosts; return the duration in s."""
    began_s = time.perf_counter()
    for first in range(0, fleet.hosts, HOSTS_PER_REQUEST):
        numbers = range(first, min(fleet.hosts, first + HOSTS_PER_REQUEST))
        body = "\n".join(line for number in numbers for line in lines(number)).encode()
        request = urllib.request.Request(f"{server.url}/api/v1/import", body)  # noqa: S310 - our own server
        urllib.request.urlopen(request, timeout=120).close()  # noqa: S310 - as above
    get(f"{server.url}/internal/force_flush")
    return time.perf_counter() - began_s


class Used(NamedTuple):
    """What a command used, and its standard output."""

    seconds: float
    cpu_s: float
    peak_bytes: float
    output: str


def asked(config: Path, question: str, fleet: SimulatedFleet) -> Used:
    """Run a command as a process."""
    since_s = fleet.end_s - AGENT_DAYS * 86_400 if question.startswith("status") else fleet.start_s
    period = [
        word
        for option, time_s in (("--since", since_s), ("--until", fleet.end_s))
        for word in (option, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_s)))
    ]
    if question.startswith("forecast"):
        # Of the present month.
        period = []
    # Installed packages have bytecode.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(config.parent / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    words = ["-m", "costprobe", "-c", str(config), *question.split(), *period, "--json"]
    # A small parent: a child's peak begins with that of the process that forked it.
    done = subprocess.run(
        [sys.executable, "-S", "-c", MEASURED, sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode:
        raise SystemExit(f"{question}: {done.stderr}")
    used = json.loads(done.stderr.splitlines()[-1])
    return Used(used["seconds"], used["cpu_s"], used["peak_bytes"], done.stdout)


def main() -> int:
    """Fill the database, and measure every question."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--peers", action="store_true")
    add_json(parser)
    arguments = parser.parse_args()
    end_s = (int(time.time()) - LATE_S) // HOUR_S * HOUR_S
    fleet = SimulatedFleet(arguments.hosts, arguments.days, end_s)
    table = Table()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running(VictoriaMetrics, folder / "victoria", "victoria-metrics") as server:
            lines = fleet.peers_of_host if arguments.peers else fleet.of_host
            seconds = fill(server, fleet, lines)
            print(f"{fleet.samples:,} samples in {seconds:.0f} s", file=sys.stderr)
            config = folder / "costprobe.toml"
            config.write_text(
                f'[fleet]\nkind = "victoriametrics"\nurl = "{server.url}"\n'
                'database = "costprobe"\nhourly_database = "costprobe_hourly"\n'
            )
            label = f"{arguments.hosts:,} hosts x {GPUS} GPUs x {arguments.days} days"
            asked(config, QUESTIONS[0], fleet)
            for question in PEER_QUESTIONS if arguments.peers else QUESTIONS:
                before_s = cpu_of(server._process.pid)  # noqa: SLF001 - our own fake
                runs = [asked(config, question, fleet) for _ in range(TIMES)]
                spent_s = cpu_of(server._process.pid) - before_s  # noqa: SLF001 - as above
                server_cpu_s = spent_s / TIMES
                seconds = statistics.median(run.seconds for run in runs)
                cpu_s = statistics.median(run.cpu_s for run in runs)
                peak_bytes = max(run.peak_bytes for run in runs)
                document = json.loads(runs[0].output)
                if document["is_partial"]:
                    raise SystemExit(f"{question}: {document['problems']}")
                if question.startswith("spend"):
                    paid = document["total"]["costs"][0]["cost"]
                    if not math.isclose(paid, fleet.cost, rel_tol=1e-9):
                        raise SystemExit(f"{question}: {paid}, not {fleet.cost}")
                note = (
                    f"CPU {cpu_s:.2f} s, of the database {server_cpu_s:.2f} s;"
                    f" {peak_bytes / 1e6:.0f} MB; {label}"
                )
                table.row(
                    f"fleet {question}",
                    seconds,
                    "s",
                    goal=f"at most {GOAL_S:g} s and {GOAL_BYTES / 1e6:g} MB",
                    met=seconds <= GOAL_S and peak_bytes <= GOAL_BYTES,
                    note=note,
                )
                print(f"{question}: {seconds:.2f} s, {note}", file=sys.stderr)
    return finish(table, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
