"""What tests use of the benchmarks: streams, the production of a service, scripted cases and their scores."""

import importlib.util
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"


def _loaded(name):
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The later ones import the earlier ones by these names.
for _name in ("case_device", "scripted_case", "cases", "case_rows", "case_scores", "case_answers"):
    _loaded(_name)
demand, streams = _loaded("demand"), _loaded("streams")
VALUES_PER_DAY, START_S, STEP_S = streams.VALUES_PER_DAY, streams.START_S, streams.STEP_S
Recipe, generate = streams.Recipe, streams.generate
stationary_recipes, shifted_recipe = streams.stationary_recipes, streams.shifted_recipe
cases, large_cases = sys.modules["cases"].cases, sys.modules["cases"].large_cases
answer_of, CaseRows = sys.modules["case_answers"].answer_of, sys.modules["case_answers"].CaseRows
score_of, rows_of = sys.modules["case_scores"].score_of, sys.modules["case_rows"].rows_of
ScriptedChange = sys.modules["scripted_case"].ScriptedChange
