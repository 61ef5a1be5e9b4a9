"""`python -m costprobe_probes.worker`: run probes requested on standard input, report on standard output.

This module does not import torch, so that its absence is reported with a fix.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from costprobe_probes.cold_start import report_start
from costprobe_probes.wire import ProbeConfigError, Wire, describe, kind_of, prepare_process

if TYPE_CHECKING:  # torch takes seconds, and may be missing
    from costprobe_probes.session import Session

NICENESS = 10
# ioprio_set(2): number of the system call, and the lowest of the eight best-effort levels.
IOPRIO_SET = {"x86_64": 251, "aarch64": 30, "ppc64le": 273}
IOPRIO_WHO_PROCESS = 1
IOPRIO_LOWEST = (2 << 13) | 7


def serve(wire: Wire) -> None:
    """Run requests until standard input ends."""
    session: Session | None = None
    while True:
        request = wire.request()
        try:
            if request.get("cold_start"):
                report_start(wire, request, _torch_session)
                continue
            session = session or _torch_session(wire, request)
            session.run(request)
        except Exception as error:  # noqa: BLE001 - an operator's module may raise anything; it is reported
            wire.report("error", kind=kind_of(error), message=describe(error, request.get("batch")))


def _torch_session(wire: Wire, request: dict[str, Any]) -> Session:
    """Import torch, and return a session on the device of the request."""
    _lower_priority()
    try:
        from costprobe_probes.session import Session  # noqa: PLC0415 - torch takes seconds, and may be missing
    except (ImportError, OSError) as error:
        raise ProbeConfigError(
            f"torch cannot be imported by {sys.executable} ({error}); install it there (see costprobe doctor), or set"
            " python in [[probe]] to the interpreter that has it"
        ) from error
    return Session(wire, request["torch_device"])


def _lower_priority() -> None:
    """Give this process the lowest CPU and I/O priority."""
    os.nice(NICENESS)
    call = IOPRIO_SET.get(os.uname().machine)
    if call is not None:
        ctypes.CDLL(None).syscall(call, IOPRIO_WHO_PROCESS, 0, IOPRIO_LOWEST)


def main() -> None:
    """Run requests until the daemon closes the pipe."""
    wire = Wire()
    prepare_process()
    # torch works without numpy; its warning is misleading.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    serve(wire)


if __name__ == "__main__":
    main()
