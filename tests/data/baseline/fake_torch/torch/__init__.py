"""As much of PyTorch as warptree's runner calls, on the CPU and with a clock that tells 1 µs a call."""

import math
import struct
from types import SimpleNamespace as N

__version__ = "0.0-fake"
version = N(cuda="13.0")
float32, uint8 = "f32", "u8"
float64 = float16 = bfloat16 = int32 = uint32 = int64 = uint64 = None

CALLS = []  # what ran since the last event


def device(kind, index):
    return (kind, index)


class Tensor:
    """Bytes, a dtype and a shape."""

    def __init__(self, data, dtype, shape):
        self.data, self.dtype, self.shape = bytearray(data), dtype, list(shape)
        self.device = "fake"

    def element_size(self):
        return 4 if self.dtype == "f32" else 1

    def numel(self):
        return len(self.data) // self.element_size()

    def dim(self):
        return len(self.shape)

    def stride(self):
        return [math.prod(self.shape[at + 1 :]) for at in range(len(self.shape))]

    def unsqueeze(self, at):
        return self.reshape(self.shape[:at] + [1] + self.shape[at:])

    def is_complex(self):
        return False

    def is_floating_point(self):
        return self.dtype == "f32"

    def to(self, where):
        return Tensor(self.data, self.dtype, self.shape)

    def cpu(self):
        return self

    def contiguous(self):
        return self

    def clone(self):
        return Tensor(self.data, self.dtype, self.shape)

    def reshape(self, *shape):
        shape = shape[0] if isinstance(shape[0], list) else list(shape)
        made = Tensor(b"", self.dtype, shape)
        made.data = self.data  # a view
        return made

    def view(self, what):
        if what == -1:
            return self.reshape(-1)
        made = Tensor(b"", what, [-1])
        made.data = self.data
        return made

    def untyped_storage(self):
        return N(data_ptr=lambda: id(self.data))

    def values(self):
        return struct.unpack(f"<{self.numel()}f", self.data)

    def __mul__(self, factor):
        CALLS.append("mul")
        return Tensor(
            struct.pack(f"<{self.numel()}f", *[v * factor for v in self.values()]),
            self.dtype,
            self.shape,
        )


class FileTensor(Tensor):
    def __init__(self, path, size):
        self.path, self.size, self.dtype, self.shape = path, size, "u8", [size]

    def copy_(self, other):
        with open(self.path, "wb") as out:
            out.write(other.data[: self.size])


def from_file(path, shared, size, dtype):
    if shared:
        return FileTensor(path, size)
    with open(path, "rb") as source:
        return Tensor(source.read(size), dtype, [size])


def empty(shape, dtype, device):
    return Tensor(bytes(math.prod(shape) * (4 if dtype == "f32" else 1)), dtype, shape)


def equal(a, b):
    return a.data == b.data


def roll(tensor, shift):
    values = list(tensor.values())
    values = values[-shift:] + values[:-shift] if shift else values
    return Tensor(struct.pack(f"<{len(values)}f", *values), tensor.dtype, [-1])


def compile(function, dynamic):
    return function


class no_grad:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False


class Event:
    def __init__(self, enable_timing):
        self.at = 0

    def record(self):
        self.at = len(CALLS)

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e-3


class Graph:
    def __init__(self):
        self.calls = 0

    def replay(self):
        CALLS.extend(["replayed"] * self.calls)


class capturing:
    def __init__(self, graph):
        self.graph = graph

    def __enter__(self):
        self.before = len(CALLS)

    def __exit__(self, *error):
        self.graph.calls = len(CALLS) - self.before
        return False


class Stream(no_grad):
    cuda_stream = 7

    def wait_stream(self, other):
        pass


backends = N(cuda=N(matmul=N()), cudnn=N(version=lambda: 91900))
nn = N(functional=N())
cuda = N(
    is_available=lambda: True,
    set_device=lambda device: None,
    get_device_name=lambda device: "Fake GPU",
    synchronize=lambda: None,
    empty_cache=lambda: None,
    mem_get_info=lambda: (1 << 40, 1 << 40),
    current_stream=Stream,
    Stream=Stream,
    stream=lambda stream: stream,
    Event=Event,
    CUDAGraph=Graph,
    graph=capturing,
)
print("a library that prints to stdout forges nothing")
