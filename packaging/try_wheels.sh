#!/usr/bin/env bash
# Installs the wheel of this machine's kind into an empty environment of every Python that is there,
# and runs it from another folder.
#
#   packaging/try_wheels.sh [PYTHON]...
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=$(echo "$PWD"/dist/sharpi-*_"$(uname -m)".whl)
[[ -e $wheel ]] || { echo "error: there is no wheel for $(uname -m) in dist; type: make wheels" >&2; exit 1; }
pythons=("$@")
[[ $# != 0 ]] || pythons=(python3.11 python3.12 python3.13 python3.14)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

tried=0
for python in "${pythons[@]}"; do
  "$python" --version >/dev/null 2>&1 || { echo "$python: not here"; continue; }
  "$python" -m venv "$folder/venv" --clear
  "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
  "$folder/venv/bin/python" -m pip check >/dev/null
  (cd / && "$folder/venv/bin/sharpi" run -n 8 -p "Once upon a time" >"$folder/text" 2>/dev/null)
  [[ -s $folder/text ]]
  (cd / && "$folder/venv/bin/sharpi" serve --help >/dev/null)
  # Some compilers' libraries do not tell what the processor has; then the slowest kernels would run.
  if grep -qw avx2 /proc/cpuinfo && (cd / && "$folder/venv/bin/sharpi" --version) | grep -q portable; then
    echo "error: the wheel runs the portable kernels on a processor with AVX2; do not publish it" >&2
    exit 1
  fi
  echo "$python: $(head -c 60 "$folder/text")"
  tried=$((tried + 1))
done
[[ $tried != 0 ]] || { echo "error: none of these Pythons is here: ${pythons[*]}" >&2; exit 1; }
