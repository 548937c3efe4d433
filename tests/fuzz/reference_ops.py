"""Operators in double that onnx.reference lacks, or has for the newest opset only."""

from __future__ import annotations

import math

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_loop, op_max_pool

from .graph import MICROSOFT


def erf(x: np.ndarray) -> np.ndarray:
    """The error function in double."""
    return np.vectorize(math.erf, otypes=[float])(x) if x.size else x


def normalized(x: np.ndarray, axes, center: bool, epsilon: float) -> np.ndarray:
    """(x - mean) / sqrt(variance + epsilon), or the same without the mean."""
    x = x - x.mean(axes, keepdims=True) if center else x
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon)


class QuickGelu(OpRun):
    op_domain = MICROSOFT

    def _run(self, x, alpha=None):
        alpha = 1.702 if alpha is None else alpha
        return (x / (1 + np.exp(-alpha * x)),)


class FastGelu(OpRun):
    op_domain = MICROSOFT

    def _run(self, x, bias=None):
        x = x if bias is None else x + bias
        return (0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),)


class BiasGelu(OpRun):
    op_domain = MICROSOFT

    def _run(self, x, bias):
        x = x + bias
        return (0.5 * x * (1 + erf(x / np.sqrt(2))),)


class SkipLayerNormalization(OpRun):
    op_domain = MICROSOFT

    def _run(self, x, skip, gamma, beta=None, bias=None, epsilon=None):
        x = x + skip + (0 if bias is None else bias)
        return (normalized(x, -1, True, epsilon) * gamma + (0 if beta is None else beta),)


class SkipSimplifiedLayerNormalization(OpRun):
    op_domain = MICROSOFT

    def _run(self, x, skip, gamma, bias=None, epsilon=None):
        return (normalized(x + skip + (0 if bias is None else bias), -1, False, epsilon) * gamma,)


class SimplifiedLayerNormalization(OpRun):
    def _run(self, x, scale, axis=None, epsilon=None):
        axis = (-1 if axis is None else axis) % x.ndim
        epsilon = 1e-5 if epsilon is None else epsilon
        return (normalized(x, tuple(range(axis, x.ndim)), False, epsilon) * scale,)


class BatchNormalization(OpRun):
    def _run(self, x, scale, bias, mean, variance, epsilon=None, **_):
        if scale.ndim == 1:
            scale, bias, mean, variance = (p.reshape([-1] + [1] * (x.ndim - 2)) for p in (scale, bias, mean, variance))
        return ((x - mean) / np.sqrt(variance + (1e-5 if epsilon is None else epsilon)) * scale + bias,)


def _rows(op: OpRun, x: np.ndarray, axis):
    """x so that the function works over its last axis: one axis from opset 13 on, all from `axis` on before."""
    if op.run_params["opsets"][""] >= 13:
        return np.moveaxis(x, -1 if axis is None else axis, -1)
    axis = 1 if axis is None else axis
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _back(op: OpRun, y: np.ndarray, x: np.ndarray, axis) -> np.ndarray:
    if op.run_params["opsets"][""] >= 13:
        return np.moveaxis(y, -1, -1 if axis is None else axis)
    return y.reshape(x.shape)


class Softmax(OpRun):
    def _run(self, x, axis=None):
        rows = _rows(self, x, axis)
        if not rows.size:
            return (x,)
        e = np.exp(rows - rows.max(-1, keepdims=True))
        return (_back(self, e / e.sum(-1, keepdims=True), x, axis),)


class LogSoftmax(OpRun):
    def _run(self, x, axis=None):
        rows = _rows(self, x, axis)
        if not rows.size:
            return (x,)
        shifted = rows - rows.max(-1, keepdims=True)
        return (_back(self, shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)), x, axis),)


class Hardmax(OpRun):
    def _run(self, x, axis=None):
        rows = _rows(self, x, axis)
        if not rows.size:
            return (x,)
        y = np.zeros_like(rows)
        np.put_along_axis(y, rows.argmax(-1)[..., None], 1, -1)
        return (_back(self, y, x, axis),)


def _along(values: np.ndarray, x: np.ndarray, axis) -> np.ndarray:
    """Scales or zero points, ready to broadcast with x."""
    if values.size == 1:
        return values.reshape(())
    axis = (1 if axis is None else axis) % x.ndim
    return values.reshape([-1 if d == axis else 1 for d in range(x.ndim)])


class QuantizeLinear(OpRun):
    def _run(self, x, scale, zero_point=None, axis=None, **_):
        zero = np.zeros((), np.uint8) if zero_point is None else zero_point
        limits = np.iinfo(zero.dtype)
        q = np.rint(x / _along(scale, x, axis)) + _along(zero, x, axis).astype(np.float64)
        return (np.clip(np.nan_to_num(q), limits.min, limits.max).astype(zero.dtype),)


class DequantizeLinear(OpRun):
    def _run(self, x, scale, zero_point=None, axis=None, **_):
        zero = np.zeros((), x.dtype) if zero_point is None else zero_point
        return ((x.astype(np.float64) - _along(zero, x, axis).astype(np.float64)) * _along(scale, x, axis),)


