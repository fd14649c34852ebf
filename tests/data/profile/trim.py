"""Cuts what capture.sh wrote down to what tests read.

    trim.py log < LOG             drops columns that nothing asks for, and where the program lay
    trim.py names FOLDER          a line for each metric of the families below: its name and the chips that have it
"""

import csv
import re
import sys
from pathlib import Path

UNUSED = re.compile(
    r"^(device__attribute_(?!display_name)|nvlink__|c2clink__|profiler__|numa__(?!dev)|launch__occupancy_per_)"
    r"|^sass__\w+(_category|_with_modifier_\w+|_register_spilling\w*|_executed_true_per_opcode)$"
    r"|^(?!sm__cycles_)\w+\.(avg|max|min)$|\.(max|min|sum)\.pct_of"
)
FAMILIES = re.compile(
    r"^(gpu__time_duration|sm__cycles_(active|elapsed)|smsp__issue_active|sm__warps_active"
    r"|(dram|lts|l1tex)__throughput|lts__t_sectors_lookup_(hit|miss)|dram__bytes(_op)?_(read|write)"
    r"|l1tex__t_(requests|sectors)_pipe_lsu_mem_(global|local)_op_(ld|st|atom|red)(_lookup_hit)?"
    r"|l1tex__data_(pipe_lsu_wavefronts|bank_conflicts_pipe_lsu)_mem_shared(_op_(ld|st))?"
    r"|smsp__sass_thread_inst_executed_op_[dfh](add|mul|fma)2?_pred_on"
    r"|sm__inst_executed_pipe_[a-z0-9]+|sm__pipe_(tensor|tc)_cycles_active|smsp__warps_issue_stalled_\w+"
    r"|sm__ops_path_tensor_src_(?!\w*(sparsity|realtime))\w+"
    r"|launch__(waves_per_multiprocessor|occupancy_limit_\w+)"
    r"|sass__inst_executed_per_opcode|inst_executed|memory_\w+|smsp__pcsamp_\w+)$"
)


def trimmed(lines):
    kept = None
    for line in lines:
        line = line.rstrip("\n")
        if line.startswith('"'):
            row = next(csv.reader([line]))
            if kept is None:
                kept = [column for column, name in enumerate(row) if not UNUSED.search(name)]
            line = ",".join('"' + row[column].replace('"', '""') + '"' for column in kept)
        if line:
            yield re.sub(r"\(/\S+/", "(/usr/bin/", line)


def names(folder):
    chips = {}
    for path in sorted(Path(folder).glob("names-*-*.txt")):
        chip = path.name.split("-")[1]
        for line in path.read_text().splitlines():
            name = line.split(" ")[0]
            if FAMILIES.match(name):
                chips.setdefault(name, []).append(chip)
    for name in sorted(chips):
        yield " ".join([name, *sorted(set(chips[name]))])


for text in trimmed(sys.stdin) if sys.argv[1] == "log" else names(sys.argv[2]):
    print(text)
