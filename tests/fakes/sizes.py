"""How long each long case is: short in every test run, long in `make soak`.

INFERCOST_SOAK=1 asks for the long version, and a share such as 0.1 for that part of it.
"""

import os

SHARE = float(os.environ.get("INFERCOST_SOAK") or 0)
SEED = int(os.environ.get("INFERCOST_SOAK_SEED") or 1)
TIMEOUT_S = 12 * 3600 if SHARE else 900


def sized(short, long):
    """The size of a case: the short one, or that share of the long one, if it is more."""
    return max(short, int(long * SHARE))
