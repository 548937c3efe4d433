"""Device memory for the TensorRT backend, through the CUDA runtime that Polygraphy finds."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from .errors import WorkerError, package
from .scripts import set_up_polygraphy


def open_runtime() -> Any:
    """Polygraphy's calls of the CUDA runtime."""
    cuda = package("polygraphy.cuda", "for --trt-backend tensorrt; it is in the extra ulpscope[scripts]")
    set_up_polygraphy()
    try:
        return cuda.wrapper()
    except OSError as error:
        raise WorkerError(
            "not_found",
            f"[tensorrt] expected the CUDA runtime (libcudart), got: {error}; try pip install nvidia-cuda-runtime",
        ) from None


class Buffer:
    """Device memory that is freed with the object."""

    def __init__(self, runtime: Any, size: int) -> None:
        self._runtime = runtime
        self.pointer: Optional[int] = runtime.malloc(max(size, 1))

    def upload(self, array: np.ndarray) -> None:
        self._copy(self.pointer, array.ctypes.data, array.nbytes, "HostToDevice")

    def download(self, array: np.ndarray) -> None:
        self._copy(array.ctypes.data, self.pointer, array.nbytes, "DeviceToHost")

    def _copy(self, target: Optional[int], source: Optional[int], size: int, kind: str) -> None:
        from polygraphy.cuda import MemcpyKind

        if size:
            self._runtime.memcpy(target, source, size, getattr(MemcpyKind, kind))

    def __del__(self) -> None:
        pointer, self.pointer = getattr(self, "pointer", None), None
        if pointer is not None:
            self._runtime.free(pointer)
