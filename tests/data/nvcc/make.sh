#!/usr/bin/env bash
# Makes each task's seed.ptx (and reference.ptx, where it has one) anew from its CUDA C, the header kept.
# Usage: CUDA=/usr/local/cuda tests/data/nvcc/make.sh
set -euo pipefail
cd "$(dirname "$0")"
cuda=${CUDA:-/usr/local/cuda}
for source in */*.cu; do
  folder=$(dirname "$source")
  ptx=$("$cuda/bin/nvcc" -ptx -arch=sm_90a -O3 "$source" -o -)
  header=$(grep '^//@' "$folder/seed.ptx")
  printf '%s\n%s\n' "$header" "$ptx" >"$folder/seed.ptx"
  if [ -e "$folder/reference.ptx" ]; then cp "$folder/seed.ptx" "$folder/reference.ptx"; fi
done
