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


_CASES = _loaded("cases")
_SCORES = _loaded("cause_cases")  # imports the cases by their name
cases, large_cases, rows_of, ScriptedChange = (
    _CASES.cases,
    _CASES.large_cases,
    _CASES.rows_of,
    _CASES.ScriptedChange,
)
answer_of, score_of, CaseRows = _SCORES.answer_of, _SCORES.score_of, _SCORES.CaseRows
