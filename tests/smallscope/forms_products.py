"""Forms of products: MatMul, Gemm, Einsum with constant, computed, batched, transposed and 1-D operands."""

from __future__ import annotations

from typing import Callable, Optional

import numpy as np

from .site import Site
from .table import MICROSOFT, add, add_merge

WIDTHS = {"": 3, " to 1": 1, " to 17": 17}


def _right(
    width: int, constant: bool, batch: Optional[str] = None, transposed: bool = False
) -> Callable[[Site, str], str]:
    """x times a matrix; `batch`: the matrix has x's batch, or one more dimension, or ones."""

    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= (3 if batch == "same" else 2 if batch is None and transposed else 1))
        depth, lead = s.shape(x)[-1], []
        if batch == "same":
            lead = list(s.shape(x)[:-2])
        elif batch == "more":
            s.need(s.rank(x) <= 4)
            lead = [2, *([1] * max(0, s.rank(x) - 2))]
        elif batch == "ones":
            lead = [1]
        shape = [*lead, width, depth] if transposed else [*lead, depth, width]
        other = s.given(shape, constant)
        if transposed:
            order = list(range(len(shape)))
            other = s.node("Transpose", [other], perm=[*order[:-2], order[-1], order[-2]])
        return s.node("MatMul", [x, other])

    return build


def _left(height: int, constant: bool, batch: Optional[str] = None) -> Callable[[Site, str], str]:
    """A matrix times x."""

    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= (3 if batch == "same" else 2))
        lead = list(s.shape(x)[:-2]) if batch == "same" else [2] * (batch == "more")
        s.need(batch != "more" or s.rank(x) in (2, 3) and (s.rank(x) == 2 or s.shape(x)[0] in (1, 2)))
        return s.node("MatMul", [s.given([*lead, height, s.shape(x)[-2]], constant), x])

    return build


for _suffix, _width in WIDTHS.items():
    add(f"MatMul{_suffix}", _right(_width, True), "product", *["core"] * (_width != 1))
    add(f"MatMul given{_suffix}", _right(_width, False), "product", *["core"] * (_width == 3))
add("MatMul transposed", _right(3, True, transposed=True), "product")
add("MatMul given transposed", _right(5, False, transposed=True), "core", "product")
for _constant in (True, False):
    _what = "" if _constant else " given"
    for _batch in ("same", "more", "ones"):
        add(f"MatMul batch {_batch}{_what}", _right(3, _constant, _batch), "product", *["core"] * (_batch == "same"))
        add(f"MatMul batch {_batch}{_what} transposed", _right(4, _constant, _batch, True), "product")
    add(f"MatMul from the left{_what}", _left(4, _constant), "product", *["core"] * _constant)
    add(f"MatMul batch from the left{_what}", _left(3, _constant, "same"), "product")
    add(f"MatMul more from the left{_what}", _left(2, _constant, "more"), "product")


def _vector(constant: bool, left: bool) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= (2 if left else 1))
        other = s.given([s.shape(x)[-2 if left else -1]], constant)
        return s.node("MatMul", [other, x] if left else [x, other])

    return build


add("MatMul vector", _vector(True, False), "core", "product")
add("MatMul given vector", _vector(False, False), "product")
add("MatMul vector from the left", _vector(True, True), "product")
add("MatMul given vector from the left", _vector(False, True), "product")


def _gram(right: bool) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 2)
        order = list(range(s.rank(x)))
        turned = s.node("Transpose", [x], perm=[*order[:-2], order[-1], order[-2]])
        return s.node("MatMul", [x, turned] if right else [turned, x])

    return build


add("MatMul by its transpose", _gram(True), "product")
add("MatMul of its transpose", _gram(False), "product")


