"""The benchmark's scripted cases and their scores, for tests."""

import fakes.bench  # noqa: F401 - the path
from cases import ScriptedChange, cases, large_cases, rows_of
from cause_cases import CaseRows, answer_of, score_of

__all__ = [
    "CaseRows",
    "ScriptedChange",
    "answer_of",
    "cases",
    "large_cases",
    "rows_of",
    "score_of",
]
