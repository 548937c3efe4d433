"""Recipes of reductions, softmax, normalization, and of both written out."""

from __future__ import annotations

import numpy as np

from .builder import Builder
from .graph import MICROSOFT
from .recipes import IMAGE, SEQUENCE, axes_inputs, axes_of_reduction, axis_of, operand, recipe, scalar, signed

PLAIN = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare")
OTHER = ("ReduceLogSum", "ReduceLogSumExp", "ReduceProd")


def reduced(b: Builder, op: str, x: str, axes, keepdims, noop=None) -> str:
    """A reduction with its axes in the form of the opset. axes None: absent."""
    since = 13 if op == "ReduceSum" else 18
    inputs, attributes = ([], {}) if axes is None else axes_inputs(b, axes_of_reduction(b, x, axes), since)
    if noop is not None and b.opset >= since:
        attributes["noop_with_empty_axes"] = noop
    return b.node(op, [x, *inputs], keepdims=keepdims, **attributes)


def some_axes(b: Builder, rank: int):
    """Which axes, None: absent. Mostly the innermost ones, which are the fast path's."""
    form = b.rng.random()
    if form < 0.12:
        return None
    if form < 0.65:
        axes = list(range(rank - b.integer(1, max(1, rank - 1)), rank))
    else:
        axes = [axis for axis in range(rank) if b.chance(0.5)] or [b.integer(0, rank - 1)]
    if b.chance(0.2):
        b.rng.shuffle(axes)
    return signed(b, [int(a) for a in axes], rank)


@recipe(6)
def reduction(b: Builder) -> None:
    op = b.choice(PLAIN if b.chance(0.85) else OTHER)
    x = b.pick_rank(1)
    if op == "ReduceLogSum":
        x = b.node("Add", [b.node("Abs", [x]), scalar(b, 0.5)])
    keepdims, noop = b.choice([None, 0, 1, 0]), b.choice([None, None, 0, 1])
    axes = some_axes(b, b.rank(x))
    if b.opset >= 13 and b.chance(0.06):
        axes = []
    result = reduced(b, op, x, axes, keepdims, noop)
    follow = b.rng.random()
    if follow < 0.45:  # Beside its own source, with whatever broadcast that is.
        other = b.choice(["Sub", "Add", "Mul", "Max"])
        b.node(other, [x, result] if b.chance(0.6) else [result, x])
    elif follow < 0.6:
        y = b.node(b.choice(["Relu", "Neg", "Tanh", "Abs"]), [result])
        b.node("Mul", [x, y])


@recipe(1.5)
def reduce_of_chain(b: Builder) -> None:
    """Pointwise layers, a reduction without its dimensions, and more pointwise layers with the values before."""
    x = b.pick_rank(1, 4)
    y = b.node(b.choice(["Mul", "Add", "Sub"]), [x, operand(b, x)])
    b.need(b.rank(y) >= 1)
    z = reduced(b, b.choice(PLAIN), y, [b.rank(y) - 1], b.choice([0, 0, 1]))
    w = b.node(b.choice(["Add", "Mul"]), [z, operand(b, z)])
    if b.chance(0.6):
        b.node(b.choice(["Sub", "Mul", "Add"]), [y, w])


@recipe(3)
def softmax(b: Builder) -> None:
    x = b.pick_rank(1)
    rank = b.rank(x)
    axis = None
    if b.chance(0.75):
        axis = -1 if b.chance(0.4) and b.opset >= 11 else axis_of(b, rank)
        axis = axis + rank if axis < 0 and b.opset < 11 else axis
    if b.chance(0.3):
        x = b.node("Mul", [x, scalar(b, b.choice([8.0, 0.125, 30.0]))])
    # Where the largest value is not a number, each has a Hardmax of its own.
    names = ["Softmax", "Softmax", "LogSoftmax"] + ["Hardmax"] * (not b.special)
    b.node(b.choice(names), [x], axis=axis)


@recipe(7, (SEQUENCE,))
def layer_normalization(b: Builder) -> None:
    op = b.choice(["LayerNormalization", "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"])
    x = b.pick_rank(1)
    rank = b.rank(x)
    axis = -1 if b.chance(0.6) else axis_of(b, rank)
    dims = b.dims(x)[axis:]
    inputs = [x, operand(b, x, dims)]
    if op == "LayerNormalization" and b.chance(0.7):
        inputs.append(operand(b, x, dims))
    b.node(op, inputs, axis=None if axis == -1 and b.chance(0.5) else axis, epsilon=b.choice([None, 1e-3, 1e-12]))


@recipe(2, (SEQUENCE,))
def skip_normalization(b: Builder) -> None:
    x = b.pick_rank(3, 3)
    width = [b.dims(x)[-1]]
    skip = operand(b, x, b.dims(x))
    if b.chance(0.6):
        parameters = [operand(b, x, width) for _ in range(b.integer(1, 3))]
        b.node("SkipLayerNormalization", [x, skip, *parameters], domain=MICROSOFT, epsilon=1e-5)
    else:
        parameters = [operand(b, x, width) for _ in range(b.integer(1, 2))]
        b.node("SkipSimplifiedLayerNormalization", [x, skip, *parameters], domain=MICROSOFT, epsilon=1e-5)


