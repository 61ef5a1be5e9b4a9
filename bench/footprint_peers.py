"""Other projects' monitors, each in a virtual environment of its own under build/peers."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PEERS = Path(__file__).resolve().parents[1] / "build" / "peers"
INSTALL_S = 900
# Each is asked for what it does at one reading a second, and nothing of it is switched off that it
# does by default. What zeus reads waits in queues until somebody takes it out.
ZEUS = """
import time
from zeus.monitor import PowerMonitor
if __name__ == "__main__":
    while True:
        try:
            monitor = PowerMonitor(update_period=1.0, max_samples_per_gpu=3600)
            break
        except RuntimeError:  # its processes take more than the ten seconds that it gives them
            time.sleep(1)
    print("READY", flush=True)
    while True:
        time.sleep(10)
        monitor.get_all_power_timelines()
"""
CODECARBON = """
import time
from codecarbon import OfflineEmissionsTracker
if __name__ == "__main__":
    tracker = OfflineEmissionsTracker(
        country_iso_code="USA", measure_power_secs=1, save_to_file=False, log_level="error"
    )
    tracker.start()
    print("READY", flush=True)
    while True:
        time.sleep(3600)
"""


@dataclass(frozen=True)
class Peer:
    """A monitor of somebody else.

    Attributes:
        name: What the table calls it.
        package: Its name on PyPI.
        arguments: What its interpreter is started with.
        script: A program that is put beside its environment, for the arguments `SCRIPT`.
        does: What it does at one reading a second.
    """

    name: str
    package: str
    arguments: tuple[str, ...]
    script: str = ""
    does: str = ""


PORT = "PORT"
SCRIPT = "SCRIPT"
ALL = (
    Peer("zeus", "zeus", (SCRIPT,), ZEUS, "power of each GPU, in memory"),
    Peer("codecarbon", "codecarbon", (SCRIPT,), CODECARBON, "energy of GPUs and host, in memory"),
    Peer(
        "nvitop-exporter",
        "nvitop-exporter",
        ("-m", "nvitop_exporter", "--interval", "1", "--bind", "127.0.0.1", "--port", PORT),
        "",
        "all metrics of the GPUs and the host, for Prometheus to fetch",
    ),
)


class MissingError(Exception):
    """A peer cannot be had; the text says why."""


def python_of(peer):
    """The interpreter that has the peer; installs it on first use.

    Raises:
        MissingError: It cannot be installed.
    """
    folder = PEERS / peer.name
    done, python = folder / "installed", folder / "bin" / "python"
    if not done.exists():
        try:
            _run([sys.executable, "-m", "venv", str(folder)])
            _run([str(python), "-m", "pip", "install", "--quiet", peer.package])
        except (OSError, subprocess.SubprocessError) as error:
            raise MissingError(f"pip install {peer.package}: {_reason(error)}") from error
        done.write_text(peer.package)
    return str(python)


def version_of(peer):
    """The version that is installed."""
    code = f"from importlib.metadata import version; print(version({peer.package!r}))"
    found = subprocess.run(
        [python_of(peer), "-c", code], check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


def command_of(peer, port):
    """How the peer is started; `port` is for one that listens."""
    python = python_of(peer)
    script = PEERS / peer.name / "monitor.py"
    if peer.script:
        script.write_text(peer.script)
    words = {PORT: str(port), SCRIPT: str(script)}
    return [python, *(words.get(word, word) for word in peer.arguments)]


def _run(command):
    subprocess.run(command, check=True, timeout=INSTALL_S, capture_output=True, text=True)


def _reason(error):
    words = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
    return words[-1] if words else type(error).__name__
