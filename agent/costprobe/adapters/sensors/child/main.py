"""The sensor child: the only process that loads a vendor's driver library.

The daemon runs it as `python -m costprobe.adapters.sensors.child.main`; see
`costprobe.adapters.sensors.protocol.messages` for its input and output. It exits when its input
closes, and with its parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final, NoReturn

from costprobe.adapters.sensors.child.registry import SENSORS
from costprobe.adapters.sensors.child.sensor import SensorTable
from costprobe.adapters.sensors.child.sensor_child import SensorChild
from costprobe.adapters.sensors.protocol.messages import decode, parse_settings
from costprobe.core.clock import SystemClock

PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends (Linux)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(sensors: SensorTable = SENSORS) -> NoReturn:
    """Read the settings and serve.

    Args:
        sensors: The table of sensors.
    """
    die_with_parent()
    # Output of a driver's library must not be mixed with messages.
    write_fd = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # The first line is read byte by byte, to leave the rest to the thread that reads commands.
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            os._exit(0)
        line += byte
    settings, quarantined = parse_settings(decode(line))
    SensorChild(sensors, settings, quarantined, SystemClock(), 0, write_fd).run()


if __name__ == "__main__":
    main()