def _gemm(
    trans_a: int = 0, trans_b: int = 0, bias: str = "", constant: bool = True, **attributes
) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) == 2)
        rows, depth = s.shape(x)[::-1] if trans_a else s.shape(x)
        inputs = [x, s.given([5, depth] if trans_b else [depth, 5], constant)]
        shapes = {
            "row": [5],
            "scalar": [],
            "one": [1],
            "column": [rows, 1],
            "full": [rows, 5],
            "given": [5],
            "flat": [1, 5],
        }
        if bias:
            inputs.append(s.given(shapes[bias], bias != "given"))
        return s.node("Gemm", inputs, transA=trans_a or None, transB=trans_b or None, **attributes)

    return build


add("Gemm", _gemm(bias="row"), "core", "product")
add("Gemm transB", _gemm(trans_b=1, bias="row"), "product")
add("Gemm transA", _gemm(trans_a=1), "product")
add("Gemm transA transB given", _gemm(1, 1, "given", False), "product")
add("Gemm given", _gemm(bias="row", constant=False), "product")
add("Gemm alpha beta", _gemm(bias="full", alpha=0.37, beta=1.7), "product")
add("Gemm beta 0", _gemm(bias="row", beta=0.0), "product")
for _bias in ("scalar", "one", "column", "flat", "given"):
    add(f"Gemm bias {_bias}", _gemm(bias=_bias), "product")


def _gemm_as_second(s: Site, x: str) -> str:
    s.need(s.rank(x) == 2)
    return s.node("Gemm", [s.weights([4, s.shape(x)[0]]), x, s.weights([s.shape(x)[1]])])


def _gemm_as_bias(s: Site, x: str) -> str:
    s.need(s.rank(x) == 2)
    return s.node("Gemm", [s.input([s.shape(x)[0], 3]), s.weights([3, s.shape(x)[1]]), x])


add("Gemm as the second", _gemm_as_second, "product")
add("Gemm as the bias", _gemm_as_bias, "product")


def _einsum(
    equation: str, rank: int, shape: Callable[[tuple], list], constant: bool = True
) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) == rank and s.values[x].v.size)
        return s.node("Einsum", [x, s.given(shape(s.shape(x)), constant)], equation=equation)

    return build


add("Einsum ij,jk", _einsum("ij,jk->ik", 2, lambda n: [n[1], 4]), "product")
add("Einsum ij,ij", _einsum("ij,ij->i", 2, lambda n: list(n), False), "product")
add("Einsum bij,bkj", _einsum("bij,bkj->bik", 3, lambda n: [n[0], 4, n[2]], False), "product")
add("Einsum bij,jk", _einsum("bij,jk->bki", 3, lambda n: [n[2], 4]), "product")
add("Einsum bhid,bhjd", _einsum("bhid,bhjd->bhij", 4, lambda n: [n[0], n[1], 5, n[3]]), "product")


def _fused(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 2)
    other = s.weights([4, s.shape(x)[-1]])
    return s.node("FusedMatMul", [x, other], domain=MICROSOFT, transB=1, alpha=0.37)


add("FusedMatMul", _fused, "product")


# Attention ahead and behind, in one piece.


def _attention(s: Site, x: str) -> str:
    """x is queries; keys and values are inputs."""
    s.need(s.rank(x) >= 2 and s.rank(x) <= 4 and s.values[x].v.size)
    *lead, _, depth = s.shape(x)
    scores = s.node("MatMul", [x, s.input([*lead, depth, 5])])
    scaled = s.node("Mul", [scores, s.constant(np.float32(0.37))])
    weights = s.node("Softmax", [scaled], axis=s.rank(x) - 1)
    return s.node("MatMul", [weights, s.input([*lead, 5, 3])])


add("Attention written out", _attention, "product")


def _product(transposed: bool) -> Callable[[Site, str, str], str]:
    def build(s: Site, x: str, y: str) -> str:
        s.need(s.rank(y) >= 2 or not transposed)
        if transposed:
            order = list(range(s.rank(y)))
            y = s.node("Transpose", [y], perm=[*order[:-2], order[-1], order[-2]])
        s.need(s.rank(x) >= 1 and s.rank(y) >= 1)
        return s.node("MatMul", [x, y])

    return build


add_merge("MatMul", _product(False))
add_merge("MatMul by the transpose", _product(True))
