#!/usr/bin/env python3
"""Instruction cases: from their descriptions to PTX, a cubin, and results taken from a GPU.

    record.py build [--ptxas PATH]   *.cases -> cases.ptx, cases.json, cases.cubin
    record.py run   [--out FILE]     runs cases.cubin (or cases.ptx, if it is not there) on the GPU here
                                     -> h200.json; driver API by ctypes, nothing else needed
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
and everything else is PTX, indented. Values are integers, or for float types decimals, `inf`, `-inf`, `nan`,
`-0.0`, `max`, `min` (least normal), `sub` (a subnormal), or bits as 0x….
"""
import argparse, ctypes, glob, itertools, json, os, re, struct, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
LANES = 32
MEM_WORDS = 64
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
    out = [[0] * LANES for _ in columns]
    for lane in range(LANES):
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
    lines = [f".visible .entry {entry}(.param .u64 p_in, .param .u64 p_out, .param .u64 p_mem)", "{",
             "    .reg .b64 %in, %out, %mem, %at;", "    .reg .b32 %lane;", "    .reg .pred %p, %q, %s;",
             "    ld.param.u64 %in, [p_in];", "    ld.param.u64 %out, [p_out];", "    ld.param.u64 %mem, [p_mem];",
             "    mov.u32 %lane, %tid.x;", "    mul.wide.u32 %at, %lane, 8;",
             "    add.s64 %in, %in, %at;", "    add.s64 %out, %out, %at;"]
    for name, ty, _ in case.inputs:
        lines.append(f"    .reg {register_type(ty)} %{name};")
    for name, ty in case.outputs:
        if name not in [n for n, _, _ in case.inputs]:
            lines.append(f"    .reg {register_type(ty)} %{name};")
    for index, (name, ty, _) in enumerate(case.inputs):
        lines.append(f"    ld.global{memory_type(ty)} %{name}, [%in+{index * 8 * LANES}];")
    lines.append("    {")
    lines += ["    " + line for line in case.body]
    lines.append("    }")
    for index, (name, ty) in enumerate(case.outputs):
        lines.append(f"    st.global{memory_type(ty)} [%out+{index * 8 * LANES}], %{name};")
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
    text = ["// Made by record.py build from the .cases files.", ".version 8.4", ".target sm_90a", ".address_size 64"]
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
        })
    with open(os.path.join(HERE, "cases.ptx"), "w") as out:
        out.write("\n".join(text) + "\n")
    with open(os.path.join(HERE, "cases.json"), "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(row) for row in table) + "\n]\n")
    subprocess.run([ptxas, "-arch=sm_90a", "-O1", os.path.join(HERE, "cases.ptx"), "-o", os.path.join(HERE, "cases.cubin")], check=True)
    print(f"{len(cases)} cases")


def run(out):
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
    size = 8 * LANES * 16

    def allocate():
        pointer = ctypes.c_uint64()
        check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)), "cuMemAlloc")
        return pointer

    d_in, d_out, d_mem = allocate(), allocate(), allocate()
    table = json.load(open(os.path.join(HERE, "cases.json")))
    results = {}
    for case in table:
        host = bytearray(size)
        for index, column in enumerate(case["inputs"]):
            for lane, value in enumerate(column):
                struct.pack_into("<Q", host, (index * LANES + lane) * 8, int(value, 16))
        mem = bytearray(size)
        for index, value in enumerate(case["memory"] or []):
            struct.pack_into("<I", mem, index * 4, int(value, 16))
        for pointer, data in ((d_in, host), (d_out, bytearray(size)), (d_mem, mem)):
            check(cuda.cuMemcpyHtoD_v2(pointer, (ctypes.c_char * size).from_buffer(data), ctypes.c_size_t(size)), "copy")
        function = ctypes.c_void_p()
        check(cuda.cuModuleGetFunction(ctypes.byref(function), module, case["entry"].encode()), case["name"])
        args = [ctypes.c_uint64(p.value) for p in (d_in, d_out, d_mem)]
        array = (ctypes.c_void_p * 3)(*[ctypes.addressof(a) for a in args])
        check(cuda.cuLaunchKernel(function, 1, 1, 1, LANES, 1, 1, 0, None, array, None), case["name"])
        check(cuda.cuCtxSynchronize(), case["name"])
        back = (ctypes.c_char * size)()
        check(cuda.cuMemcpyDtoH_v2(back, d_out, ctypes.c_size_t(size)), "copy back")
        raw = bytes(back)
        columns = []
        for index, ty in enumerate(case["outputs"]):
            mask = (1 << (8 * BYTES[ty])) - 1
            columns.append([f"{struct.unpack_from('<Q', raw, (index * LANES + lane) * 8)[0] & mask:x}" for lane in range(LANES)])
        result = {"outputs": columns}
        if case["memory"] is not None:
            check(cuda.cuMemcpyDtoH_v2(back, d_mem, ctypes.c_size_t(size)), "copy back")
            result["memory"] = [f"{v:x}" for v in struct.unpack_from(f"<{MEM_WORDS}I", bytes(back))]
        results[case["name"]] = result
    with open(out, "w") as file:
        file.write(json.dumps({"gpu": name.value.decode()})[:-1] + ', "results": {\n')
        file.write(",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in results.items()))
        file.write("\n}}\n")
    print(f"{len(results)} cases on {name.value.decode()} -> {out}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["build", "run", "list"])
    parser.add_argument("--ptxas", default="ptxas")
    parser.add_argument("--out", default=os.path.join(HERE, "h200.json"))
    options = parser.parse_args()
    if options.command == "build":
        build(options.ptxas)
    elif options.command == "run":
        run(options.out)
    else:
        print("\n".join(case.name for case in load()))
