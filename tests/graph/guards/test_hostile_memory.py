"""Programs that read memory outside of tensors: arrays, buffers, ctypes.

The graph follows, or a warning named it.
"""

import ctypes
import mmap
import struct
import tempfile

import numpy as np
import torch
from hostile_cases import verdict


def test_array_written_through_a_view_is_followed():
    a = np.ones(4, dtype=np.float32)
    v = a[1:3]

    def build(x):
        return x * float(a.sum())

    def change():
        v.fill(3)

    assert verdict(build, change) == "followed"


def test_array_in_a_mapped_file_is_followed():
    p = tempfile.mktemp()
    a = np.memmap(p, dtype=np.float32, mode="w+", shape=(4,))
    a[:] = 1

    def change():
        a[0] = 5

    def build(x):
        return x * float(a[0])

    assert verdict(build, change) == "followed"


def test_memory_shared_with_an_array_is_followed():
    a = np.ones((3, 4), dtype=np.float32)

    def change():
        a[0] = 5

    def build(x):
        return x * torch.from_numpy(a)

    assert verdict(build, change) == "followed"


def test_tensor_made_of_an_array_is_followed():
    a = np.ones((3, 4), dtype=np.float32)

    def change():
        a[0] = 5

    def build(x):
        return x * torch.tensor(a)

    assert verdict(build, change) == "followed"


def test_structured_array_is_followed():
    a = np.zeros(2, dtype=[("a", "f4")])
    a["a"] = 2

    def change():
        a["a"][0] = 5

    def build(x):
        return x * float(a["a"][0])

    assert verdict(build, change) == "followed"


def test_memory_view_is_followed():
    b = bytearray(b"\x01\x02")
    m = memoryview(b)

    def build(x):
        return x * m[0]

    def change():
        b.__setitem__(0, 5)

    assert verdict(build, change) == "followed"


def test_number_of_ctypes_is_followed():
    c = ctypes.c_float(2.0)

    def build(x):
        return x * c.value

    def change():
        c.value = 3.0

    assert verdict(build, change) == "followed"


def test_field_of_a_ctypes_structure_is_followed():

    class S(ctypes.Structure):
        _fields_ = [("a", ctypes.c_float)]

    s = S(2.0)

    def build(x):
        return x * s.a

    def change():
        s.a = 3.0

    assert verdict(build, change) == "followed"


def test_array_of_ctypes_is_named():
    s = (ctypes.c_float * 2)(1.0, 2.0)

    def build(x):
        return x * s[1]

    def change():
        s.__setitem__(1, 3.0)

    assert verdict(build, change) == "named"


def test_packed_bytes_are_followed():
    b = bytearray(struct.pack("f", 2.0))

    def build(x):
        return x * struct.unpack("f", b)[0]

    def change():
        struct.pack_into("f", b, 0, 3.0)

    assert verdict(build, change) == "followed"


def test_mapped_memory_is_named():
    m = mmap.mmap(-1, 16)
    m[0] = 2

    def build(x):
        return x * m[0]

    def change():
        m.__setitem__(0, 3)

    assert verdict(build, change) == "named"
