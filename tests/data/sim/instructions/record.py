#!/usr/bin/env python3
"""Instruction cases: from their descriptions to PTX, a cubin, and results taken from a GPU.

    record.py build [--ptxas PATH]   *.cases -> cases.ptx, cases.json, cases.cubin
    record.py run   [--out FILE]     runs cases.cubin (or cases.ptx, if it is not there) on the GPU here
                                     -> h200.json; driver API by ctypes, nothing else needed. A case that faults
                                     or hangs is named, and the rest goes on in a new process
    record.py list                   names of all cases

`cargo test --test sim` runs cases.ptx on the simulator with the inputs of cases.json and demands h200.json's
bits, or a stated number of ULPs for approximate operations. Expected values come from the GPU only.

A .cases file holds lines:
    set NAME v v v            a named list of values
    each X v v v              repeats the next case for each value, `{X}` replaced; several multiply
    case NAME                 begins a case
    in R .b32 v v @NAME       an input register; lanes run through all combinations of the inputs
    out R .b32                an output register
    ulps N [.f32|.f64|.f16]   approximate: outputs of that type may differ by N units in the last place
    abs X                     approximate: or by this much
    mem v v v                 32-bit words that %mem points to, zero beyond; 64 words are compared afterwards
    lanes                     lanes get their inputs by lane number, not by combination
    threads N                 that many threads (lanes) instead of a warp's 32
    cluster N                 N blocks, one cluster; the first one's outputs are looked at
    fill N                    %mem points to N words of a fixed pattern
    compare N                 that many words of %mem are compared afterwards, instead of 64
    tensor NAME TYPE DIMS STRIDES BOX SWIZZLE [nan]
                              %NAME is the address of a tensor map over %mem: dims and box in elements, strides
                              in bytes, comma-separated, innermost first; swizzle 0, 32, 64 or 128
and everything else is PTX, indented. Values are integers, or for float types decimals, `inf`, `-inf`, `nan`,
`-0.0`, `max`, `min` (least normal), `sub` (a subnormal), or bits as 0x….
"""
import argparse, ctypes, glob, itertools, json, os, struct, subprocess, sys, threading

