"""Scripted cost changes with their causes: is the first reported cause right, and are the shares?

    python bench/cause_cases.py [--cases 260] [--seed 1000] [--large]

With `--large` the cases are changes by a factor of 3 and more that no signal measures.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys

from case_answers import answer_of
from case_scores import Score, print_scores, score_of
from cases import cases, large_cases
from scripted_case import ScriptedCase


def own_score(case: ScriptedCase) -> Score:
    """Score costprobe in a case."""
    return score_of(case, answer_of(case))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=260)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    make = large_cases if options.large else cases
    with multiprocessing.Pool(options.jobs) as pool:
        scores = pool.map(own_score, make(options.cases, options.seed), chunksize=4)
    sys.exit(0 if print_scores(scores) else 1)


if __name__ == "__main__":
    main()
