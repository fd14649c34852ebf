#!/usr/bin/env bash
# Captures what compute-sanitizer says of planted kernels, on a machine with a GPU and nvcc:
#   capture.sh FOLDER
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out"
nvcc -arch=native -o "$out/planted" "$here/planted.cu" || exit 1
check() { # name tool case
    compute-sanitizer --tool "$2" --print-limit 20 --show-backtrace no --log-file "$out/$1.log" "$out/planted" "$3"
    echo "$1: exit $?"
}
check memcheck-clean memcheck 0
check memcheck-out-of-bounds memcheck 1
check racecheck-clean racecheck 0
check racecheck-hazard racecheck 2
check synccheck-clean synccheck 0
check synccheck-divergent synccheck 3
compute-sanitizer --version > "$out/version"
rm -f "$out/planted"
