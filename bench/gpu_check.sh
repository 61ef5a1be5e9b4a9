#!/usr/bin/env bash
# Run all checks that need a real NVIDIA GPU, in less than eight minutes:
#     bench/gpu_check.sh FOLDER
# writes FOLDER/gpu_check.json, the same as text in FOLDER/gpu_check.txt, and a log of each step.
# PYTHON is the interpreter (default: .venv/bin/python). Without a GPU, --device cpu runs the steps
# that need none.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -lt 1 ]; then
    echo "usage: bench/gpu_check.sh FOLDER [--device cpu]" >&2
    exit 2
fi
cd "$here"
PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" exec "${PYTHON:-.venv/bin/python}" bench/gpu_check.py "$@"
