#!/usr/bin/env bash
# Captures what ncu says, on a machine with a GPU and nvcc:
#   capture.sh FOLDER
# trim.py cuts it to what tests read. Logs of real kernels: warptree eval … --tool-logs FOLDER.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out"
ncu --version > "$out/version"
# which names this ncu has, for every chip of metrics.toml; needs no GPU
for chip in ga100 ga102 ad102 gh100 gb100 gb202; do
    for collection in profiling launch source; do
        ncu --query-metrics --query-metrics-collection "$collection" --chips "$chip" > "$out/names-$chip-$collection.txt" 2>&1
    done
done
nvcc -arch=native -o "$out/planted" "$here/../sanitizer/planted.cu" || exit 1
common=(--csv --page raw --print-units base --print-fp --print-kernel-base mangled --print-metric-instances details
        --clock-control none --cache-control all)
ncu "${common[@]}" --metrics gpu__time_duration.sum,inst_executed,memory_l1_wavefronts_shared,memory_l1_wavefronts_shared_ideal,smsp__pcsamp_warps_issue_stalled_long_scoreboard,sass__inst_executed_per_opcode,launch__waves_per_multiprocessor,launch__occupancy_limit_registers \
    --log-file "$out/instances.log" "$out/planted" 2
ncu "${common[@]}" --metrics no__such_metric.sum --log-file "$out/unknown-metric.log" "$out/planted" 0
# an access that is out of bounds but mapped breaks nothing; case 4 faults
ncu "${common[@]}" --metrics gpu__time_duration.sum,dram__bytes_read.sum --log-file "$out/replay-fault.log" "$out/planted" 4
# counters that are kept for administrators; nobody has no PATH to ncu
grep RmProfilingAdminOnly /proc/driver/nvidia/params > "$out/params"
ncu=$(readlink -f "$(command -v ncu)")
chmod -R a+rwx "$out"
su -s /bin/sh nobody -c "HOME=$out TMPDIR=$out '$ncu' --csv --page raw --metrics dram__bytes_read.sum --log-file $out/not-permitted.log $out/planted 0"
rm -f "$out/planted"
