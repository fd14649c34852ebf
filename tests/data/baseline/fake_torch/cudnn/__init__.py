"""As much of cuDNN's frontend as warptree's runner calls, on the fake PyTorch: products of float32 matrices.

It insists on the order of calls that the real one wants.
"""

import struct
from types import SimpleNamespace as N

import torch

data_type = N(FLOAT="float", HALF="half", BFLOAT16="bfloat16")
heur_mode = N(A="a", FALLBACK="fallback")
numerical_note = N(TENSOR_CORE="tensor core", DOWN_CONVERT_INPUTS="down")
STREAM = None


def create_handle():
    return "handle"


def set_stream(handle, stream):
    global STREAM
    assert handle == "handle"
    STREAM = stream


class Tensor:
    """A descriptor: no data."""

    def __init__(self, dim=None):
        self.dim, self.output = dim, False

    def set_output(self, yes):
        self.output = yes
        return self

    def set_dim(self, dim):
        self.dim = dim
        return self

    def set_stride(self, stride):
        assert len(stride) == len(self.dim)
        return self

    def set_data_type(self, kind):
        assert kind == data_type.FLOAT
        return self


class pygraph:
    STEPS = ["validate", "build_operation_graph", "create_execution_plans", "check_support", "build_plans"]

    def __init__(self, intermediate_data_type, compute_data_type, handle):
        self.done, self.ieee = [], False

    def tensor_like(self, tensor):
        return Tensor(list(tensor.shape))

    def matmul(self, a, b):
        assert a.dim[2] == b.dim[1]
        self.a, self.b, self.c = a, b, Tensor()
        return self.c

    def step(self, name):
        self.done.append(name)
        assert self.done == self.STEPS[: len(self.done)], self.done

    def validate(self):
        assert self.c.output
        self.step("validate")

    def build_operation_graph(self):
        self.step("build_operation_graph")

    def create_execution_plans(self, modes):
        self.step("create_execution_plans")

    def deselect_numeric_notes(self, notes):
        self.ieee = "tensor core" in notes

    def check_support(self):
        self.step("check_support")

    def build_plans(self):
        self.step("build_plans")

    def get_workspace_size(self):
        return 16

    def execute(self, tensors, workspace, handle):
        assert self.done == self.STEPS and handle == "handle" and workspace.numel() == 16
        assert STREAM == torch.cuda.current_stream().cuda_stream
        assert self.ieee, "the task asks for float32"
        a, b, c = (tensors[t] for t in (self.a, self.b, self.c))
        (_, rows, inner), columns = a.shape, b.shape[2]
        x, y = a.values(), b.values()
        product = [
            sum(x[row * inner + i] * y[i * columns + column] for i in range(inner))
            for row in range(rows)
            for column in range(columns)
        ]
        c.data[:] = struct.pack(f"<{len(product)}f", *product)
        torch.CALLS.append("execute")
