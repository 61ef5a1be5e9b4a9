"""Puts the benchmarks on the path, whose generators tests use; behind all others, so that it shadows nothing."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "bench"))
