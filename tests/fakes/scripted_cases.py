"""The benchmark's scripted cases and their scores, for tests."""

import importlib.util
import sys
from pathlib import Path

_BENCH = Path(__file__).parents[2] / "bench"


def _loaded(name):
    spec = importlib.util.spec_from_file_location(name, _BENCH / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The scores import the cases by this name.
cases = _loaded("cases").cases
score_of = _loaded("case_scores").score_of
