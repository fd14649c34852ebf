"""y = factor * x, without NumPy: the header of a .npy file is copied, only its type changes."""

import json
import struct

factor = json.load(open("sizes.json"))["factor"]
data = open("x.npy", "rb").read()
start = 10 + struct.unpack("<H", data[8:10])[0]
x = struct.unpack(f"<{(len(data) - start) // 4}f", data[start:])
with open("y.npy", "wb") as out:
    out.write(data[:start].replace(b"<f4", b"<f8"))
    out.write(struct.pack(f"<{len(x)}d", *(factor * value for value in x)))
