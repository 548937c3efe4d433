"""The worker's device memory, over calls of Polygraphy's that this process answers itself."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

cuda = pytest.importorskip("polygraphy.cuda")
memory = pytest.importorskip("ulpscope.worker.cuda_memory")


class Runtime:
    """Memory of this process, under the names of polygraphy.cuda.wrapper()."""

    def __init__(self) -> None:
        self.blocks: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.kinds: list[int] = []

    def malloc(self, size: int) -> int:
        block = ctypes.create_string_buffer(size)
        self.blocks[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def free(self, pointer: int) -> None:
        del self.blocks[pointer]

    def memcpy(self, dst: int, src: int, nbytes: int, kind: int) -> None:
        self.kinds.append(kind)
        ctypes.memmove(dst, src, nbytes)


def test_buffers_hold_what_they_are_given(monkeypatch):
    runtime = Runtime()
    monkeypatch.setattr(cuda, "wrapper", lambda: runtime)
    opened = memory.open_runtime()
    given, empty = np.arange(7, dtype=np.float32), np.empty(0, np.int64)
    buffers = [memory.Buffer(opened, each.nbytes) for each in (given, empty)]
    for buffer, array in zip(buffers, (given, empty)):
        buffer.upload(array)
    result = np.zeros_like(given)
    buffers[0].download(result)
    buffers[1].download(empty)
    np.testing.assert_array_equal(result, given)
    assert runtime.kinds == [cuda.MemcpyKind.HostToDevice, cuda.MemcpyKind.DeviceToHost]
    del buffers, buffer
    assert not runtime.blocks


def test_a_machine_without_the_runtime_is_told_so(monkeypatch):
    def fail():
        raise OSError("libcudart.so: cannot open shared object file")

    monkeypatch.setattr(cuda, "wrapper", fail)
    with pytest.raises(Exception, match="expected the CUDA runtime .libcudart., got: libcudart.so: cannot open"):
        memory.open_runtime()
