"""Resize and Upsample: one matrix of weights per dimension."""

from __future__ import annotations

import numpy as np

from .model import Node
from .operators_movement import Inputs
from .rounding import EPSILON
from .values import Unsupported, Value, result


def _source(node: Node, i: np.ndarray, size: int, out: int, scale: float) -> np.ndarray:
    """The position in the input that output `i` comes from."""
    mode = (
        node.get("coordinate_transformation_mode", "half_pixel")
        if node.op == "Resize" and node.opset >= 11
        else "asymmetric"
    )
    if mode == "half_pixel":
        return (i + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (i + 0.5) / scale - 0.5 if out > 1 else np.zeros_like(i)
    if mode == "align_corners":
        # The scaled length, which need not be whole: as ONNX's reference has it. But 7 / 3 in float32 means seven thirds.
        length = out if abs(scale * size - out) <= 1e-6 * out else scale * size
        return i * (size - 1) / (length - 1) if length != 1 else np.zeros_like(i)
    if mode == "asymmetric":
        return i / scale
    if mode == "half_pixel_symmetric":
        adjustment = out / (scale * size)
        return size / 2 * (1 - adjustment) + (i + 0.5) / scale - 0.5
    raise Unsupported(f"Resize {mode}")


def _nearest(node: Node, at: np.ndarray) -> np.ndarray:
    how = node.get("nearest_mode", "round_prefer_floor") if node.op == "Resize" and node.opset >= 11 else "floor"
    at = np.round(at, 9)
    if how == "round_prefer_floor":
        return np.ceil(at - 0.5)
    if how == "round_prefer_ceil":
        return np.floor(at + 0.5)
    return np.floor(at) if how == "floor" else np.ceil(at)


def _weights(node: Node, mode: str, size: int, out: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """The weights, and how much each may be off, in 64 units of float32's rounding: positions in float32 move them."""
    at = _source(node, np.arange(out, dtype=np.float64), size, out, scale)
    matrix = np.zeros((out, size))
    rows = np.arange(out)
    if mode == "nearest":
        matrix[rows, np.clip(_nearest(node, at), 0, size - 1).astype(int)] = 1
        return matrix, np.zeros_like(matrix)
    if node.get("antialias", 0) or node.get("exclude_outside", 0):
        raise Unsupported("Resize with antialias or exclude_outside")
    low = np.floor(at)
    part = at - low
    if mode == "linear":
        taps = {0: 1 - part, 1: part}
    else:
        a = node.get("cubic_coeff_a", -0.75)
        near = lambda t: ((a + 2) * t - (a + 3)) * t * t + 1
        far = lambda t: ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        taps = {-1: far(1 + part), 0: near(part), 1: near(1 - part), 2: far(2 - part)}
    off = np.zeros_like(matrix)
    for offset, weight in taps.items():
        index = (rows, np.clip(low + offset, 0, size - 1).astype(int))
        np.add.at(matrix, index, weight)
        np.add.at(off, index, np.abs(weight) + 0.125 + np.abs(at) / 16)
    return matrix, off


def resize(node: Node, x: Inputs) -> Value:
    data, mode = x[0], node.get("mode", "nearest")
    if mode not in ("nearest", "linear", "cubic") or not data.is_float:
        raise Unsupported(f"Resize {mode}")
    scales_at = 2 if node.op == "Resize" and node.opset >= 11 else 1
    scales = x[scales_at] if len(x) > scales_at else None
    if scales is None and node.get("scales") is not None:
        scales = Value(np.asarray(node.get("scales"), np.float64), data.type)
    sizes = x[3] if len(x) > 3 else None
    axes = node.get("axes") or list(range(len(data.shape)))
    if node.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Unsupported("Resize with keep_aspect_ratio_policy")
    y, e, magnitude, exact = data.v, data.e, np.abs(data.v), True
    for i, axis in enumerate(axes):
        axis = axis + len(data.shape) if axis < 0 else axis
        size = data.shape[axis]
        if scales is not None and scales.v.size:
            scale = float(scales.v[i])
            out = int(np.floor(np.float32(size) * np.float32(scale)))
        else:
            out = int(sizes.v[i])
            scale = out / size
        if out == size and scale == 1:
            continue
        matrix, off = _weights(node, mode, size, out, scale)
        exact = exact and mode == "nearest"
        apply = lambda v, m: np.moveaxis(np.tensordot(m, v, (1, axis)), 0, axis)  # noqa: B023
        if mode == "nearest":
            index = np.argmax(matrix, 1)
            apply = lambda v, m: np.take(v, index, axis)  # noqa: B023
        y, magnitude = apply(y, matrix), apply(magnitude, np.abs(matrix) if mode == "nearest" else off)
        e = None if e is None else apply(e, np.abs(matrix))
    return result(y, data.type, e, None if exact else 64 * EPSILON * magnitude)
