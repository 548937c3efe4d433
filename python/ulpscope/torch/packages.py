"""The packages that are not installed with this one."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import missing_package


def torch_package(where: str) -> Any:
    """torch. Raises Error(NOT_FOUND) without it, as the others here do."""
    return _found("torch", where)


def onnx_package(where: str) -> Any:
    return _found("onnx", where)


def check_exporter(where: str) -> None:
    """The exporter that writes the names of modules needs it."""
    _found("onnxscript", where)


def _found(name: str, where: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise missing_package(where, name, f"pip install {name}, or pip install 'ulpscope[torch]'") from error
