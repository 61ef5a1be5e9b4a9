"""A probe worker that runs a pass once for each block of timed passes: a program for an interpreter.

Models, inputs, batches, faults and messages are those of the real worker. Only the repetitions, a
second of computing for each request, are left out: the latencies of a block are scripted, and
warm-up, back-to-back passes and steady-state window may be shorter.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2] / "probes")  # in place of the folder of this file

from costprobe_probes import device, stats, worker  # noqa: E402 - found through the line above

PASS_MS, SLOW_PASS_MS = 1.0, 50.0
WINDOW_MIN_S = 0.2


class QuickDevice(device.CpuDevice):
    """Every tenth pass of a block is reported as a slow one."""

    def time_block(self, run, runs, before=None, watch=None):  # noqa: ARG002 - the contract's
        super().time_block(run, 1, before)
        return [SLOW_PASS_MS if i % 10 == 9 else PASS_MS for i in range(runs)]


device.CpuDevice = QuickDevice
stats.ENERGY_WINDOW_MIN_S = WINDOW_MIN_S
stats.LOOP_S = stats.WARM_UP_S = 0.0
stats.LOOP_PASSES = 3
worker.main()
