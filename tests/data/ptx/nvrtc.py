"""Compiles CUDA C to PTX with NVRTC: nvrtc.py OUT INCLUDE FILE.cu…; writes OUT/NAME.nvrtc.ptx."""
import ctypes
import pathlib
import sys


def compile_one(nvrtc, path, include):
    program = ctypes.c_void_p()
    source = path.read_bytes()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, path.name.encode(), 0, None, None)
    options = [b"--gpu-architecture=compute_89", b"-I" + include.encode(), b"-DINFINITY=__int_as_float(0x7f800000)"]
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    if status != 0:
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        print(f"skipped {path.name}: {log.value.decode(errors='replace').splitlines()[:1]}", file=sys.stderr)
        return None
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, text)
    return text.value


def main():
    nvrtc = ctypes.CDLL("libnvrtc.so.13")
    out, include, *files = sys.argv[1:]
    for path in map(pathlib.Path, files):
        text = compile_one(nvrtc, path, include)
        if text:
            pathlib.Path(out, path.stem + ".nvrtc.ptx").write_bytes(text)


main()
