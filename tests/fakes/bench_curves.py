"""The benchmark's load curves of simulated servers, for tests."""

import importlib.util
import sys
from pathlib import Path

_BENCH = Path(__file__).parents[2] / "bench"


def _loaded(name, module_name):
    spec = importlib.util.spec_from_file_location(module_name, _BENCH / f"{name}.py")
    module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Reached = _loaded("batching", "batching").Gpu
simulated_curve = _loaded("where", "bench_where").simulated_curve
