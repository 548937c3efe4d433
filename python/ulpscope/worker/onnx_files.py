"""ONNX models changed and written by the onnx package: conversion to float16, weights in files of their own."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, Optional

import numpy as np

from .errors import WorkerError, package


def _load(onnx: Any, path: str, model: Optional[np.ndarray], external_data_dir: str, ignore_external_data: bool = False) -> Any:
    """The model with all of its weights, unless those in other files are ignored."""
    try:
        proto = onnx.load_model(path, load_external_data=False) if model is None else onnx.load_model_from_string(bytes(model))
        if ignore_external_data:
            return proto
        onnx.load_external_data_for_model(proto, external_data_dir or os.path.dirname(os.path.abspath(path)))
        return proto
    except OSError as error:
        raise WorkerError("not_found", f"[onnx] {path}: cannot be read: {error}") from None
    except Exception as error:  # noqa: BLE001 - protobuf's and onnx' exceptions have no common base
        raise WorkerError("invalid_file", f"[onnx] {path}: expected a model that the onnx package reads: {error}") from None


def convert_to_float16(server: Any, path: str, target: str, external_data_dir: str = "") -> None:
    """Writes the model with float16 instead of float32 inside; inputs and outputs keep their types."""
    onnx = package("onnx", "for --fp-to-fp16")
    convert_float_to_float16 = package("onnxruntime.transformers.float16", "for --fp-to-fp16").convert_float_to_float16
    model = _load(onnx, path, None, external_data_dir)
    try:
        converted = convert_float_to_float16(model, keep_io_types=True, disable_shape_infer=True)
    except Exception as error:  # noqa: BLE001 - whatever the converter stumbles over
        raise WorkerError("unsupported", f"[onnx] {path}: ONNX Runtime's converter to float16 fails: {error}") from None
    _write(onnx, converted, target, None, 1024, True)


def save_onnx(
    server: Any, path: str, target: str, model: Optional[np.ndarray] = None, external_data_dir: str = "",
    external_data: Optional[str] = None, size_threshold: int = 1024, one_file: bool = True, shape_inference: bool = False,
    ignore_external_data: bool = False,
) -> None:
    """Writes a model by path (or by bytes; then `path` is where it came from) to `target`.

    `external_data`: a file name for the weights beside it, empty for one of the target's; none: weights are part of the model.
    """
    onnx = package("onnx", "for --save-onnx")
    loaded = _load(onnx, path, model, external_data_dir, ignore_external_data)
    if shape_inference:
        loaded = _with_shapes(onnx, loaded, path)
    _write(onnx, loaded, target, external_data, size_threshold, one_file)


def _with_shapes(onnx: Any, model: Any, path: str) -> Any:
    try:
        return onnx.shape_inference.infer_shapes(model)
    except Exception as error:  # noqa: BLE001 - whatever inference stumbles over, models of more than 2 GiB too
        raise WorkerError("unsupported", f"[onnx] {path}: shapes cannot be inferred: {error}; try without --shape-inference") from None


def _write(onnx: Any, model: Any, target: str, external_data: Optional[str], size_threshold: int, one_file: bool) -> None:
    folder = os.path.dirname(os.path.abspath(target))
    if external_data is not None and os.path.dirname(external_data):
        raise WorkerError("invalid_argument", f"[onnx] --save-external-data: expected a file name (it lies beside the model), got '{external_data}'")
    temporary = ""
    try:
        os.makedirs(folder, exist_ok=True)
        # Written into a folder of its own, then moved: others see whole files, the weights before the model.
        temporary = tempfile.mkdtemp(prefix=".ulpscope-", dir=folder)
        written = os.path.join(temporary, os.path.basename(target))
        if external_data is None:
            onnx.save_model(model, written)
        else:
            location = external_data or os.path.basename(target) + ".data"
            onnx.save_model(
                model, written, save_as_external_data=True, all_tensors_to_one_file=one_file, location=location if one_file else None,
                size_threshold=size_threshold, convert_attribute=False,
            )
        for name in sorted(os.listdir(temporary), key=lambda name: name == os.path.basename(target)):
            os.replace(os.path.join(temporary, name), os.path.join(folder, name))
    except OSError as error:
        raise WorkerError("io", f"[onnx] {target}: cannot be written: {error.strerror or error}") from None
    except ValueError as error:  # protobuf: larger than 2 GiB
        raise WorkerError("unsupported", f"[onnx] {target}: cannot be written: {error}; try --save-external-data") from None
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
