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


# The later ones import the earlier ones by these names.
for _name in ("case_device", "scripted_case", "cases", "case_rows", "case_scores", "case_answers"):
    _loaded(_name)
cases = sys.modules["cases"].cases
large_cases = sys.modules["cases"].large_cases
answer_of = sys.modules["case_answers"].answer_of
score_of = sys.modules["case_scores"].score_of
rows_of = sys.modules["case_rows"].rows_of
CaseRows = sys.modules["case_answers"].CaseRows
ScriptedChange = sys.modules["scripted_case"].ScriptedChange
