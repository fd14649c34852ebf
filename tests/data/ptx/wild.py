"""Makes many real PTX files: wild.py OUT. Uses what is there, and says how much each gave:

  nvcc and NVRTC  cuda/*.cu beside this file, for several architectures and options; CUDA=/usr/local/cuda
  CUTLASS         GEMMs from its headers (pip install nvidia-cutlass), by nvcc
  Triton          kernels below, several tile sizes and targets (pip install triton==3.5.0); needs no GPU
  tinygrad        expressions below, by its PTX renderer (pip install tinygrad==0.10.3); needs no GPU

Then: WARPTREE_CORPUS=OUT cargo test --test ptx wild -- --ignored
"""
import concurrent.futures
import importlib.util
import itertools
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CUDA = pathlib.Path(os.environ.get("CUDA", "/usr/local/cuda"))


def by_nvcc(out):
    variants = {
        "sm_75": ["-arch=sm_75"],
        "sm_80": ["-arch=sm_80"],
        "sm_86.fast": ["-arch=sm_86", "-use_fast_math"],
        "sm_89.o1": ["-arch=sm_89", "-Xcicc", "-O1"],
        "sm_90a.lineinfo": ["-arch=sm_90a", "-lineinfo"],
        "sm_90a.debug": ["-arch=sm_90a", "-G"],
        "sm_100a": ["-arch=sm_100a"],
        "sm_120a": ["-arch=sm_120a"],
    }
    jobs = [
        (out / f"nvcc.{file.stem}.{name}.ptx", file, flags)
        for file in sorted((HERE / "cuda").glob("*.cu"))
        for name, flags in variants.items()
        # Without optimisation nvcc stores wgmma's sums before they are waited for, and the lints say so.
        if (file.stem, name) != ("hopper", "sm_90a.debug")
    ]
    return compiled(jobs)


def by_cutlass(out):
    spec = importlib.util.find_spec("cutlass_library")
    if spec is None:
        return 0
    include = next(pathlib.Path(spec.origin).parent.rglob("cutlass/cutlass.h")).parent.parent
    template = """#include <cutlass/gemm/device/gemm.h>
using Gemm = cutlass::gemm::device::Gemm<{a}, cutlass::layout::{la}, {a}, cutlass::layout::{lb}, {c},
    cutlass::layout::RowMajor, {acc}, {op}, cutlass::arch::{arch}>;
template __global__ void cutlass::Kernel<Gemm::GemmKernel>(Gemm::GemmKernel::Params);
"""
    kinds = [
        ("float", "float", "float", "cutlass::arch::OpClassSimt", "Sm80"),
        ("double", "double", "double", "cutlass::arch::OpClassSimt", "Sm80"),
        ("cutlass::half_t", "float", "float", "cutlass::arch::OpClassTensorOp", "Sm80"),
        ("cutlass::bfloat16_t", "float", "float", "cutlass::arch::OpClassTensorOp", "Sm80"),
        ("float", "float", "float", "cutlass::arch::OpClassTensorOp", "Sm80"),
        ("cutlass::half_t", "float", "float", "cutlass::arch::OpClassTensorOp", "Sm75"),
    ]
    jobs = []
    layouts = itertools.product(["RowMajor", "ColumnMajor"], repeat=2)
    for (number, (a, c, acc, op, arch)), (la, lb) in itertools.product(enumerate(kinds), list(layouts)):
        file = out / f"cutlass.{number}.{la}.{lb}.cu"
        file.write_text(template.format(a=a, c=c, acc=acc, op=op, arch=arch, la=la, lb=lb))
        jobs.append((file.with_suffix(".ptx"), file, [f"-I{include}", "-arch=sm_80"]))
    made = compiled(jobs)
    for _, file, _ in jobs:
        file.unlink()
    return made


def compiled(jobs):
    def one(job):
        target, file, flags = job
        command = [CUDA / "bin/nvcc", "-ptx", "-std=c++17", "-w", *flags, file, "-o", target]
        return subprocess.run(command, capture_output=True).returncode == 0

    with concurrent.futures.ThreadPoolExecutor() as pool:
        return sum(pool.map(one, jobs))


def by_nvrtc(out):
    files = sorted((HERE / "cuda").glob("*.cu"))
    command = [sys.executable, HERE / "nvrtc.py", out, CUDA / "include", *files]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return sum((out / f"{file.stem}.nvrtc.ptx").exists() for file in files)