@recipe(4, (IMAGE,))
def instance_normalization(b: Builder) -> None:
    x = b.pick_rank(3, 5)
    channels = [b.dims(x)[1]]
    if b.chance(0.7):
        b.node("InstanceNormalization", [x, operand(b, x, channels), operand(b, x, channels)], epsilon=1e-4)
        return
    count = channels[0][0]
    groups = b.choice([g for g in range(1, count + 1) if count % g == 0])
    size = [groups] if b.opset < 21 else channels
    b.node("GroupNormalization", [x, operand(b, x, size), operand(b, x, size)], num_groups=groups)


@recipe(1)
def other_normalization(b: Builder) -> None:
    x = b.pick_rank(2)
    op = b.choice(["LpNormalization", "MeanVarianceNormalization", "LRN", "CumSum", "GlobalLpPool"])
    if op == "LpNormalization":
        b.node(op, [x], axis=axis_of(b, b.rank(x)), p=b.choice([1, 2]))
    elif op == "MeanVarianceNormalization":
        b.need(b.rank(x) == 4 and all(v.var((0, 2, 3)).min(initial=1) > 0.01 for v in b.values[x]))
        b.node(op, [x])
    elif op == "LRN":
        b.need(b.rank(x) == 4)
        b.node(op, [x], size=b.choice([3, 5, 7]), alpha=0.01, bias=1.0)
    elif op == "CumSum":
        axis = b.constant(np.int64(axis_of(b, b.rank(x))))
        b.node(op, [x, axis], exclusive=b.choice([None, 1]), reverse=b.choice([None, 1]))
    else:
        b.need(b.rank(x) >= 3)
        b.node(op, [x], p=b.choice([1, 2]))


@recipe(1)
def extremes(b: Builder) -> None:
    b.need(not b.special)
    x = b.pick_rank(1)
    rank = b.rank(x)
    b.need(all(v.size for v in b.values[x]))
    axis = axis_of(b, rank) if b.opset >= 11 else b.integer(0, rank - 1)
    if b.chance(0.5):
        b.node(b.choice(["ArgMax", "ArgMin"]), [x], axis=axis, keepdims=b.choice([None, 0, 1]))
        return
    size = min(b.dims(x)[axis])
    b.need(size >= 1)
    k = b.integer(1, size)
    if b.opset < 10:
        b.node("TopK", [x], outputs=2, axis=axis, k=k)
    else:
        largest = b.choice([None, 0, 1]) if b.opset >= 11 else None
        b.node("TopK", [x, b.ints(k)], outputs=2, axis=axis, largest=largest)


@recipe(2, (SEQUENCE,))
def written_out_normalization(b: Builder) -> None:
    """LayerNorm or RMSNorm of single layers, or a softmax; keepdims left out where a later Unsqueeze mends it."""
    x = b.pick_rank(1)
    last = [-1] if b.opset >= 11 else [b.rank(x) - 1]
    kind = b.choice(["layer", "rms", "softmax"])
    if kind == "softmax":
        e = b.node("Exp", [b.node("Sub", [x, reduced(b, "ReduceMax", x, last, 1)])])
        b.node("Div", [e, reduced(b, "ReduceSum", e, last, 1)])
        return
    d = x
    if kind == "layer":
        d = b.node("Sub", [x, reduced(b, "ReduceMean", x, last, 1)])
    square = b.node("Mul", [d, d]) if b.chance(0.5) else b.node("Pow", [d, scalar(b, 2.0)])
    keep = b.choice([1, 1, 0])
    variance = b.node("Add", [reduced(b, "ReduceMean", square, last, keep), scalar(b, 1e-5)])
    if keep == 0:
        inputs, attributes = axes_inputs(b, [b.rank(x) - 1], 13)
        variance = b.node("Unsqueeze", [variance, *inputs], **attributes)
    deviation = b.node("Sqrt", [variance])
    if b.chance(0.5):
        y = b.node("Div", [d, deviation])
    else:
        y = b.node("Mul", [d, b.node("Reciprocal", [deviation])])
    y = b.node("Mul", [y, operand(b, y, [b.dims(x)[-1]])])
    if b.chance(0.7):
        b.node("Add", [y, operand(b, y, [b.dims(x)[-1]])])


@recipe(1.5, (IMAGE,))
def squeeze_excite(b: Builder) -> None:
    """A channel's mean decides how much of the channel goes on."""
    x = b.pick_rank(3, 5)
    rank = b.rank(x)
    if b.chance(0.5):
        mean = b.node(b.choice(["GlobalAveragePool", "GlobalMaxPool"]), [x])
    else:
        mean = reduced(b, b.choice(["ReduceMean", "ReduceMax"]), x, list(range(2, rank)), 1)
    if b.chance(0.5):
        mean = b.node(b.choice(["Relu", "Neg", "Tanh"]), [mean])
    gate = b.node(b.choice(["Sigmoid", "HardSigmoid"]), [mean])
    b.node("Mul", [x, gate] if b.chance(0.5) else [gate, x])
