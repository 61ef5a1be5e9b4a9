"""The benchmark's generator of streams, for tests."""

import importlib.util
import sys
from pathlib import Path

_PATH = Path(__file__).parents[2] / "bench" / "streams.py"
_SPEC = importlib.util.spec_from_file_location("bench_streams", _PATH)
_MODULE = importlib.util.module_from_spec(_SPEC)
sys.modules["bench_streams"] = _MODULE
_SPEC.loader.exec_module(_MODULE)

VALUES_PER_DAY, START_S, STEP_S = _MODULE.VALUES_PER_DAY, _MODULE.START_S, _MODULE.STEP_S
Recipe, generate, stationary_recipes, shifted_recipe = (
    _MODULE.Recipe,
    _MODULE.generate,
    _MODULE.stationary_recipes,
    _MODULE.shifted_recipe,
)
