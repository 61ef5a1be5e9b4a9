"""The sizes of the long cases: short in every test run, long in `make soak`.

COSTPROBE_SOAK=1 selects the long version, and a share such as 0.1 for that part of it.
"""

import os

SHARE = float(os.environ.get("COSTPROBE_SOAK") or 0)
SEED = int(os.environ.get("COSTPROBE_SOAK_SEED") or 1)
TIMEOUT_S = 12 * 3600 if SHARE else 900


def sized(short, long):
    """Return the short size, or the requested share of the long one if that is more."""
    return max(short, int(long * SHARE))
