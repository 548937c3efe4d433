"""Frames between the program and the worker; ``src/runners/message.h`` is the other side.

A frame is a header of 32 bytes (little endian: ``ULPW``, version, kind, two zero bytes, number, four zero bytes, length of
the message, length of the shared memory) and a message in MessagePack. Tensors are extensions of type 1 ([type name,
shape, offset]) whose bytes lie in a memfd that comes with the header as a file descriptor.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
from typing import Any, List, Optional, Tuple

import numpy as np

from . import messagepack

REQUEST, RESPONSE, ERROR = 1, 2, 3
_HEADER = struct.Struct("<4sBBHIIQQ")
_MAGIC = b"ULPW"
_VERSION = 1
_TENSOR = 1
_ALIGNMENT = 64

_NATIVE_TYPES = ("float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")
_ML_DTYPES = {"bfloat16": "bfloat16", "fp8": "float8_e4m3fn"} | {
    name: name for name in ("float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn",
                            "float4_e2m1fn", "int4", "uint4", "int2", "uint2")}  # fmt: skip
# NumPy has none of these: their bits
_NARROW_TYPES = {name: "uint16" if name == "bfloat16" else "uint8" for name in _ML_DTYPES}


class Disconnected(Exception):
    """The program closed its end."""


class ProtocolError(Exception):
    """Something else than a frame arrived."""


def dtype_of(name: str) -> np.dtype:
    """NumPy's type for a type name of ulpscope; bfloat16 is ml_dtypes' where that is installed, else tagged uint16."""
    if name in _NATIVE_TYPES:
        return np.dtype(name)
    if name not in _NARROW_TYPES:
        raise ProtocolError(f"a tensor of type {name!r}")
    try:
        import ml_dtypes

        narrow: np.dtype = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
        return narrow
    except ImportError:
        return np.dtype(_NARROW_TYPES[name], metadata={"ulpscope": name})


def name_of(dtype: np.dtype) -> Optional[str]:
    """The type name of ulpscope for NumPy's type, or None when there is none."""
    if dtype.metadata and "ulpscope" in dtype.metadata:
        return str(dtype.metadata["ulpscope"])
    if dtype.name in _NATIVE_TYPES:
        return dtype.name
    for name, other in _ML_DTYPES.items():
        if dtype.name == other:
            return name
    return None


def as_array(value: Any) -> np.ndarray:
    """An array that can be sent: dense, row-major, native byte order. Raises TypeError for other element types."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # torch
        value = value.detach().cpu().numpy()
    array = np.asarray(value)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if name_of(array.dtype) is None:
        raise TypeError(f"expected an array of numbers or bools, got one with elements of type {array.dtype}")
    # ascontiguousarray makes one dimension of none
    return np.ascontiguousarray(array).reshape(array.shape)


class Channel:
    """The worker's end of the socket. One frame at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def send(self, kind: int, number: int, value: Any) -> None:
        arrays: List[Tuple[int, np.ndarray]] = []
        size = 0

        def default(item: Any) -> Tuple[int, bytes]:
            nonlocal size
            if isinstance(item, np.bool_):
                item = np.asarray(item)
            if not (isinstance(item, (np.ndarray, np.generic)) or hasattr(item, "__array__")):
                raise TypeError(f"cannot send an object of type {type(item).__name__}")
            array = as_array(item)
            offset = -(-size // _ALIGNMENT) * _ALIGNMENT
            if array.nbytes:
                arrays.append((offset, array))
                size = offset + array.nbytes
            return _TENSOR, messagepack.packb([name_of(array.dtype), list(array.shape), offset])

        message = messagepack.packb(value, default)
        header = _HEADER.pack(_MAGIC, _VERSION, kind, 0, number, 0, len(message), size)
        if not size:
            self._socket.sendall(header + message)
            return
        descriptor = _share(arrays, size)
        try:
            socket.send_fds(self._socket, [header], [descriptor])
        finally:
            os.close(descriptor)
        self._socket.sendall(message)

    def receive(self) -> Tuple[int, int, Any]:
        """Kind, number and value of the next frame. Raises Disconnected at the end."""
        header, descriptors = self._receive_header()
        try:
            magic, version, kind, _, number, _, length, shared = _HEADER.unpack(header)
            if magic != _MAGIC or version != _VERSION:
                raise ProtocolError("not a frame of this version")
            message = self._receive_exactly(length)
            memory: Optional[mmap.mmap] = None
            if shared:
                if not descriptors:
                    raise ProtocolError("a frame without its shared memory")
                memory = mmap.mmap(descriptors[0], shared, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

        def extension(code: int, body: bytes) -> np.ndarray:
            if code != _TENSOR:
                raise ProtocolError("an unknown extension")
            name, shape, offset = messagepack.unpackb(body)
            dtype = dtype_of(name)
            count = int(np.prod(shape, dtype=np.int64))
            if not count:
                return np.empty(shape, dtype)
            if memory is None:
                raise ProtocolError("a tensor outside of the shared memory")
            return np.frombuffer(memory, dtype, count, offset).reshape(shape)

        return kind, number, messagepack.unpackb(message, extension)

    def _receive_header(self) -> Tuple[bytes, List[int]]:
        data, descriptors, _, _ = socket.recv_fds(self._socket, _HEADER.size, 4)
        if not data:
            raise Disconnected
        while len(data) < _HEADER.size:
            more = self._socket.recv(_HEADER.size - len(data))
            if not more:
                raise Disconnected
            data += more
        return data, list(descriptors)

    def _receive_exactly(self, size: int) -> bytes:
        buffer = bytearray(size)
        view = memoryview(buffer)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise Disconnected
            view = view[count:]
        return bytes(buffer)


def _share(arrays: List[Tuple[int, np.ndarray]], size: int) -> int:
    descriptor = os.memfd_create("ulpscope-tensors", os.MFD_CLOEXEC)
    try:
        os.posix_fallocate(descriptor, 0, size)
        with mmap.mmap(descriptor, size) as memory:
            for offset, array in arrays:
                target = np.frombuffer(memory, np.uint8, array.nbytes, offset)
                target[:] = array.reshape(-1).view(np.uint8)
                del target
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
