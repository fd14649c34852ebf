"""Loads a generated kernel.py and prints, as JSON, its plans at the sizes given and the calls that two
launches make on a driver that only takes notes.

    drive.py LOADER CUBIN SIZES POINTERS
"""

import ctypes
import importlib.util
import json
import sys


class NotingDriver:
    """Stands for libcuda: every call succeeds, numbers that it hands out count up from 4096."""

    def __init__(self):
        self.calls = []
        self.next = 4096

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def function(*args):
            self.calls.append([name, [self.shown(arg) for arg in args]])
            if name not in ("cuLaunchKernelEx", "cuTensorMapEncodeTiled"):
                for arg in args:
                    if hasattr(arg, "_obj") and isinstance(arg._obj, ctypes._SimpleCData):
                        self.next += 4096
                        arg._obj.value = 132 if name == "cuDeviceGetAttribute" else self.next
            return 0

        setattr(self, name, function)
        return function

    def shown(self, arg):
        if hasattr(arg, "_obj"):
            arg = arg._obj
            return self.fields(arg) if isinstance(arg, ctypes.Structure) else "out"
        if isinstance(arg, ctypes._SimpleCData):
            return arg.value
        if isinstance(arg, ctypes.Array):
            return len(arg) if arg._type_ is ctypes.c_void_p else list(arg)
        if isinstance(arg, bytes):
            return arg.decode()
        return arg

    def fields(self, config):
        attribute = config.attributes[0]
        return {
            "grid": list(config.grid),
            "block": list(config.block),
            "smem": config.smem,
            "attribute": [attribute.id, *list(attribute.value)[:3]],
            "count": config.count,
        }


def main():
    loader, cubin, sizes, pointers = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("kernel", loader)
    kernel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernel)
    sizes, pointers = json.loads(sizes), json.loads(pointers)
    plans = [kernel.plan(**size, sm_count=132) for size in sizes]
    notes = NotingDriver()
    instance = kernel.Kernel(cubin, driver=kernel.Driver(notes))
    dims = {name: value for name, value in sizes[0].items() if name not in pointers}
    for _ in range(2):
        instance.launch(**pointers, **dims, stream=7)
    instance.close()
    json.dump({"plans": plans, "calls": notes.calls}, sys.stdout)


main()