HERE = os.path.dirname(os.path.abspath(__file__))
LANES = 32
MEM_WORDS = 64
# Type: what the driver calls it.
TENSOR_TYPES = {"u8": 0, "u32": 2, "s32": 3, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
SWIZZLES = {"0": 0, "32": 1, "64": 2, "128": 3}
STALL_SECONDS = 20
FLOATS = {".f16": (5, 10), ".bf16": (8, 7), ".f32": (8, 23), ".f64": (11, 52)}
BYTES = {".b8": 1, ".u8": 1, ".s8": 1, ".b16": 2, ".u16": 2, ".s16": 2, ".f16": 2, ".bf16": 2, ".b32": 4, ".u32": 4,
         ".s32": 4, ".f32": 4, ".f16x2": 4, ".bf16x2": 4, ".b64": 8, ".u64": 8, ".s64": 8, ".f64": 8}


def float_bits(text, ty):
    exponent, mantissa = FLOATS[ty]
    width = 1 + exponent + mantissa
    sign, text = (1, text[1:]) if text.startswith("-") else (0, text)
    ones = (1 << exponent) - 1
    named = {
        "inf": ones << mantissa,
        "nan": (ones << mantissa) | (1 << (mantissa - 1)),
        "max": ((ones - 1) << mantissa) | ((1 << mantissa) - 1),
        "min": 1 << mantissa,
        "sub": (1 << (mantissa - 1)) + 1,
        "tiny": 1,
    }
    if text in named:
        bits = named[text]
    elif ty == ".f64":
        bits = struct.unpack("<Q", struct.pack("<d", float(text)))[0]
    elif ty == ".f32":
        bits = struct.unpack("<I", struct.pack("<f", float(text)))[0]
    elif ty == ".f16":
        bits = struct.unpack("<H", struct.pack("<e", float(text)))[0]
    else:
        single = struct.unpack("<I", struct.pack("<f", float(text)))[0]
        bits = (single + 0x7FFF + ((single >> 16) & 1)) >> 16
    return bits | sign << (width - 1)


def value_bits(text, ty):
    mask = (1 << (8 * BYTES[ty])) - 1
    if ty in FLOATS and not text.lower().startswith("0x"):
        return float_bits(text, ty)
    return int(text, 0) & mask


class Case:
    def __init__(self, name):
        self.name, self.inputs, self.outputs, self.body = name, [], [], []
        self.tolerance, self.mem, self.lanes = {}, None, False
        self.threads, self.cluster, self.fill, self.compare, self.tensors = LANES, 1, None, None, []


def parse(path):
    sets, pending, cases, block = {}, [], [], None
    blocks = []
    for raw in open(path):
        line = raw.split("//")[0].rstrip() if not raw.startswith(" ") else raw.rstrip()
        if not line.strip():
            continue
        word = line.split()[0]
        if raw.startswith(" ") or line.endswith(":"):
            block["lines"].append(line if raw.startswith(" ") else " " + line)
        elif word == "set":
            parts = line.split()
            sets[parts[1]] = expand(parts[2:], sets)
        elif word == "each":
            parts = line.split()
            pending.append((parts[1], parts[2:]))
        elif word == "case":
            block = {"each": pending, "lines": [line]}
            pending = []
            blocks.append(block)
        else:
            block["lines"].append(line)
    for block in blocks:
        names = [name for name, _ in block["each"]]
        for values in itertools.product(*[values for _, values in block["each"]]):
            case = None
            for line in block["lines"]:
                for name, value in zip(names, values):
                    line = line.replace("{" + name + "}", value)
                parts = line.split()
                if line.startswith(" "):
                    case.body.append(line)
                elif parts[0] == "case":
                    case = Case(parts[1])
                    cases.append(case)
                elif parts[0] == "in":
                    case.inputs.append((parts[1], parts[2], expand(parts[3:], sets)))
                elif parts[0] == "out":
                    case.outputs.append((parts[1], parts[2]))
                elif parts[0] == "ulps":
                    case.tolerance["ulps"] = int(parts[1])
                elif parts[0] == "abs":
                    case.tolerance["abs"] = float(parts[1])
                elif parts[0] == "mem":
                    case.mem = [value_bits(v, ".b32") for v in expand(parts[1:], sets)]
                elif parts[0] == "lanes":
                    case.lanes = True
                elif parts[0] in ("threads", "cluster", "fill", "compare"):
                    setattr(case, parts[0], int(parts[1]))
                elif parts[0] == "tensor":
                    numbers = [[int(n) for n in part.split(",")] if part != "-" else [] for part in parts[3:6]]
                    case.tensors.append(dict(zip(("name", "type", "dims", "strides", "box", "swizzle", "nan"),
                                                 (*parts[1:3], *numbers, int(parts[6]), parts[7:] == ["nan"]))))
                else:
                    sys.exit(f"{path}: unknown line: {line}")
    return cases


def expand(words, sets):
    out = []
    for word in words:
        out += sets[word[1:]] if word.startswith("@") else [word]
    return out


def lanes_of(case):
    """Input bits by register, one value a lane."""
    columns = [[value_bits(v, ty) for v in values] for _, ty, values in case.inputs]
    out = [[0] * case.threads for _ in columns]
    for lane in range(case.threads):
        rest = lane
        for index, column in enumerate(columns):
            out[index][lane] = column[(lane if case.lanes else rest) % len(column)]
            rest //= len(column)
    return out


def memory_type(ty):
    return {".f16": ".b16", ".bf16": ".b16", ".f16x2": ".b32", ".bf16x2": ".b32", ".f32": ".f32", ".f64": ".f64"}.get(ty, ty.replace("s", "b").replace("u", "b"))


def register_type(ty):
    return {".b8": ".b16", ".u8": ".u16", ".s8": ".s16", ".bf16": ".b16", ".f16": ".b16", ".bf16x2": ".b32", ".f16x2": ".b32"}.get(ty, ty)


def kernel(case, entry):
    maps = "".join(f", .param .align 64 .b8 p_{tensor['name']}[128]" for tensor in case.tensors)
    shape = ""
    if case.threads != LANES:
        shape += f" .maxntid {case.threads}, 1, 1 .minnctapersm 1"
    if case.cluster > 1:
        shape += f" .reqnctapercluster {case.cluster}, 1, 1"
    lines = [f".visible .entry {entry}(.param .u64 p_in, .param .u64 p_out, .param .u64 p_mem{maps}){shape}", "{",
             "    .reg .b64 %in, %out, %mem, %at;", "    .reg .b32 %lane;", "    .reg .pred %p, %q, %s;",
             "    ld.param.u64 %in, [p_in];", "    ld.param.u64 %out, [p_out];", "    ld.param.u64 %mem, [p_mem];",
             "    mov.u32 %lane, %tid.x;", "    mul.wide.u32 %at, %lane, 8;",
             "    add.s64 %in, %in, %at;", "    add.s64 %out, %out, %at;"]
    for name, ty, _ in case.inputs:
        lines.append(f"    .reg {register_type(ty)} %{name};")
    for name, ty in case.outputs:
        if name not in [n for n, _, _ in case.inputs]:
            lines.append(f"    .reg {register_type(ty)} %{name};")
    for tensor in case.tensors:
        name = tensor["name"]
        lines += [f"    .reg .b64 %{name};", f"    mov.b64 %{name}, p_{name};", f"    cvta.param.u64 %{name}, %{name};"]
    for index, (name, ty, _) in enumerate(case.inputs):
        lines.append(f"    ld.global{memory_type(ty)} %{name}, [%in+{index * 8 * case.threads}];")
    lines.append("    {")
    lines += ["    " + line for line in case.body]
    lines.append("    }")
    first = ""
    if case.cluster > 1:
        lines += ["    .reg .b32 %rank;", "    mov.u32 %rank, %cluster_ctarank;", "    setp.eq.u32 %p, %rank, 0;"]
        first = "@%p "
    for index, (name, ty) in enumerate(case.outputs):
        lines.append(f"    {first}st.global{memory_type(ty)} [%out+{index * 8 * case.threads}], %{name};")
    lines += ["    ret;", "}"]
    return "\n".join(lines)


def load():
    cases = []
    for path in sorted(glob.glob(os.path.join(HERE, "*.cases"))):
        cases += parse(path)
    names = [case.name for case in cases]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        sys.exit(f"case names that appear twice: {sorted(twice)}")
    return cases


def entry_of(index):
    return f"c{index:04}"


def build(ptxas):
    cases = load()
    text = ["// Made by record.py build from the .cases files.", ".version 8.7", ".target sm_90a", ".address_size 64"]
    table = []
    for index, case in enumerate(cases):
        text.append(f"\n// {case.name}")
        text.append(kernel(case, entry_of(index)))
        table.append({
            "name": case.name, "entry": entry_of(index),
            "inputs": [[f"{v:x}" for v in column] for column in lanes_of(case)],
            "outputs": [ty for _, ty in case.outputs],
            "memory": [f"{v:x}" for v in case.mem] if case.mem is not None else None,
            **({"tolerance": case.tolerance} if case.tolerance else {}),
            **({"threads": case.threads} if case.threads != LANES else {}),
            **({"cluster": case.cluster} if case.cluster > 1 else {}),
            **({"fill": case.fill} if case.fill else {}),
            **({"compare": case.compare} if case.compare else {}),
            **({"tensors": case.tensors} if case.tensors else {}),
        })
    with open(os.path.join(HERE, "cases.ptx"), "w") as out:
        out.write("\n".join(text) + "\n")
    with open(os.path.join(HERE, "cases.json"), "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(row) for row in table) + "\n]\n")
    subprocess.run([ptxas, "-arch=sm_90a", "-O1", os.path.join(HERE, "cases.ptx"), "-o", os.path.join(HERE, "cases.cubin")], check=True)
    print(f"{len(cases)} cases")


def pattern(word):
    """What `fill` puts into a word."""
    return (word + 1) * 0x9E3779B1 % 2**32


def run_from(start):
    """Runs the cases from that one on; a line of JSON each."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def check(code, what):
        if code:
            name = ctypes.c_char_p()
            cuda.cuGetErrorString(code, ctypes.byref(name))
            sys.exit(f"{what}: error {code}: {name.value.decode() if name.value else '?'}")

    check(cuda.cuInit(0), "cuInit")
    device = ctypes.c_int()
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    name = ctypes.create_string_buffer(100)
    cuda.cuDeviceGetName(name, 100, device)
    context = ctypes.c_void_p()
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    module = ctypes.c_void_p()
    cubin = os.path.join(HERE, "cases.cubin")
    # Without a cubin the driver assembles the text; it wants a terminating zero.
    image = open(cubin if os.path.exists(cubin) else os.path.join(HERE, "cases.ptx"), "rb").read() + b"\0"
    check(cuda.cuModuleLoadData(ctypes.byref(module), image), "cuModuleLoadData")
    print(json.dumps(name.value.decode()), flush=True)
    room = 64 * 1024

    def allocate():
        pointer = ctypes.c_uint64()
        check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(room)), "cuMemAlloc")
        return pointer

    def tensor_map(tensor, base):
        # The encoding call wants 64-byte alignment.
        raw = ctypes.create_string_buffer(128 + 64)
        at = (ctypes.addressof(raw) + 63) // 64 * 64
        rank = len(tensor["dims"])
        numbers = lambda ty, values: (ty * max(1, len(values)))(*values)
        check(cuda.cuTensorMapEncodeTiled(
            ctypes.c_void_p(at), ctypes.c_int(TENSOR_TYPES[tensor["type"]]), ctypes.c_uint32(rank), base,
            numbers(ctypes.c_uint64, tensor["dims"]), numbers(ctypes.c_uint64, tensor["strides"]),
            numbers(ctypes.c_uint32, tensor["box"]), numbers(ctypes.c_uint32, [1] * rank), ctypes.c_int(0),
            ctypes.c_int(SWIZZLES[str(tensor["swizzle"])]), ctypes.c_int(0), ctypes.c_int(int(tensor["nan"]))),
            "cuTensorMapEncodeTiled")
        return raw, at

    d_in, d_out, d_mem = allocate(), allocate(), allocate()
    for case in json.load(open(os.path.join(HERE, "cases.json")))[start:]:
        lanes = case.get("threads", LANES)
        host = bytearray(room)
        for index, column in enumerate(case["inputs"]):
            for lane, value in enumerate(column):
                struct.pack_into("<Q", host, (index * lanes + lane) * 8, int(value, 16))
        mem = bytearray(room)
        words = [int(value, 16) for value in case["memory"] or []] + [pattern(n) for n in range(case.get("fill", 0))]
        for index, value in enumerate(words):
            struct.pack_into("<I", mem, index * 4, value)
        for pointer, data in ((d_in, host), (d_out, bytearray(room)), (d_mem, mem)):
            check(cuda.cuMemcpyHtoD_v2(pointer, (ctypes.c_char * room).from_buffer(data), ctypes.c_size_t(room)), "copy")
        function = ctypes.c_void_p()
        check(cuda.cuModuleGetFunction(ctypes.byref(function), module, case["entry"].encode()), case["name"])
        args = [ctypes.c_uint64(p.value) for p in (d_in, d_out, d_mem)]
        maps = [tensor_map(tensor, d_mem) for tensor in case.get("tensors", [])]
        places = [ctypes.addressof(a) for a in args] + [at for _, at in maps]
        array = (ctypes.c_void_p * len(places))(*places)
        blocks = case.get("cluster", 1)
        check(cuda.cuLaunchKernel(function, blocks, 1, 1, lanes, 1, 1, 0, None, array, None), case["name"])
        check(cuda.cuCtxSynchronize(), case["name"])
        back = (ctypes.c_char * room)()
        check(cuda.cuMemcpyDtoH_v2(back, d_out, ctypes.c_size_t(room)), "copy back")
        raw = bytes(back)
        columns = []
        for index, ty in enumerate(case["outputs"]):
            mask = (1 << (8 * BYTES[ty])) - 1
            columns.append([f"{struct.unpack_from('<Q', raw, (index * lanes + lane) * 8)[0] & mask:x}" for lane in range(lanes)])
        result = {"outputs": columns}
        if words:
            count = case.get("compare", MEM_WORDS)
            check(cuda.cuMemcpyDtoH_v2(back, d_mem, ctypes.c_size_t(room)), "copy back")
            result["memory"] = [f"{v:x}" for v in struct.unpack_from(f"<{count}I", bytes(back))]
        print(json.dumps(result), flush=True)


def run(out):
    names = [case["name"] for case in json.load(open(os.path.join(HERE, "cases.json")))]
    gpu, results, failed, start = None, {}, {}, 0
    while start < len(names):
        child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "run-from", str(start)],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        gone_on = [threading.Timer(60, child.kill)]
        gone_on[0].start()
        lines = 0
        for line in child.stdout:
            gone_on[0].cancel()
            gone_on[0] = threading.Timer(STALL_SECONDS, child.kill)
            gone_on[0].start()
            if lines == 0:
                gpu = json.loads(line)
            else:
                results[names[start]] = json.loads(line)
                start += 1
            lines += 1
        gone_on[0].cancel()
        said = child.stderr.read().strip()
        child.wait()
        if lines == 0:
            sys.exit(said or "no GPU answered")
        if start < len(names):
            failed[names[start]] = said or f"no answer within {STALL_SECONDS} s"
            print(f"FAILED {names[start]}: {failed[names[start]]}", flush=True)
            start += 1
    with open(out, "w") as file:
        file.write(json.dumps({"gpu": gpu, "failed": failed})[:-1] + ', "results": {\n')
        file.write(",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in results.items()))
        file.write("\n}}\n")
    print(f"{len(results)} cases on {gpu}, {len(failed)} failed -> {out}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["build", "run", "run-from", "list"])
    parser.add_argument("start", nargs="?", type=int, default=0, help="of run-from, which run uses: the first case")
    parser.add_argument("--ptxas", default="ptxas")
    parser.add_argument("--out", default=os.path.join(HERE, "h200.json"))
    options = parser.parse_args()
    if options.command == "build":
        build(options.ptxas)
    elif options.command == "run":
        run(options.out)
    elif options.command == "run-from":
        run_from(options.start)
    else:
        print("\n".join(case.name for case in load()))
