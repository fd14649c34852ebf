#!/usr/bin/env bash
# Makes corpus.gz from cuda/*.cu with nvcc, and with NVRTC where the kernel needs no host headers.
# Usage: CUDA=/usr/local/cuda tests/data/ptx/make_corpus.sh
# Each file begins with a line `//==== NAME`; nothing else is added.
set -euo pipefail
cd "$(dirname "$0")"
cuda=${CUDA:-/usr/local/cuda}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compile() { # NAME FILE FLAGS…
  local name=$1 file=$2
  shift 2
  "$cuda/bin/nvcc" -ptx -std=c++17 -w "$@" "$file" -o "$work/$name.ptx" 2>"$work/log" || { echo "skipped $name: $(head -1 "$work/log")" >&2; rm -f "$work/$name.ptx"; }
}
for file in cuda/*.cu; do
  base=$(basename "$file" .cu)
  compile "$base.sm_90a" "$file" -arch=sm_90a
  compile "$base.sm_80.debug" "$file" -arch=sm_80 -G
  case $base in hopper) continue ;; esac
  compile "$base.sm_80.lineinfo" "$file" -arch=sm_80 -lineinfo -Xcicc -O1
  case $base in mma_ptx|copy|half_types|wmma) ;; *) compile "$base.sm_75.fast" "$file" -arch=sm_75 -use_fast_math -maxrregcount=64 ;; esac
done
LD_LIBRARY_PATH="$cuda/lib64:$cuda/lib:${LD_LIBRARY_PATH:-}" python3 nvrtc.py "$work" "$cuda/include" cuda/*.cu
cd "$work"
for file in *.ptx; do
  printf '//==== %s\n' "$file"
  cat "$file"
done | gzip -9n >"$OLDPWD/corpus.gz"
echo "$(ls ./*.ptx | wc -l) files, $(cat ./*.ptx | wc -c) bytes, $(stat -c %s "$OLDPWD/corpus.gz") packed"
