#!/usr/bin/env bash
# Makes or mends the environment of the Makefile, and installs sharpi into it, in place.
#
#   packaging/set_up.sh VENV [PYTHON]
#   packaging/set_up.sh --packages VENV TITLE PACKAGE...    # installs further packages into it
#
# Without PYTHON the newest suitable one is taken. Whatever is missing is named before anything is
# made; an environment that was left half-made, or has an unsuitable Python, is made anew.
set -euo pipefail
# The kernels take about this many times the processor time of a header of C++'s library.
readonly OLDEST=3.11 BUILD_TIME_OF_HEADER=280
readonly SECONDS_A_LINE=${SHARPI_SETUP_SECONDS_A_LINE:-15}  # where there is no terminal

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

# Sets compile_ms, the processor time that the compiler takes for a header.
check_compiler() {
  local each TIMEFORMAT=%U seconds
  for each in ${CXX:-c++ g++ clang++}; do
    command -v "$each" >/dev/null || continue
    if seconds=$({ time "$each" -std=c++20 -x c++ -fsyntax-only - <<<'#include <regex>' 2>/dev/null; } 2>&1); then
      compile_ms=$((10#${seconds/[.,]/}))
      return
    fi
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

minutes_to_build() { echo $((compile_ms * BUILD_TIME_OF_HEADER / 60000 / $(nproc) + 1)); }

# Runs pip with its output in the log, and says what it does meanwhile. It has a process group of its
# own, which Ctrl-C ends with all compilers.
pip_install() {
  set -m
  "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$@" >>"$log" 2>&1 &
  local pip=$! start=$SECONDS next=$SECONDS_A_LINE nap=0.1
  set +m
  trap 'kill -TERM -- -'$pip' 2>/dev/null; exit 130' INT TERM
  while kill -0 "$pip" 2>/dev/null; do
    if [[ -t 2 ]]; then
      printf '\r\033[K      %s, %s s' "$(progress)" $((SECONDS - start)) >&2
    elif ((SECONDS - start >= next)); then
      say "      $(progress), $((SECONDS - start)) s"
      next=$((next + SECONDS_A_LINE))
    fi
    sleep $nap
    nap=1
  done
  trap - INT TERM
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
  wait "$pip"
}

# What the log's last line of interest says.
progress() {
  local last
  last=$(grep -oE '^ *(Downloading [^ ]+ \([^)]*\)|\[[0-9]+/[0-9]+\]|Installing collected)|Retrying ' "$log" | tail -n 1) || true
  case $last in
    *Downloading*)
      last=${last##*Downloading }
      last=${last##*/}
      echo "fetches ${last%%-*} (${last##*\(}" ;;
    *\[*)
      last=${last//[^0-9\/]/}
      echo "compiled ${last%/*} of ${last#*/} files, of which five take most of the time" ;;
    Retrying*) echo "no answer from the package index, tries again" ;;
    *Installing*) echo "unpacks packages" ;;
    *) echo "looks for packages" ;;
  esac
}

# The compiler's own place is kept in the environment, so that a later build compiles only what changed.
install_tools() {
  local tools=("scikit-build-core>=0.10" ninja)
  command -v cmake >/dev/null || tools+=(cmake)
  pip_install "${tools[@]}" || fail_with_log "the tools that build sharpi could not be installed"
}

install_sharpi() {
  pip_install --verbose --no-build-isolation -e . || fail_with_log "sharpi could not be installed"
}

install_packages() {
  local title=$1
  shift
  say "installs $title"
  pip_install "$@" || fail_with_log "$title could not be installed"
}

fail_with_log() {
  tail -n 30 "$log" >&2
  if grep -qE 'Retrying .*connection|NameResolutionError|ConnectTimeout' "$log"; then
    fail "$1: the package index cannot be reached over the network (a proxy is named by https_proxy); $log has the whole output"
  fi
  fail "$1; the whole output is in $log"
}

main() {
  venv=$1 asked=${2-}
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
  begin_log
  say "[2/3] installs the tools that build sharpi"
  install_tools
  say "[3/3] installs sharpi and compiles its kernels: about $(minutes_to_build) min the first time, if nothing else runs"
  install_sharpi
  touch "$venv/.installed"
  say "done after $(((SECONDS - start) / 60)) min $(((SECONDS - start) % 60)) s"
}

begin_log() {
  log=$venv/install.log
  : >"$log"
}

cd "$(dirname "$0")/.."
if [[ $1 == --packages ]]; then
  venv=$2
  begin_log
  install_packages "${@:3}"
else
  main "$@"
fi
