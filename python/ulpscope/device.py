"""Runs between tensors that are on a device already: of torch, CuPy, JAX and whoever else knows DLPack."""

from __future__ import annotations

import operator
import sys
from typing import Any, Callable, Dict, Iterable, Mapping, Optional

from .arguments import shown
from .errors import invalid_argument
from .native import _core

#: An output on the engine's device: `numpy()` copies it, and `from_dlpack` of other libraries takes it as it is.
DeviceTensor = _core.DeviceTensor

is_dlpack = _core.is_dlpack  #: It is a tensor of DLPack, and not NumPy's.
is_on_device = _core.is_on_device  #: It is in the memory of something else than the CPU.


def _handle(stream: Any) -> Optional[int]:
    """What a library's stream is for CUDA; None: it is none."""
    for attribute in ("cuda_stream", "ptr"):  # torch, CuPy
        if isinstance(getattr(stream, attribute, None), int):
            return getattr(stream, attribute)  # type: ignore[no-any-return]
    try:
        number = stream.__cuda_stream__()[1] if hasattr(stream, "__cuda_stream__") else operator.index(stream)
    except TypeError:
        return None
    return number if not isinstance(stream, bool) and 0 <= number < 2**64 else None


def stream_of(stream: Any, tensors: Iterable[Any], where: str) -> int:
    """The handle of the stream; of None, the current one of the library that the first tensor on a device is of."""
    if stream is not None:
        handle = _handle(stream)
        if handle is None:
            raise invalid_argument(
                f"[run] {where}stream: expected a stream of torch or CuPy, one with __cuda_stream__, or its handle, "
                f"got {shown(stream)}"
            )
        return handle
    for tensor in tensors:
        if not is_on_device(tensor):
            continue
        library = type(tensor).__module__.partition(".")[0]
        if library == "cupy":
            return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
        if "torch" in sys.modules and isinstance(tensor, sys.modules["torch"].Tensor):
            return int(sys.modules["torch"].cuda.current_stream(tensor.device).cuda_stream)
        break
    return 0


def stream_finder(stream: Any, where: str) -> Callable[[Any], int]:
    """stream_of for the first tensor on a device, or None where all are on the CPU."""
    return lambda first: stream_of(stream, () if first is None else (first,), where)


class BoundRun:
    """Runs of an engine between fixed tensors: what `Engine.bind` gives."""

    def __init__(
        self, engine: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any], stream: Any, where: str
    ) -> None:
        self._tensors = [*inputs.values(), *outputs.values()]
        self._on_device = [tensor for tensor in self._tensors if is_on_device(tensor)][:1]
        self._where = where
        self._run, handle = _core.bind(engine, inputs, outputs, stream_finder(stream, where))
        self._outputs: Dict[str, Any] = dict(outputs) or dict(self._run.outputs(handle))

    @property
    def outputs(self) -> Dict[str, Any]:
        """{name: tensor}, the same for all runs: the caller's, or an ulpscope.DeviceTensor each."""
        return self._outputs

    def run(self, stream: Any = None) -> Dict[str, Any]:
        """One inference: reads the inputs as they are now, and gives `outputs`, which hold its results.

        stream: as of Engine.run.
        """
        self._run.run(stream_of(stream, self._on_device, self._where))
        return self._outputs
