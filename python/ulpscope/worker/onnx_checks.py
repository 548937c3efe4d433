"""The onnx package's own check of a model file."""

from __future__ import annotations

from typing import Any, Dict

from .errors import WorkerError, missing_package


def prepare(server: Any) -> Dict[str, bool]:
    """Imports what the checks need, so that it is there when a file is; tells what is installed."""
    found = {"onnx": True, "onnxruntime": True}
    try:
        import onnx.checker  # noqa: F401
    except ImportError:
        found["onnx"] = False
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        found["onnxruntime"] = False
    return found


def check(server: Any, path: str) -> bool:
    """The full check, with shape and type inference. By path: external data is looked at, files may be large. False: it
    does not take inputs and outputs without a shape, which ONNX has for those of any rank."""
    try:
        import onnx
    except ImportError as error:
        raise missing_package("onnx", "to check models") from error
    try:
        onnx.checker.check_model(path, full_check=True)
    except Exception as error:  # the checker has no common base for its errors
        if "Field 'shape' of 'type' is required but missing" in str(error):
            return False
        raise WorkerError("invalid_file", f"[onnx.checker] {path}: {error}") from error
    return True
