"""Modules of torch as models."""

from __future__ import annotations

import importlib.util
import inspect
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional

from .arguments import checked, shown
from .errors import Error, ErrorCode, invalid_argument, missing_package

if TYPE_CHECKING:
    import onnx


@checked
def from_torch(
    module: Any,
    args: Any,
    *,
    kwargs: Optional[Mapping[str, Any]] = None,
    input_names: Optional[Sequence[str]] = None,
    output_names: Optional[Sequence[str]] = None,
    opset_version: Optional[int] = None,
    **export: Any,
) -> onnx.ModelProto:
    """The ONNX model of a torch.nn.Module, by torch.onnx.export in evaluation mode.

    args:    example inputs: a tensor, or a tuple of them. kwargs: further ones, by name.
    input_names, output_names: names in the model, which samples and golden outputs go by.
    export:  further arguments of torch.onnx.export, such as dynamic_shapes, dynamic_axes or dynamo. Without `dynamo`, the
             exporter of torch.export is taken where its package onnxscript is installed, else the one of TorchScript.
             Its optimizer is left out unless `optimize=True`: it drops small constants, as in log(x + 1e-10).

    Weights stay in the model up to 2 GB, and external beyond. Raises Error: NOT_FOUND without torch or onnx,
    INVALID_ARGUMENT for what is no module and for arguments that it does not take, SCRIPT where the export fails
    (`__cause__` is what it raised).

    >>> model = ulpscope.from_torch(torch.nn.Linear(4, 2), torch.zeros(1, 4), input_names=["x"], output_names=["y"])
    >>> [each.name for each in model.graph.input]
    ['x']
    """
    try:
        import torch
    except ImportError as error:
        raise missing_package("from_torch", "torch", _advice("torch")) from error
    try:
        import onnx
    except ImportError as error:
        raise missing_package("from_torch", "onnx", _advice("onnx")) from error
    if not isinstance(module, torch.nn.Module):
        raise invalid_argument(f"[from_torch] module: expected a torch.nn.Module, got {shown(module)}")
    options: dict[str, Any] = {
        "kwargs": dict(kwargs) if kwargs else None,
        "input_names": list(input_names) if input_names is not None else None,
        "output_names": list(output_names) if output_names is not None else None,
        "opset_version": opset_version,
    }
    options = {name: value for name, value in options.items() if value is not None} | export
    known = inspect.signature(torch.onnx.export).parameters
    if "verbose" in known:
        options.setdefault("verbose", False)
    if "dynamo" in known:
        options.setdefault("dynamo", importlib.util.find_spec("onnxscript") is not None)
    if "optimize" in known and options.get("dynamo"):  # It takes 1e-10 for 0 and log(x + 1e-10) for log(x).
        options.setdefault("optimize", False)
    was_training = module.training
    module.eval()
    try:
        _run(torch, module, args if isinstance(args, tuple) else (args,), kwargs)
        with tempfile.TemporaryDirectory(prefix="ulpscope-") as folder:
            path = os.path.join(folder, "model.onnx")
            try:
                torch.onnx.export(module, args if isinstance(args, tuple) else (args,), path, **options)
            except Exception as error:
                raise Error(
                    ErrorCode.SCRIPT, f"[from_torch] torch.onnx.export raised {type(error).__name__}: {error}"
                ) from error
            return onnx.load(path)
    finally:
        module.train(was_training)


def _run(torch: Any, module: Any, args: tuple[Any, ...], kwargs: Optional[Mapping[str, Any]]) -> None:
    """What does not fit the module is said in a line; the exporter prints pages of its own before it raises."""
    if args and isinstance(args[-1], dict):
        return  # An older form of `kwargs`, which the exporter knows.
    try:
        with torch.no_grad():
            module(*args, **(kwargs or {}))
    except Exception as error:
        raise invalid_argument(
            f"[from_torch] args: expected what the module takes, got {type(error).__name__}: {error}"
        ) from error


def _advice(package: str) -> str:
    return f"pip install {package}, or give the path of an ONNX model"
