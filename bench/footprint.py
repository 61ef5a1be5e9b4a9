"""What the daemon and its sensor child cost: eight fake GPUs, one reading a second, two sinks.

The sinks point at a small server of this process that takes everything, so that both kinds of
client are loaded and at work.

Usage: python bench/footprint.py [SECONDS]
"""

import os
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fakes.nvml import FakeNvml  # noqa: E402 - it lies with the tests
from fakes.processes import children_of  # noqa: E402 - as above

DAEMON_MB, DAEMON_CPU_PCT = 64.0, 0.5
SETTLE_S = 25.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Taker(BaseHTTPRequestHandler):
    """Takes every write."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        """Says nothing."""


def cpu_s(pid):
    """CPU seconds of a process, without its children's."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_mb(pid):
    """Resident memory of a process in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES / 1e6


def pss_mb(pid):
    """Resident memory, shared pages by their share, in MB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    return float("nan")


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Taker)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fake = FakeNvml(folder, gpus=8)
        for gpu in fake.gpus:
            gpu.set_power(300.0)
        config = folder / "infercost.toml"
        config.write_text(
            f'[store]\npath = "{folder}/infercost.db"\n'
            f'[[sink]]\nname = "one"\napi = "v1"\nurl = "{url}"\ndatabase = "d"\n'
            f'[[sink]]\nname = "two"\napi = "v2"\nurl = "{url}"\nbucket = "b"\n'
        )
        daemon = subprocess.Popen(
            [sys.executable, "-m", "agent", "--config", str(config), "run"],
            cwd=ROOT,
            env={**os.environ, **fake.env()},
            stdout=subprocess.DEVNULL,
        )
        try:
            time.sleep(SETTLE_S)
            return report(daemon.pid, seconds)
        finally:
            daemon.terminate()
            daemon.wait(30)


def report(daemon, seconds):
    """Prints the table; 1 if a goal is missed."""
    (sensor,) = children_of(daemon)
    before = {pid: cpu_s(pid) for pid in (daemon, sensor)}
    started_s = time.monotonic()
    time.sleep(seconds)
    elapsed_s = time.monotonic() - started_s
    used = {pid: (cpu_s(pid) - before[pid]) / elapsed_s * 100 for pid in (daemon, sensor)}
    print(f"eight fake GPUs, one reading a second, two sinks, {elapsed_s:.0f} s")
    print(f"{'process':8} {'CPU % of a core':>16} {'RSS MB':>8} {'PSS MB':>8}")
    for name, pid in (("daemon", daemon), ("sensor", sensor)):
        print(f"{name:8} {used[pid]:16.2f} {rss_mb(pid):8.1f} {pss_mb(pid):8.1f}")
    missed = rss_mb(daemon) > DAEMON_MB or used[daemon] > DAEMON_CPU_PCT
    print(f"goal for the daemon: {DAEMON_CPU_PCT} % and {DAEMON_MB:.0f} MB", end="")
    print(": MISSED" if missed else ": met")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
