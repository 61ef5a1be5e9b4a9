"""How long each case of the fault matrix is: short in every test run, long in `make soak`."""

import os

IS_LONG = os.environ.get("INFERCOST_SOAK") == "1"
SEED = int(os.environ.get("INFERCOST_SOAK_SEED", "1"))
LONG_TIMEOUT_S = 4 * 3600
TIMEOUT_S = LONG_TIMEOUT_S if IS_LONG else 120


def sized(short, long):
    """The size of a case: the short one, or under INFERCOST_SOAK=1 the long one."""
    return long if IS_LONG else short
