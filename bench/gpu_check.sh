#!/usr/bin/env bash
# Everything that only a real NVIDIA GPU can show, in under eight minutes:
#     bench/gpu_check.sh FOLDER
# writes FOLDER/gpu_check.json and the readable FOLDER/gpu_check.txt, and what each step said.
# PYTHON names the interpreter (default: .venv/bin/python). --device cpu tries the steps out where
# there is no GPU, without those that need one.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -lt 1 ]; then
    echo "usage: bench/gpu_check.sh FOLDER [--device cpu]" >&2
    exit 2
fi
cd "$here"
PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" exec "${PYTHON:-.venv/bin/python}" bench/gpu_check.py "$@"
