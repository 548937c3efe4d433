"""Device memory for the TensorRT backend, through whichever package is there: cuda-python, torch, or the runtime library."""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import importlib
import os
import sys
from typing import Any, Optional

import numpy as np

from .errors import WorkerError

_TO_DEVICE, _TO_HOST = 1, 2  # cudaMemcpyKind


class _Library:
    """The CUDA runtime through ctypes."""

    def __init__(self) -> None:
        names = [ctypes.util.find_library("cudart")]
        for folder in sys.path:
            names += sorted(glob.glob(os.path.join(folder, "nvidia", "cu*", "lib", "libcudart.so.*")), reverse=True)
            names += sorted(glob.glob(os.path.join(folder, "nvidia", "cuda_runtime", "lib", "libcudart.so.*")), reverse=True)
        names += ["libcudart.so", "libcudart.so.13", "libcudart.so.12"]
        self._library: Any = None
        for name in filter(None, names):
            try:
                self._library = ctypes.CDLL(name)
                break
            except OSError:
                continue
        if self._library is None:
            raise ImportError("libcudart")

    def _check(self, status: int, what: str) -> None:
        if status != 0:
            raise WorkerError("unsupported", f"[tensorrt] {what}: the CUDA runtime reports error {status}")

    def allocate(self, size: int) -> int:
        pointer = ctypes.c_void_p()
        self._check(self._library.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(max(size, 1))), "cudaMalloc")
        return int(pointer.value or 0)

    def free(self, pointer: int) -> None:
        self._library.cudaFree(ctypes.c_void_p(pointer))

    def copy(self, target: int, source: int, size: int, kind: int) -> None:
        status = self._library.cudaMemcpy(ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_size_t(size), ctypes.c_int(kind))
        self._check(status, "cudaMemcpy")

    def synchronize(self) -> None:
        self._check(self._library.cudaDeviceSynchronize(), "cudaDeviceSynchronize")


class _CudaPython:
    """The CUDA runtime through NVIDIA's bindings."""

    def __init__(self) -> None:
        try:
            runtime = importlib.import_module("cuda.bindings.runtime")
        except ImportError:
            runtime = importlib.import_module("cuda.cudart")
        self._runtime: Any = runtime

    def _check(self, result: Any, what: str) -> Any:
        status, *values = result
        if int(status) != 0:
            raise WorkerError("unsupported", f"[tensorrt] {what}: the CUDA runtime reports {status}")
        return values[0] if values else None

    def allocate(self, size: int) -> int:
        return int(self._check(self._runtime.cudaMalloc(max(size, 1)), "cudaMalloc"))

    def free(self, pointer: int) -> None:
        self._runtime.cudaFree(pointer)

    def copy(self, target: int, source: int, size: int, kind: int) -> None:
        self._check(self._runtime.cudaMemcpy(target, source, size, self._runtime.cudaMemcpyKind(kind)), "cudaMemcpy")

    def synchronize(self) -> None:
        self._check(self._runtime.cudaDeviceSynchronize(), "cudaDeviceSynchronize")


class _Torch(_Library):
    """The CUDA runtime that torch has loaded."""

    def __init__(self) -> None:
        import torch

        torch.cuda.init()
        self._library = ctypes.CDLL(None)
        if not hasattr(self._library, "cudaMalloc"):
            super().__init__()


def open_runtime() -> Any:
    """The first way to the CUDA runtime that works."""
    for kind in (_CudaPython, _Library, _Torch):
        try:
            return kind()
        except (ImportError, RuntimeError, AssertionError, OSError):
            continue
    raise WorkerError(
        "not_found",
        f"[tensorrt] expected the CUDA runtime (cuda-python, torch or libcudart), got none; try '{sys.executable} -m pip install cuda-python'",
    )


class Buffer:
    """Device memory that is freed with the object."""

    def __init__(self, runtime: Any, size: int) -> None:
        self._runtime = runtime
        self.pointer: Optional[int] = runtime.allocate(size)

    def upload(self, array: np.ndarray) -> None:
        if array.nbytes:
            self._runtime.copy(self.pointer, array.ctypes.data, array.nbytes, _TO_DEVICE)

    def download(self, array: np.ndarray) -> None:
        if array.nbytes:
            self._runtime.copy(array.ctypes.data, self.pointer, array.nbytes, _TO_HOST)

    def __del__(self) -> None:
        pointer, self.pointer = getattr(self, "pointer", None), None
        if pointer is not None:
            self._runtime.free(pointer)
