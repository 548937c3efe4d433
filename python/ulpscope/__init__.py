"""Finds the layers of a neural network that need more precision.

    import ulpscope
    engine = ulpscope.Engine("model.onnx", precision="fp16", layer_precisions={"Add": "float32"}, threads=1)
    outputs = engine.run({"x": x})

`ulpscope.backend` runs models through ONNX's backend interface. The program `ulpscope` is installed with this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

from .errors import Error, ErrorCode, InternalError

if TYPE_CHECKING:
    from .engine import Engine, Layer, TensorSpec

__version__ = "0.1.0"
__all__ = ["Engine", "Error", "ErrorCode", "InternalError", "Layer", "TensorSpec", "__version__"]

_FROM_ENGINE = ("Engine", "Layer", "TensorSpec")


def __getattr__(name: str) -> Any:
    # Late, so that the worker (ulpscope.worker) starts without the engine and in a Python that has none.
    if name in _FROM_ENGINE:
        from . import engine

        return getattr(engine, name)
    raise AttributeError(f"module 'ulpscope' has no attribute '{name}'")


def __dir__() -> List[str]:
    return sorted(__all__)
