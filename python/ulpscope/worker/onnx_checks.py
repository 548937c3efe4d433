"""The onnx package's own check of a model file."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any, Dict

from .errors import WorkerError, package


def onnx_prepare(server: Any) -> Dict[str, bool]:
    """Imports what the checks need, so that it is there when a file is; tells what is installed."""
    if server is not None:
        # A process of checks has nothing to tidy up, and to tear down what it imported takes as long as such a check.
        atexit.register(os._exit, 0)
    found = {"onnx": False, "onnxruntime": False}
    for name in found:
        with contextlib.suppress(ImportError):
            found[name] = (name == "onnx" and _extension() is not None) or importlib.import_module(name) is not None
    return found


def _extension() -> Any:
    """The compiled half of onnx, which is what checks, without the package around it: to import that takes several
    times as long as to check a small model. None where it is not to be had so."""
    name = "onnx.onnx_cpp2py_export"
    if name not in sys.modules and "onnx" not in sys.modules:
        with contextlib.suppress(ImportError, ValueError):
            onnx = importlib.util.find_spec("onnx")
            spec = onnx and importlib.machinery.PathFinder.find_spec(name, onnx.submodule_search_locations)
            if spec and spec.loader:
                extension = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(extension)
                sys.modules[name] = extension
    return sys.modules.get(name)


def _check_file(path: str) -> None:
    """onnx.checker.check_model(path, full_check=True), which is one call into the extension."""
    try:
        _extension().checker.check_model_path(path, True, False, False)
    except (AttributeError, TypeError):  # No extension, or that of another release, with other parameters.
        package("onnx", "to check models").checker.check_model(path, full_check=True)


def onnx_check(server: Any, path: str, nodes_only: bool = False) -> bool:
    """The full check, with shape and type inference. By path: external data is looked at, files may be large. False: it
    does not take inputs and outputs without a shape, which ONNX has for those of any rank. With `nodes_only` it takes
    them, and looks neither at their shapes nor at external data."""
    try:
        if nodes_only:
            onnx = package("onnx", "to check models")
            model = onnx.load(path, load_external_data=False)
            if not any(tensor.external_data for tensor in model.graph.initializer):
                onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
            onnx.checker.check_model(_without_what_nodes_do_not_need(model))
        else:
            _check_file(path)
    except WorkerError:
        raise
    except Exception as error:  # the checker has no common base for its errors
        if "Field 'shape' of 'type' is required but missing" in str(error):
            return False
        raise WorkerError("invalid_file", f"[onnx.checker] {path}: {error}") from error
    return True


def _without_what_nodes_do_not_need(model: Any) -> Any:
    """Inputs and outputs have some shape, and weights of other files are empty."""
    for info in (*model.graph.input, *model.graph.output):
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.shape.SetInParent()
    for tensor in model.graph.initializer:
        if tensor.external_data:
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.dims[:] = [0]
    return model
