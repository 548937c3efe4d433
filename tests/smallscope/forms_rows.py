"""Forms of layers that work over rows: reductions, softmax, normalizations."""

from __future__ import annotations

from typing import Callable, List, Optional

import numpy as np

from .site import Site
from .table import MICROSOFT, add

REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare", "ReduceProd", "ReduceL1",
    "ReduceLogSum", "ReduceLogSumExp",
)  # fmt: skip
AXES = ("last", "first", "middle", "last two", "behind the first two", "all", "none")


def axes_of(s: Site, rank: int, which: str) -> Optional[List[int]]:
    """Such axes, counted from the front; None: they are not given."""
    s.need(rank >= {"last": 1, "first": 2, "middle": 3, "last two": 3, "behind the first two": 4}.get(which, 0))
    return {
        "last": [rank - 1],
        "first": [0],
        "middle": [rank // 2],
        "last two": [rank - 2, rank - 1],
        "behind the first two": list(range(2, rank)),
        "all": list(range(rank)),
    }.get(which)


def _reduce(op: str, which: str, keep: int) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        axes = axes_of(s, s.rank(x), which)
        s.need(which != "all" or s.rank(x) >= 2)
        if axes is None:
            return s.node(op, [x], keepdims=keep)
        if s.opset >= (13 if op == "ReduceSum" else 18):
            return s.node(op, [x, s.ints(*axes)], keepdims=keep)
        return s.node(op, [x], axes=axes, keepdims=keep)

    return build


for _op in REDUCTIONS:
    for _which in AXES:
        for _keep in (0, 1):
            if _op in REDUCTIONS[5:] and (_which not in ("last", "first", "none") or _keep == 0):
                continue
            _core = _op in ("ReduceSum", "ReduceMean", "ReduceMax") and (
                _which in ("last", "none") if _op == "ReduceMean" else _which == "last" and _keep == 1
            )
            add(f"{_op} {_which}, keepdims {_keep}", _reduce(_op, _which, _keep), "row", *["core"] * _core)


def _arg(op: str) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 1 and 0 not in s.shape(x))
        return s.node("Cast", [s.node(op, [x], axis=s.rank(x) - 1)], to=1)

    return build


add("ArgMax", _arg("ArgMax"))
add("ArgMin", _arg("ArgMin"))


def _along(op: str, axis: str, domain: str = "", **attributes) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        axes = axes_of(s, s.rank(x), axis)
        return s.node(op, [x], domain=domain, axis=axes[0], **attributes)

    return build


for _op in ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization"):
    for _axis in ("last", "first", "middle"):
        _core = _op == "Softmax" and _axis != "middle" or (_op == "LogSoftmax" and _axis == "last")
        _tags = ["norm"] if _op == "LpNormalization" else []
        add(f"{_op} {_axis}", _along(_op, _axis), "row", *_tags, *["core"] * _core)


def _normalized(op: str, which: str, bias: bool, constant: bool = True, **attributes) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        axes = axes_of(s, s.rank(x), which)
        shape = s.shape(x)[axes[0] :]
        inputs = [x, s.given(shape, constant)] + ([s.given(shape, constant)] if bias else [])
        return s.node(op, inputs, axis=axes[0], **attributes)

    return build


add("LayerNormalization", _normalized("LayerNormalization", "last", True), "core", "row", "norm")
add("LayerNormalization without bias", _normalized("LayerNormalization", "last", False), "row", "norm")
add("LayerNormalization given", _normalized("LayerNormalization", "last", True, False), "row", "norm")
add("LayerNormalization last two", _normalized("LayerNormalization", "last two", True, epsilon=0.01), "row", "norm")
add("LayerNormalization all", _normalized("LayerNormalization", "first", True), "row", "norm")
add("RMSNormalization", _normalized("RMSNormalization", "last", False), "core", "row", "norm")
add("RMSNormalization given", _normalized("RMSNormalization", "last", False, False), "row", "norm")
add("RMSNormalization last two", _normalized("RMSNormalization", "last two", False), "row", "norm")
add("SimplifiedLayerNormalization", _normalized("SimplifiedLayerNormalization", "last", False), "row", "norm")


def _skip(op: str, bias: bool, row: bool) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) == 3)
        shape = s.shape(x)
        skip = s.input(shape)
        inputs = [x, skip, s.weights(shape[-1:])]
        if op == "SkipLayerNormalization":
            inputs.append(s.weights(shape[-1:]) if bias else "")
        inputs.append(s.weights(shape[-1:]) if row else "")
        return s.node(op, inputs, domain=MICROSOFT)

    return build


add("SkipLayerNormalization", _skip("SkipLayerNormalization", True, False), "norm")
add("SkipLayerNormalization with a row", _skip("SkipLayerNormalization", True, True), "norm")
add("SkipSimplifiedLayerNormalization", _skip("SkipSimplifiedLayerNormalization", False, True), "norm")


def _per_channel(op: str, constant: bool = True, **attributes) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 3)
        channels = [s.shape(x)[1]]
        return s.node(op, [x, s.given(channels, constant), s.given(channels, constant)], **attributes)

    return build


add("InstanceNormalization", _per_channel("InstanceNormalization"), "core", "row", "norm")
add("InstanceNormalization given", _per_channel("InstanceNormalization", False), "row", "norm")


def _group_norm(groups: int) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 3 and s.shape(x)[1] > 0 and s.shape(x)[1] % groups == 0)
        s.need(s.opset >= 18)
        size = [s.shape(x)[1] if s.opset >= 21 else groups]
        return s.node("GroupNormalization", [x, s.weights(size), s.weights(size)], num_groups=groups)

    return build


add("GroupNormalization of one", _group_norm(1), "core", "norm")
add("GroupNormalization of two", _group_norm(2), "norm")
add("GroupNormalization of three", _group_norm(3), "norm")


def _batch_norm(constant: bool, epsilon: Optional[float] = None) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 2)
        channels = [s.shape(x)[1]]
        kinds = ("normal", "normal", "normal", "positive")
        return s.node("BatchNormalization", [x, *(s.given(channels, constant, k) for k in kinds)], epsilon=epsilon)

    return build


add("BatchNormalization", _batch_norm(True), "core", "point", "norm")
add("BatchNormalization given", _batch_norm(False, 0.001), "norm")


def _lrn(size: int) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 3)
        return s.node("LRN", [x], size=size, alpha=0.3, beta=0.6)

    return build


add("LRN", _lrn(3), "norm")
add("LRN even", _lrn(2), "norm")


def _mean_variance(axes: Optional[List[int]]) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) == 4 if axes is None else s.rank(x) > max(axes))
        return s.node("MeanVarianceNormalization", [x], axes=axes)

    return build


add("MeanVarianceNormalization", _mean_variance(None), "norm")
add("MeanVarianceNormalization first", _mean_variance([0]), "norm")


def _cumulative(which: str, **attributes) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        axis = axes_of(s, s.rank(x), which)[0]
        return s.node("CumSum", [x, s.constant(np.int64(axis))], **attributes)

    return build


add("CumSum last", _cumulative("last"))
add("CumSum first, backwards", _cumulative("first", exclusive=1, reverse=1))
