"""Checks metric names against the tables of NVIDIA's libnvperf_host, without a GPU.

    metric_names.py LIBRARY CHIP            lists the counters, ratios and throughputs that a chip has
    metric_names.py LIBRARY CHIP - < NAMES  prints the names that the chip does not have; none: all are known

LIBRARY is libnvperf_host.so of the PyPI package nvidia-cuda-cupti. CHIP: GA100 GA102 AD102 GH100 GB100 GB202.
"""

import ctypes
import sys
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_size_t, c_uint8, c_void_p, create_string_buffer


class InitializeHost(Structure):
    _fields_ = [("size", c_size_t), ("private", c_void_p)]


class ScratchSize(Structure):
    _fields_ = [("size", c_size_t), ("private", c_void_p), ("chip", c_char_p), ("availability", c_void_p),
                ("scratch", c_size_t)]


class Initialize(Structure):
    _fields_ = [("size", c_size_t), ("private", c_void_p), ("scratch", c_void_p), ("scratch_size", c_size_t),
                ("chip", c_char_p), ("availability", c_void_p), ("data", c_void_p), ("data_size", c_size_t),
                ("evaluator", c_void_p)]


class Names(Structure):
    _fields_ = [("size", c_size_t), ("private", c_void_p), ("evaluator", c_void_p), ("kind", c_uint8),
                ("names", POINTER(c_char)), ("begins", POINTER(c_size_t)), ("count", c_size_t)]


class Convert(Structure):
    _fields_ = [("size", c_size_t), ("private", c_void_p), ("evaluator", c_void_p), ("name", c_char_p),
                ("request", c_void_p), ("request_size", c_size_t)]


def call(library, function, argument):
    argument.size = ctypes.sizeof(argument)
    return getattr(library, function)(byref(argument))


def last_field_size(kind):
    """NVIDIA's struct sizes end with the last field, without padding."""
    name, field = kind._fields_[-1][:2]
    return getattr(kind, name).offset + ctypes.sizeof(field)


def evaluator(library, chip):
    host = InitializeHost()
    assert call(library, "NVPW_InitializeHost", host) == 0, "libnvperf_host does not start"
    size = ScratchSize(chip=chip)
    assert call(library, "NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize", size) == 0, "unknown chip"
    scratch = create_string_buffer(size.scratch)
    init = Initialize(scratch=ctypes.addressof(scratch), scratch_size=size.scratch, chip=chip)
    assert call(library, "NVPW_CUDA_MetricsEvaluator_Initialize", init) == 0, "no evaluator"
    return init.evaluator, scratch


def main():
    library = ctypes.CDLL(sys.argv[1])
    handle, _keep = evaluator(library, sys.argv[2].encode())
    if len(sys.argv) > 3:
        for name in sys.stdin.read().split():
            request = create_string_buffer(64)
            convert = Convert(evaluator=handle, name=name.encode(), request=ctypes.addressof(request),
                              request_size=16)
            if call(library, "NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest", convert) != 0:
                print(name)
        return
    for kind in range(3):
        names = Names(evaluator=handle, kind=kind)
        names.size = last_field_size(Names)
        assert library.NVPW_MetricsEvaluator_GetMetricNames(byref(names)) == 0
        base = ctypes.addressof(names.names.contents)
        for i in range(names.count):
            print("crt"[kind], ctypes.string_at(base + names.begins[i]).decode())


main()
