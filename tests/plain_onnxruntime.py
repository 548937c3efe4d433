"""ONNX Runtime as a judge of integers."""

from __future__ import annotations

import onnxruntime


def plain_session(model) -> onnxruntime.InferenceSession:
    """Of a path or bytes; carries each node out as the standard defines it. Its fusions make kernels of 8-bit integers
    of products between Q/DQ pairs, and these add two products in 16 bits, which saturate, on processors without
    VNNI."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
