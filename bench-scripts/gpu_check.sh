#!/usr/bin/env bash
# Checks sharpi on this machine's GPU in under nine minutes, without a network, and writes
# bench-scripts/results/gpu-check-<GPU>.md and .json. Nothing has to be installed beyond the
# packages that sharpi needs, a C++ compiler and cmake; PYTHON names the interpreter.
#
#   bench-scripts/gpu_check.sh [--folder DIR] [--layers N] [--only STEP,...] [--dry-run]
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" bench-scripts/gpu_check.py "$@"
