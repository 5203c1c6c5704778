#!/usr/bin/env bash
# Checks sharpi on this machine's GPU without a network, in four parts of under nine minutes each,
# and writes bench-scripts/results/gpu-check-<GPU>.md, .json and the packed logs. It needs numpy,
# torch, CuPy, pytest, a C++ compiler and cmake; wheels of the rest may lie in a folder. PYTHON names
# the interpreter. With --folder, what one call builds and writes serves the next; part 0 does no more
# than that, and needs no GPU.
#
#   bench-scripts/gpu_check.sh [--part 0|1|2|3|4] [--folder DIR] [--wheels DIR] [--layers N]
#                              [--only STEP,...] [--dry-run]
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" bench-scripts/gpu/check.py "$@"
