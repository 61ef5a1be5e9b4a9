#!/usr/bin/env bash
# Run the checks that need a real NVIDIA GPU, all of them in a quarter of an hour:
#     bench/gpu_check.sh FOLDER [STEP ...]
# writes FOLDER/gpu_check.json, the same as text in FOLDER/gpu_check.txt, and a folder for each step.
# The exit code is 1 if a step failed or missed a goal.
# PYTHON is the interpreter (default: .venv/bin/python). Without a GPU, --device cpu runs the steps
# that need none.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -lt 1 ]; then
    echo "usage: bench/gpu_check.sh FOLDER [STEP ...] [--device cpu]" >&2
    exit 2
fi
cd "$here"
PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" exec "${PYTHON:-.venv/bin/python}" bench/gpu_check.py "$@"
