"""`python -m probes.worker`: runs probes as asked on standard input, reports on its output.

Nothing here needs torch, so that an interpreter without it is told of in a report.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

from probes.errors import ConfigError, kind_of, words_on
from probes.served import KINDS
from probes.wire import Wire

OOM_SCORE_ADJ = "500"
NICENESS = 10
# ioprio_set(2): the number of the call, and the lowest of the eight levels of best effort.
IOPRIO_SET = {"x86_64": 251, "aarch64": 30, "ppc64le": 273}
IOPRIO_WHO_PROCESS = 1
IOPRIO_LOWEST = (2 << 13) | 7


def serve(wire: Wire) -> None:
    """Answers requests until standard input ends."""
    sessions: dict[bool, Callable[[dict[str, Any]], None]] = {}
    while True:
        request = wire.request()
        try:
            is_served = request.get("kind") in KINDS
            if is_served not in sessions:
                sessions[is_served] = (_served if is_served else _opened)(wire, request)
            sessions[is_served](request)
        except Exception as error:  # noqa: BLE001 - whatever an operator's module raises is reported
            wire.report("error", kind=kind_of(error), message=words_on(error, request.get("batch")))


def _served(wire: Wire, _request: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Returns what runs requests on servers, which needs neither torch nor a device."""
    from probes.served.session import ServedSession  # noqa: PLC0415 - of no use to other probes

    return ServedSession(wire).run


def _opened(wire: Wire, request: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Loads torch, opens the device, and returns what runs requests on it."""
    # Not so a probe of a server: its load is small, and its clock must not wait for a processor.
    _give_way()
    try:
        from probes.session import Session  # noqa: PLC0415 - torch takes seconds, and may be missing
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"torch cannot be imported by {sys.executable} ({error}); install it there, or set"
            " python in [[probe]] to the interpreter that has it"
        ) from error
    return Session(wire, request["torch_device"]).run


def _prepare() -> None:
    """Makes this process tell where it hangs or crashes, and the first to go in need of memory."""
    faulthandler.enable(all_threads=False)
    # What the daemon sends before it kills a worker that is past its deadline.
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    # The image of a process that holds a model takes minutes to write.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    # torch works without numpy, which its warning of it does not say.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123 - one write
            file.write(OOM_SCORE_ADJ)
    except OSError as error:
        sys.stderr.write(f"oom_score_adj: {error}\n")


def _give_way() -> None:
    """Lets everything else on the host go first, for its processors and its disks."""
    os.nice(NICENESS)
    call = IOPRIO_SET.get(os.uname().machine)
    if call is not None:
        ctypes.CDLL(None).syscall(call, IOPRIO_WHO_PROCESS, 0, IOPRIO_LOWEST)


def main() -> None:
    """Serves."""
    wire = Wire()
    _prepare()
    serve(wire)


if __name__ == "__main__":
    main()
