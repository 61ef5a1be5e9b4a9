"""Other projects' monitors, each in its own virtual environment under build/peers."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PEERS = Path(__file__).resolve().parents[1] / "build" / "peers"
INSTALL_S = 900
# Each runs at one reading per second with its default features. zeus queues its readings until the
# timelines are fetched.
ZEUS = """
import time
from zeus.monitor import PowerMonitor
if __name__ == "__main__":
    while True:
        try:
            monitor = PowerMonitor(update_period=1.0, max_samples_per_gpu=3600)
            break
        except RuntimeError:  # its processes did not start within its limit of 10 s
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
    """A monitor of another project.

    Attributes:
        name: Name in the table.
        package: Its name on PyPI.
        arguments: Arguments of its interpreter.
        script: Program whose path replaces the argument `SCRIPT`.
    """

    name: str
    package: str
    arguments: tuple[str, ...]
    script: str = ""


PORT = "PORT"
SCRIPT = "SCRIPT"
ALL = (
    Peer("zeus", "zeus", (SCRIPT,), ZEUS),
    Peer("codecarbon", "codecarbon", (SCRIPT,), CODECARBON),
    Peer(
        "nvitop-exporter",
        "nvitop-exporter",
        ("-m", "nvitop_exporter", "--interval", "1", "--bind", "127.0.0.1", "--port", PORT),
    ),
)


class MissingError(Exception):
    """A peer is not available; the text gives the reason."""


def python_of(peer: Peer) -> str:
    """Return the interpreter of the peer's environment; install the peer on first use.

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


def command_of(peer: Peer, port: int) -> list[str]:
    """Return the peer's command; `port` replaces the argument `PORT`."""
    python = python_of(peer)
    script = PEERS / peer.name / "monitor.py"
    if peer.script:
        script.write_text(peer.script)
    replacements = {PORT: str(port), SCRIPT: str(script)}
    return [python, *(replacements.get(argument, argument) for argument in peer.arguments)]


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_S, capture_output=True, text=True)


def _reason(error: Exception) -> str:
    lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
