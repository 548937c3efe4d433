"""Numbers of fp8, int4, NVFP4, MXFP8 and MXFP4, as docs/numerics.md ("fp8 and formats of blocks") has them."""

from __future__ import annotations

from typing import Callable, Tuple

import ml_dtypes
import numpy as np

E4M3, E2M1, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e8m0fnu

#: Blocks along the last axis to the values that they stand for.
Encode = Callable[[np.ndarray], np.ndarray]


def rounded(values: np.ndarray, type_: type) -> np.ndarray:
    """To the nearest element, saturating."""
    limit = np.float32(ml_dtypes.finfo(type_).max)
    return np.clip(values, -limit, limit).astype(type_).astype(np.float32)


def by_tensor(values: np.ndarray, largest: float) -> Tuple[np.ndarray, np.float32]:
    """fp8: elements, and their scale."""
    scale = np.float32(largest) / np.float32(448)
    return rounded(values / scale, E4M3), scale


def in_blocks(values: np.ndarray, axis: int, block: int, encode: Encode) -> np.ndarray:
    """What blocks of an axis stand for."""
    moved = np.moveaxis(values, axis, -1)
    made = encode(moved.reshape(*moved.shape[:-1], -1, block)).reshape(moved.shape)
    return np.ascontiguousarray(np.moveaxis(made, -1, axis))


def mx(type_: type) -> Encode:
    """Scales that are powers of two."""

    def encode(blocks: np.ndarray) -> np.ndarray:
        largest = np.abs(blocks).max(-1, keepdims=True)
        with np.errstate(divide="ignore"):
            exponent = np.ceil(np.log2((largest / np.float32(ml_dtypes.finfo(type_).max)).astype(np.float64)))
        scale = np.exp2(np.clip(exponent, -127, 127)).astype(np.float32)
        return rounded(blocks / scale, type_) * scale

    return encode


def nvfp4(second: np.float32) -> Encode:
    """Scales in E4M3 under one of the tensor."""

    def encode(blocks: np.ndarray) -> np.ndarray:
        largest = np.abs(blocks).max(-1, keepdims=True)
        scale = rounded(largest / (np.float32(6) * second), E4M3)
        scale[largest == 0] = 1
        scale = scale * second
        return rounded(blocks / scale, E2M1) * scale

    return encode


def second_scale(largest: float) -> np.float32:
    """That of NVFP4."""
    return np.float32(largest) / np.float32(6 * 448)


def int4(number: type) -> Encode:
    """Scales of two bytes: of the type of the activations, or float16 beside float32."""
    scale_type = np.float16 if number is np.float32 else number

    def encode(blocks: np.ndarray) -> np.ndarray:
        scale = np.maximum(np.abs(blocks).max(-1, keepdims=True) / np.float32(7), np.float32(1e-5))
        scale = scale.astype(scale_type).astype(np.float32)
        return np.clip(np.rint(blocks / scale), -8, 7) * scale

    return encode


def _channel_scales(w: np.ndarray, axis: int, largest: float) -> np.ndarray:
    """1 for a channel of zeros."""
    scale = np.abs(w).max(tuple(d for d in range(w.ndim) if d != axis), keepdims=True) / np.float32(largest)
    return np.where(scale < 2.0**-100, np.float32(1), scale)


def fp8_channels(w: np.ndarray, axis: int) -> np.ndarray:
    """One scale for each index of an axis; where that has few weights each of about one size, one for all."""
    scale = _channel_scales(w, axis, 448)
    largest = np.abs(w).max(tuple(d for d in range(w.ndim) if d != axis))
    if w.size // w.shape[axis] < 54 and (largest[largest > 0] * np.float32(1024) >= largest.max()).all():
        scale = _channel_scales(w.reshape(1, -1), 0, 448).reshape(())
    return rounded(w / scale, E4M3) * scale


def int8_channels(w: np.ndarray, axis: int) -> np.ndarray:
    """The same in int8."""
    scale = _channel_scales(w, axis, 127)
    return np.rint(w / scale) * scale
