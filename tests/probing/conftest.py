"""torch, for the tests of what runs on it."""

import warnings

with warnings.catch_warnings():
    # torch warns at its import where numpy is not installed, which costprobe does not need.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    import torch  # noqa: F401 - imported here first, before warnings are errors
