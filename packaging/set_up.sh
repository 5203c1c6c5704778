#!/usr/bin/env bash
# Makes or mends the environment of the Makefile, and installs sharpi into it, in place.
#
#   packaging/set_up.sh VENV [PYTHON]
#
# Without PYTHON the newest suitable one is taken. Whatever is missing is named before anything is
# made; an environment that was left half-made, or has an unsuitable Python, is made anew.
set -euo pipefail
venv=$1 asked=${2-}
readonly OLDEST=3.11 BUILD_CPU_SECONDS=170

fail() {
  printf 'error: %s\n' "$@" >&2
  exit 1
}

say() { printf '%s\n' "$*" >&2; }

is_new_enough() {
  "$1" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null
}

version_of() { "$1" -c 'import platform; print(platform.python_version())' 2>/dev/null; }

find_python() {
  local each
  for each in ${asked:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if is_new_enough "$each"; then
      command -v "$each"
      return
    fi
  done
  if [[ -n $asked ]] && command -v "$asked" >/dev/null; then
    fail "$asked is Python $(version_of "$asked"), and sharpi needs $OLDEST or newer; name another: make PYTHON=python3.12"
  fi
  fail "${asked:-Python $OLDEST or newer} is missing; on Debian or Ubuntu: apt-get install python3 python3-venv"
}

check_system() {
  [[ $(uname -s) == Linux ]] ||
    fail "sharpi runs on Linux, on x86-64 or ARM64; on Windows use WSL2. This is $(uname -s)."
}

check_venv_module() {
  "$1" -c 'import ensurepip, venv' 2>/dev/null && return
  fail "this Python cannot make environments: its module venv or ensurepip is missing; on Debian or Ubuntu: apt-get install $(basename "$1")-venv"
}

check_compiler() {
  local each
  for each in ${CXX:-c++ g++ clang++}; do
    command -v "$each" >/dev/null || continue
    "$each" -std=c++20 -x c++ -fsyntax-only - <<<'int main() {}' 2>/dev/null && return
    fail "$each does not compile C++20; g++ 11 or clang++ 14 and newer do"
  done
  fail "the C++ compiler${CXX:+ $CXX} is missing; on Debian or Ubuntu: apt-get install g++ make"
}

# An environment is taken as it is if its Python runs, is new enough, has pip, and is the one asked for.
is_sound() {
  local python=$venv/bin/python
  [[ -x $python ]] && is_new_enough "$python" && "$python" -m pip --version >/dev/null 2>&1 || return
  [[ -z $asked ]] || [[ $(version_of "$python") == "$(version_of "$asked")" ]]
}

make_environment() {
  local python=$1
  if [[ -e $venv ]]; then
    [[ -e $venv/pyvenv.cfg || -x $venv/bin/python || -z $(ls -A "$venv") ]] ||
      fail "$venv is there and is no environment of Python; move it away"
    say "$venv is incomplete or has another Python: it is made anew"
  fi
  rm -rf "$venv"
  trap 'rm -rf "$venv"' EXIT
  "$python" -m venv "$venv" >/dev/null || fail "the environment $venv could not be made with $python"
  trap - EXIT
}

# Nothing is known of the machine's speed, so the estimate is rough, and said once.
minutes_to_build() { echo $(((BUILD_CPU_SECONDS / $(nproc) + 59) / 60)); }

pip_install() {
  "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$@" >>"$log" 2>&1
}

# The compiler's own place is kept in the environment, so that a later build compiles only what changed.
install_tools() {
  local tools=("scikit-build-core>=0.10" ninja)
  command -v cmake >/dev/null || tools+=(cmake)
  pip_install "${tools[@]}" || fail_with_log "the tools that build sharpi could not be installed"
}

# While pip works, shows on a terminal how many of the files are compiled.
install_sharpi() {
  pip_install --verbose --no-build-isolation -e . &
  local pip=$! done
  while [[ -t 2 ]] && kill -0 "$pip" 2>/dev/null; do
    done=$(grep -oE '^ *\[[0-9]+/[0-9]+\]' "$log" | tail -n 1) || true
    printf '\r      %s ' "${done// /}" >&2
    sleep 1
  done
  [[ ! -t 2 ]] || printf '\r%20s\r' '' >&2
  wait "$pip" || fail_with_log "sharpi could not be installed"
}

fail_with_log() {
  tail -n 30 "$log" >&2
  fail "$1; the whole output is in $log"
}

main() {
  cd "$(dirname "$0")/.."
  check_system
  local python start=$SECONDS
  if ! is_sound; then
    python=$(find_python)
    check_venv_module "$python"
  fi
  check_compiler
  if [[ -n ${python-} ]]; then
    say "[1/3] makes the environment $venv with Python $(version_of "$python")"
    make_environment "$python"
  fi
  log=$venv/install.log
  : >"$log"
  say "[2/3] installs the tools that build sharpi"
  install_tools
  say "[3/3] installs sharpi and compiles its kernels: about $(minutes_to_build) minutes the first time"
  install_sharpi
  touch "$venv/.installed"
  say "done after $(((SECONDS - start) / 60)) min $(((SECONDS - start) % 60)) s"
}

main
