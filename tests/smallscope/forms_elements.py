"""Forms of products that may run on elements of few bits: sums are multiples of 32, and there are enough columns.

They meet others in stages of their own, on shapes that suit them."""

from __future__ import annotations

from typing import Callable

import ml_dtypes
import numpy as np

from .site import Site
from .table import add

BLOCK = 32
COLUMNS = 18  #: fp8 wants 16; two codes are a byte.


def _need_blocks(s: Site, x: str, axis: int = -1) -> None:
    s.need(s.rank(x) >= 2 and s.shape(x)[axis] % BLOCK == 0 and 0 not in s.shape(x))


def _matmul(constant: bool, transposed: bool = False) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        _need_blocks(s, x)
        depth, lead = s.shape(x)[-1], [] if constant else list(s.shape(x)[:-2])
        other = s.given([*lead, COLUMNS, depth] if transposed else [*lead, depth, COLUMNS], constant)
        if transposed:
            order = list(range(len(lead)))
            other = s.node("Transpose", [other], perm=[*order, len(lead) + 1, len(lead)])
        return s.node("MatMul", [x, other])

    return build


def _gemm(trans_b: int) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        _need_blocks(s, x)
        s.need(s.rank(x) == 2)
        depth = s.shape(x)[-1]
        weights = s.weights([COLUMNS, depth] if trans_b else [depth, COLUMNS])
        return s.node("Gemm", [x, weights, s.weights([COLUMNS])], transB=trans_b or None)

    return build


def _square(s: Site, x: str) -> str:
    """A product behind which another one fits, with a bias between."""
    _need_blocks(s, x)
    depth = s.shape(x)[-1]
    return s.node("Add", [s.node("MatMul", [x, s.weights([depth, BLOCK])]), s.weights([BLOCK])])


def _second(s: Site, x: str) -> str:
    """x is the right operand, whose blocks lie along its rows."""
    _need_blocks(s, x, -2)
    s.need(s.shape(x)[-1] >= 16)
    return s.node("MatMul", [s.input([*s.shape(x)[:-2], 5, s.shape(x)[-2]]), x])


def _conv(s: Site, x: str) -> str:
    s.need(s.rank(x) == 4 and s.shape(x)[1] == BLOCK and 0 not in s.shape(x))
    return s.node("Conv", [x, s.weights([COLUMNS, BLOCK, 3, 3]), s.weights([COLUMNS])], pads=[1, 1, 1, 1])


def _stored(element: type, scales: int) -> Callable[[Site, str], str]:
    """Weights that the file has as elements, behind a DequantizeLinear."""

    def build(s: Site, x: str) -> str:
        _need_blocks(s, x)
        s.need(s.opset >= (13 if element is np.int8 else 19))
        codes = s.numbers([s.shape(x)[-1], COLUMNS]) * 20
        stored = s.constant((np.rint(codes) if element is np.int8 else codes).clip(-127, 127).astype(element))
        scale = s.constant(s.rng.uniform(0.01, 0.1, [scales] if scales else []).astype(np.float32))
        return s.node("MatMul", [x, s.node("DequantizeLinear", [stored, scale], axis=1 if scales else None)])

    return build


add("MatMul of int8 of the file", _stored(np.int8, 0), "elements")
add("MatMul of fp8 of the file", _stored(ml_dtypes.float8_e4m3fn, 0), "elements")
add("MatMul of fp8 of the file per channel", _stored(ml_dtypes.float8_e4m3fn, COLUMNS), "elements")
add("MatMul of int8 of the file per channel", _stored(np.int8, COLUMNS), "elements")
add("MatMul of elements", _matmul(True), "elements")
add("MatMul of elements transposed", _matmul(True, True), "elements")
add("MatMul of elements given", _matmul(False), "elements")
add("MatMul of elements given transposed", _matmul(False, True), "elements")
add("MatMul of elements and a bias", _square, "elements")
add("MatMul of elements as the second", _second, "elements")
add("Gemm of elements", _gemm(0), "elements")
add("Gemm of elements transB", _gemm(1), "elements")
add("Conv of elements", _conv, "elements")
