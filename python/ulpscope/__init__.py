"""Finds the layers of a neural network that need more precision.

    import ulpscope
    answer = ulpscope.search("model.onnx", samples, precisions=["fp16"], threshold=1e-2)
    typed, info = ulpscope.convert("model.onnx", answer)
    check = ulpscope.verify("model.onnx", answer, fresh_samples, runner="onnxruntime")
    ulpscope.report(answer, "report.html")
    outputs = ulpscope.Engine("model.onnx", answer=answer).run({"x": x})

`calibrate` and `quantize` are for int8, `from_torch` for modules of torch, `ulpscope.torch` searches on them and makes
copies in mixed precision, `ulpscope.polygraphy` has a runner for Polygraphy, `ulpscope.backend` ONNX's backend
interface. The program `ulpscope` is installed with this package. Messages go to the logger "ulpscope" of the module
logging. docs/python.md
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, List

from .errors import Error, ErrorCode, InternalError

if TYPE_CHECKING:
    from . import torch
    from .arguments import FilePath, Names, Precisions
    from .answer import Answer, Bits, CurvePoint, Judgement, KeptLayer, LayerBits, Lowest, OutputError, Reason, Repair
    from .answer import Trial
    from .calibration import Calibration, calibrate
    from .converting import ConvertReport, convert
    from .criterion import Metric
    from .data import Data, Model
    from .device import BoundRun, DeviceTensor
    from .engine import Engine, Layer, TensorSpec
    from .progress import Progress
    from .quantization import quantize
    from .reporting import report
    from .searching import SearchInterrupted, search
    from .targets import measure_target
    from .torch_export import from_torch
    from .verification import Check, verify

_HOME = {
    "arguments": "FilePath Names Precisions",
    "answer": "Answer Bits CurvePoint Judgement KeptLayer LayerBits Lowest OutputError Reason Repair Trial",
    "calibration": "Calibration calibrate",
    "converting": "ConvertReport convert",
    "criterion": "Metric",
    "data": "Data Model",
    "device": "BoundRun DeviceTensor",
    "engine": "Engine Layer TensorSpec",
    "progress": "Progress",
    "quantization": "quantize",
    "reporting": "report",
    "searching": "SearchInterrupted search",
    "targets": "measure_target",
    "torch_export": "from_torch",
    "verification": "Check verify",
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = [
    "Answer", "Bits", "BoundRun", "Calibration", "Check", "ConvertReport", "CurvePoint", "Data", "DeviceTensor",
    "Engine", "Error", "ErrorCode", "FilePath", "InternalError", "Judgement", "KeptLayer", "Layer", "LayerBits",
    "Lowest", "Metric", "Model", "Names", "OutputError", "Precisions", "Progress", "Reason", "Repair",
    "SearchInterrupted", "TensorSpec", "Trial", "__version__", "calibrate", "convert", "from_torch", "measure_target",
    "quantize", "report", "search", "verify",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Late, so that the worker (ulpscope.worker) starts without the engine and in a Python that has none.
    if name == "__version__":
        return import_module("._core", __name__).__version__
    if name == "torch":  # Without an import of its own, but not before it is asked for: it needs torch.
        return import_module(".torch", __name__)
    if name in _MODULE_OF:
        return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    raise AttributeError(f"module 'ulpscope' has no attribute '{name}'")


def __dir__() -> List[str]:
    return sorted(__all__)
