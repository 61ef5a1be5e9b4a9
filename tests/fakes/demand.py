"""The benchmark's seeded production of a service, for tests."""

import importlib.util
import sys
from pathlib import Path

_PATH = Path(__file__).parents[2] / "bench" / "demand.py"
_SPEC = importlib.util.spec_from_file_location("demand", _PATH)
demand = sys.modules["demand"] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(demand)