def _transposed_pads(node, spatial, kernel, strides, dilations, extra):
    """Of ConvTranspose, what is cut off before and after each dimension."""
    auto_pad, pads = node["auto_pad"], node["pads"]
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        return list(zip(pads[: len(spatial)], pads[len(spatial) :]))
    result = []
    for n, k, s, d, e in zip(spatial, kernel, strides, dilations, extra):
        total = max(0, (n - 1) * s + e + (k - 1) * d + 1 - n * s)
        small, large = total // 2, total - total // 2
        result.append((small, large) if auto_pad == "SAME_UPPER" else (large, small))
    return result


class ConvTranspose(OpRun):
    """Adds up one shifted copy per tap of the kernel; onnx.reference takes minutes for three dimensions."""

    def _run(
        self, x, w, bias=None, auto_pad=None, dilations=None, group=None, kernel_shape=None, output_padding=None,
        output_shape=None, pads=None, strides=None,
    ):  # fmt: skip
        rank, group, spatial, kernel = x.ndim - 2, group or 1, x.shape[2:], w.shape[2:]
        strides, dilations = strides or [1] * rank, dilations or [1] * rank
        extra = output_padding or [0] * rank
        full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(spatial, strides, kernel, dilations)]
        y = np.zeros((x.shape[0], group, w.shape[1], *(f + e for f, e in zip(full, extra))))
        xs = x.reshape(x.shape[0], group, -1, *spatial)
        ws = w.reshape(group, -1, *w.shape[1:])
        for tap in np.ndindex(*kernel):
            part = np.einsum("ngc...,gcm->ngm...", xs, ws[(slice(None),) * 3 + tap])
            place = [slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilations, spatial, strides)]
            y[(slice(None),) * 3 + tuple(place)] += part
        node = {"auto_pad": auto_pad, "pads": pads or [0] * 2 * rank}
        cuts = _transposed_pads(node, spatial, kernel, strides, dilations, extra)
        if output_shape:
            totals = [f + e - n for f, e, n in zip(full, extra, output_shape)]
            cuts = [(t // 2, t - t // 2) if auto_pad == "SAME_UPPER" else (t - t // 2, t // 2) for t in totals]
        y = y.reshape(x.shape[0], -1, *y.shape[3:])
        y = y[(slice(None),) * 2 + tuple(slice(a, n - b) for (a, b), n in zip(cuts, y.shape[2:]))]
        return (y if bias is None else y + bias.reshape([-1] + [1] * rank),)


class GlobalLpPool(OpRun):
    def _run(self, x, p=None):
        p = 2 if p is None else p
        return ((np.abs(x) ** p).sum(tuple(range(2, x.ndim)), keepdims=True) ** (1 / p),)


class GlobalMaxPool(OpRun):
    def _run(self, x):
        return (x.max(tuple(range(2, x.ndim)), keepdims=True),)


class MaxPool(op_max_pool.MaxPool):
    """onnx.reference counts the indices of windows that move by 1 in an image of its own."""

    def _run(self, x, **attributes):
        return self._max_pool(x, **attributes) if len(self.output) > 1 else super()._run(x, **attributes)


class LpNormalization(OpRun):
    def _run(self, x, axis=None, p=None):
        p, axis = (2 if p is None else p), (-1 if axis is None else axis)
        norm = (np.abs(x) ** p).sum(axis, keepdims=True) ** (1 / p)
        return (np.where(norm == 0, 0.0, x / np.where(norm == 0, 1.0, norm)),)


class Loop(op_loop.Loop):
    """onnx.reference takes an absent condition for false, and joins scan outputs along an axis that they have."""

    def _run(self, trips, going, *values, context=None, body=None, attributes=None, **_):
        names, state = self.body.input_names, list(values)
        scans = [[] for _ in self.body.output_names[1 + len(state) :]]
        trip, going = 0, going is None or bool(going)
        while going and (trips is None or trip < trips):
            counters = {names[0]: np.array(trip), names[1]: np.array(True)}
            inputs = {**(context or {}), **counters, **dict(zip(names[2:], state))}
            outputs = self._run_body(inputs, attributes=attributes)
            going, state = bool(outputs[0]), list(outputs[1 : 1 + len(state)])
            for scan, value in zip(scans, outputs[1 + len(state) :]):
                scan.append(value)
            trip += 1
        return (*state, *(np.stack(scan) if scan else np.zeros(0) for scan in scans))


class Pad(OpRun):
    """onnx.reference takes no negative pads. With constants, what is cut may reach into the pads of the other side."""

    def _run(self, x, pads=None, value=None, axes=None, mode=None):
        value = 0.0 if value is None else value
        axes = range(x.ndim) if axes is None else [int(a) % x.ndim for a in axes]
        ends = np.zeros((x.ndim, 2), np.int64)
        for i, axis in enumerate(axes):
            ends[axis] = pads[i], pads[i + len(pads) // 2]
        width, mode = np.maximum(ends, 0), mode or "constant"
        if mode == "constant":
            x = np.pad(x, width, constant_values=np.asarray(value).reshape(()))
        x = x[tuple(slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(ends, x.shape))]
        return (x if mode == "constant" else np.pad(x, width, mode),)


OPERATORS = [value for value in list(globals().values()) if isinstance(value, type) and issubclass(value, OpRun)]
OPERATORS.remove(OpRun)
