"""Tensors of DLPack with any type, device and strides, over bytes of NumPy: what torch, CuPy and JAX would give."""

from __future__ import annotations

import ctypes
from typing import Any, Optional, Sequence

import numpy as np

CPU, CUDA = 1, 2
#: (code, bits) of DLPack, by the name of a type.
TYPES = {
    "float32": (2, 32), "float64": (2, 64), "float16": (2, 16), "bfloat16": (4, 16), "int8": (0, 8), "int32": (0, 32),
    "int64": (0, 64), "uint8": (1, 8), "bool": (6, 8), "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8),
    "complex64": (5, 64),
}  # fmt: skip


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Other:
    """A tensor of some other library: `array` says the bytes and the shape, `held` how many capsules are not freed."""

    def __init__(
        self, array: np.ndarray, device: tuple[int, int] = (CPU, 0), strides: Optional[Sequence[int]] = None,
        type_name: Optional[str] = None, refuses: str = "",
    ) -> None:  # fmt: skip
        self.array, self.device, self.strides, self.refuses = array, device, strides, refuses
        self.type_name = type_name or array.dtype.name
        self.held, self.streams, self._kept = 0, [], []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, stream: Any = None) -> Any:
        if self.refuses:
            raise BufferError(self.refuses)
        self.streams.append(stream)
        rank = self.array.ndim
        shape = (ctypes.c_int64 * rank)(*self.array.shape)
        strides = (ctypes.c_int64 * rank)(*self.strides) if self.strides is not None else None
        code, bits = TYPES[self.type_name]
        pointer = ctypes.POINTER(ctypes.c_int64)
        managed = _Managed(
            Tensor(
                self.array.ctypes.data, *self.device, rank, code, bits, 1, ctypes.cast(shape, pointer),
                ctypes.cast(strides, pointer) if strides is not None else pointer(), 0,
            ),
            None,
            _DELETER(lambda _: self._released()),
        )  # fmt: skip
        self.held += 1
        self._kept.append((managed, shape, strides))
        return new_capsule(ctypes.addressof(managed), b"dltensor", None)

    def _released(self) -> None:
        self.held -= 1
