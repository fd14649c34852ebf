"""Writes the kernels beside this file: what Triton makes of the functions below, as sources of our tasks.

    pip install triton==3.5.0; python3 tests/data/sim/triton/make.py      (needs no GPU)

The name of a function is that of the task that it solves. Triton adds two pointers to scratch memory, which these
kernels do not use.
"""

import pathlib
import re

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HERE = pathlib.Path(__file__).resolve().parent


@triton.jit
def silu(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, i < n, 0.0).to(tl.float32)
    tl.store(out + i, value / (1.0 + tl.exp(-value)), i < n)


@triton.jit
def softmax(x, out, cols, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    i = tl.arange(0, B)
    value = tl.load(x + row + i, i < cols, -float("inf")).to(tl.float32)
    e = tl.exp(value - tl.max(value, 0))
    tl.store(out + row + i, e / tl.sum(e, 0), i < cols)


@triton.jit
def transpose(x, out, rows, cols, B: tl.constexpr):
    i = tl.program_id(1) * B + tl.arange(0, B)
    j = tl.program_id(0) * B + tl.arange(0, B)
    here = (i[:, None] < rows) & (j[None, :] < cols)
    there = (j[:, None] < cols) & (i[None, :] < rows)
    value = tl.load(x + i[:, None].to(tl.int64) * cols + j[None, :], here)
    tl.store(out + j[:, None].to(tl.int64) * rows + i[None, :], tl.trans(value), there)


@triton.jit
def gemm_bf16(a, b, c, M, N, K, B: tl.constexpr):
    i = tl.program_id(1) * B + tl.arange(0, B)
    j = tl.program_id(0) * B + tl.arange(0, B)
    k = tl.arange(0, 32)
    sums = tl.zeros((B, B), tl.float32)
    for at in range(0, K, 32):
        left = tl.load(a + i[:, None] * K + at + k[None, :], (i[:, None] < M) & (at + k[None, :] < K), 0.0)
        right = tl.load(b + j[None, :] * K + at + k[:, None], (j[None, :] < N) & (at + k[:, None] < K), 0.0)
        sums = tl.dot(left, right, sums)
    tl.store(c + i[:, None] * N + j[None, :], sums.to(tl.bfloat16), (i[:, None] < M) & (j[None, :] < N))


# Function, pointers, their type, whether they are aligned, block, warps, grid.
KERNELS = [
    (silu, 2, "bf16", 1024, 4, "ceil_div(n, 1024)"),
    (softmax, 2, "bf16", 16384, 16, "rows"),
    (transpose, 2, "fp32", 64, 4, "ceil_div(cols, 64), ceil_div(rows, 64)"),
    (gemm_bf16, 3, "bf16", 64, 4, "ceil_div(N, 64), ceil_div(M, 64)"),
]

for function, pointers, element, block, warps, grid in KERNELS:
    names = function.arg_names
    signature = {name: f"*{element}" for name in names[:pointers]}
    signature |= {name: "i32" for name in names[pointers:-1]} | {"B": "constexpr"}
    aligned = {(at,): [["tt.divisibility", 16]] for at in range(pointers)}
    source = ASTSource(fn=function, signature=signature, constexprs={"B": block}, attrs=aligned)
    built = triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": warps, "num_stages": 3})
    ptx = re.split(r"\n\t\.section|\n\t\.file", built.asm["ptx"])[0]
    ptx = "\n".join(line for line in ptx.splitlines() if not line.lstrip().startswith((".loc", ".file", "//")))
    smem = built.metadata.shared
    header = (
        f"//@ about What Triton {triton.__version__} makes of make.py's {function.__name__}.\n"
        f"//@ launch {built.metadata.name} grid=({grid}) block=({32 * warps}) smem={smem} "
        f"args=({', '.join(names[:-1])}, 0, 0)\n"
    )
    (HERE / f"{function.__name__}.ptx").write_text(header + ptx.strip() + "\n")
