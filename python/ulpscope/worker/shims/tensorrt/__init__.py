"""TensorRT's Python module as far as scripts need it to describe a network to ulpscope.

Networks, layer precisions, output types and builder configurations are described here and built by ulpscope's engine;
nothing in this module runs on a GPU. It stands in for the real module in scripts that ulpscope runs.
"""

from __future__ import annotations

from typing import Any as _Any

from . import _enums
from ._builder import *  # noqa: F403
from ._enums import *  # noqa: F403
from ._enums import nptype
from ._layers import *  # noqa: F403
from ._layers import ILayer
from ._network import INetworkDefinition
from ._parser import OnnxParser, ParserError
from ._tensor import Dims, Dims2, Dims3, Dims4, DimsHW, ITensor, Permutation, Weights, volume
from ._window_layers import *  # noqa: F403

__version__ = "10.9.0"
__ulpscope__ = True

# In the order of DataType.
float32, float16, int8, int32, bool, uint8, fp8, bfloat16, int64, int4, fp4, e8m0 = list(_enums.DataType)[:12]


def init_libnvinfer_plugins(logger: _Any = None, namespace: str = "") -> int:
    """There are no plugins to register."""
    return 1


def get_plugin_registry() -> _Any:
    raise RuntimeError("ulpscope has no TensorRT plugins: use ONNX operators")


def __getattr__(name: str) -> _Any:
    known = sorted(key for key in globals() if not key.startswith("_") and key != "annotations")
    raise AttributeError(f"ulpscope's tensorrt has no '{name}'; it provides: {', '.join(known)}")