TRITON = '''
import triton, triton.language as tl

@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)

@triton.jit
def softmax(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    row = tl.load(x + tl.program_id(0) * n + i, i < n, -float("inf"))
    e = tl.exp(row - tl.max(row, 0))
    tl.store(out + tl.program_id(0) * n + i, e / tl.sum(e, 0), i < n)

@triton.jit
def layer_norm(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    row = tl.load(x + tl.program_id(0) * n + i, i < n, 0.0).to(tl.float32)
    mean = tl.sum(row, 0) / n
    d = tl.where(i < n, row - mean, 0.0)
    tl.store(out + tl.program_id(0) * n + i, d * tl.rsqrt(tl.sum(d * d, 0) / n + 1e-5), i < n)

@triton.jit
def scan(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.cumsum(tl.load(x + i, i < n, 0.0), 0), i < n)

@triton.jit
def matmul(a, b, c, n, B: tl.constexpr):
    i, j, k = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B), tl.arange(0, 32)
    acc = tl.zeros((B, B), tl.float32)
    for at in range(0, n, 32):
        acc = tl.dot(tl.load(a + i[:, None] * n + at + k[None, :]), tl.load(b + (at + k)[:, None] * n + j[None, :]), acc)
    tl.store(c + i[:, None] * n + j[None, :], acc.to(c.dtype.element_ty))
'''


def by_triton(out):
    if importlib.util.find_spec("triton") is None:
        return 0
    # @triton.jit reads the source of its functions.
    module = out / "triton_kernels.py"
    module.write_text(TRITON)
    sys.path.insert(0, str(out))
    import triton
    import triton_kernels
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    made = 0
    pointers = {"add": 3, "softmax": 2, "layer_norm": 2, "scan": 2, "matmul": 3}
    for (name, count), element, arch, block, warps in itertools.product(
        pointers.items(), ["fp32", "fp16", "bf16"], [80, 90, 100], [64, 128], [4, 8]
    ):
        kernel = getattr(triton_kernels, name)
        signature = {arg: f"*{element}" for arg in kernel.arg_names[:count]}
        signature |= {"n": "i32", "B": "constexpr"}
        source = ASTSource(fn=kernel, signature=signature, constexprs={"B": block})
        try:
            built = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": warps})
        except Exception as error:  # A combination that Triton does not take is none of ours.
            print(f"skipped {name} {element} sm_{arch}: {type(error).__name__} {str(error)[:100]}", file=sys.stderr)
            continue
        (out / f"triton.{name}.{element}.sm_{arch}.{block}.{warps}.ptx").write_text(built.asm["ptx"])
        made += 1
    module.unlink()
    return made


def by_tinygrad(out):
    if importlib.util.find_spec("tinygrad") is None:
        return 0
    os.environ.pop("CUDA", None)  # To tinygrad it is a number.
    from tinygrad import Tensor, dtypes
    from tinygrad.codegen.kernel import Kernel
    from tinygrad.ops import Ops
    from tinygrad.renderer.ptx import PTXRenderer

    made = 0
    kinds = itertools.product(["sm_75", "sm_89"], [16, 333], [dtypes.float, dtypes.half, dtypes.int])
    for arch, size, dtype in kinds:
        renderer = PTXRenderer(arch)
        a, b = Tensor.empty(size, size, dtype=dtype), Tensor.empty(size, size, dtype=dtype)
        results = [a + b, a @ b, a.sum(), a.max(axis=1), a.relu(), a.T.contiguous(), a * 3]
        for number, result in enumerate(results):
            for nth, item in enumerate(result.schedule()):
                if item.ast.op is not Ops.SINK:
                    continue
                text = Kernel(item.ast, opts=renderer).to_program().src
                # Its compiler fills these in.
                text = text.replace("TARGET", arch).replace("VERSION", "7.8")
                (out / f"tinygrad.{number}.{size}.{dtype.name}.{arch}.{nth}.ptx").write_text(text)
                made += 1
    return made


def main():
    out = pathlib.Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    total = 0
    for maker in [by_nvcc, by_nvrtc, by_cutlass, by_triton, by_tinygrad]:
        try:
            made = maker(out)
        except Exception as error:  # One maker that is missing or has changed does not stop the others.
            print(f"{maker.__name__}: {type(error).__name__}: {error}", file=sys.stderr)
            made = 0
        print(f"{maker.__name__[3:]}: {made}", flush=True)
        total += made
    print(f"{total} files in {out}")


if __name__ == "__main__":
    main()
