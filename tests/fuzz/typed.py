"""Recipes of arithmetic in other types: integers of all widths, bools, float64, and passages through narrow floats."""

from __future__ import annotations

import numpy as np

from .builder import Builder
from .recipes import axes_inputs, axes_of_reduction, axis_of, recipe

INTEGERS = {
    np.int8: 3, np.uint8: 2, np.int16: 5, np.uint16: 4, np.int32: 6, np.int64: 7, np.uint32: 12, np.uint64: 13,
}  # fmt: skip


INTEGER_LAYERS = (
    "Add", "Sub", "Mul", "Div", "Mod", "fmod", "Max", "Min", "BitShift", "Bitwise", "unary", "meet", "Where", "Clip", "Pow",
)  # fmt: skip


def as_type(b: Builder, x: str, dtype: type) -> str:
    """x as integers that fit the type."""
    b.need(not b.special and all((np.abs(v) < 100).all() for v in b.values[x]))
    if np.iinfo(dtype).min == 0:
        x = b.node("Abs", [x])
    return b.node("Cast", [x], to=INTEGERS[dtype])


def number(b: Builder, dtype: type, values) -> str:
    """A scalar, or one element of rank 1."""
    return b.constant(np.full((1,) * b.integer(0, 1), b.choice(values), dtype))


@recipe(1.5)
def integer_arithmetic(b: Builder) -> None:
    dtype = b.choice(list(INTEGERS))
    x = y = as_type(b, b.pick(), dtype)
    signed = np.iinfo(dtype).min < 0
    wide = dtype in (np.int32, np.int64, np.uint32, np.uint64)
    for _ in range(b.integer(1, 4)):
        op = b.choice(INTEGER_LAYERS)
        if op in ("Add", "Sub", "Mul"):
            b.need(wide or b.opset >= 14)
            y = b.node(op, [y, number(b, dtype, [1, 2, 3, 5])])
        elif op == "Div":
            b.need(wide or b.opset >= 14)
            y = b.node("Div", [y, number(b, dtype, [1, 2, 3, 7] + [-2, -3] * signed)])
        elif op in ("Mod", "fmod"):
            y = b.node("Mod", [y, number(b, dtype, [2, 3, 5] + [-2, -3] * signed)], fmod=int(op == "fmod"))
        elif op in ("Max", "Min"):
            y = b.node(op, [y, number(b, dtype, [1, 3])])
        elif op == "BitShift":
            b.need(not signed)
            y = b.node("BitShift", [y, number(b, dtype, [0, 1, 3])], direction=b.choice(["LEFT", "RIGHT"]))
        elif op == "Bitwise":
            b.need(b.opset >= 18)
            name = b.choice(["And", "Or", "Xor", "Not"])
            y = b.node("Bitwise" + name, [y] if name == "Not" else [y, number(b, dtype, [3, 5, 12])])
        elif op == "unary":
            y = b.node(b.choice(["Abs", "Sign"] + ["Neg"] * signed), [y])
        elif op == "meet":
            y = b.node(b.choice(["Add", "Sub", "Max"]), [y, x])
        elif op == "Where":
            y = b.node("Where", [b.node("Greater", [y, number(b, dtype, [1])]), y, x])
        elif op == "Clip":
            b.need(b.opset >= 12)
            y = b.node("Clip", [y, b.constant(dtype(1)), b.constant(dtype(9))])
        else:
            b.need(wide and signed)
            y = b.node("Pow", [b.node("Mod", [y, number(b, dtype, [5])]), number(b, dtype, [0, 1, 2, 3])])
    form = b.integer(0, 3)
    if form == 0 and b.rank(y) >= 1:
        op = b.choice(["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean"])
        axes = axes_of_reduction(b, y, [axis_of(b, b.rank(y)) if b.opset >= 11 else 0])
        inputs, attributes = axes_inputs(b, axes, 13 if op == "ReduceSum" else 18)
        y = b.node(op, [y, *inputs], keepdims=b.choice([0, 1]), **attributes)
    elif form == 1 and b.rank(y) >= 1 and all(v.size for v in b.values[y]):
        last = b.choice([None, 0, 1]) if b.opset >= 12 else None
        axis = axis_of(b, b.rank(y)) if b.opset >= 11 else 0
        y = b.node(b.choice(["ArgMax", "ArgMin"]), [y], axis=axis, keepdims=b.choice([0, 1]), select_last_index=last)
    if b.chance(0.7):
        b.node("Cast", [y], to=1)


@recipe(0.7)
def integer_products(b: Builder) -> None:
    x = as_type(b, b.pick_rank(2, 4), b.choice([np.int32, np.int64]))
    depth = b.dims(x)[-1]
    b.need(len(set(depth)) == 1)
    dtype = b.values[x][0].dtype.type
    if b.rank(x) == 2 and b.chance(0.5):
        bias = [b.constant(np.arange(3, dtype=dtype))] if b.chance(0.5) or b.opset < 11 else []
        y = b.node("Gemm", [x, b.constant(b.rng.integers(-3, 4, (depth[0], 3)).astype(dtype)), *bias])
    else:
        y = b.node("MatMul", [x, b.constant(b.rng.integers(-3, 4, (depth[0], 3)).astype(dtype))])
    b.node("Cast", [y], to=1)


@recipe(1.5)
def logic(b: Builder) -> None:
    """Bools with broadcasts; comparisons of integers and bools; what they select and count."""
    x = b.pick()
    b.need(not b.special)
    masks = [b.node(b.choice(["Greater", "Less"]), [x, b.constant(np.float32(v))]) for v in (0.1, -0.4)]
    shape = [d[0] if b.chance(0.5) else 1 for d in b.dims(x)][b.integer(0, b.rank(x)) :]
    masks.append(b.constant(b.rng.random(shape) < 0.5))
    y = masks[0]
    for _ in range(b.integer(1, 3)):
        op = b.choice(["And", "Or", "Xor", "Not", "Equal", "Cast"])
        if op == "Cast":
            kind = b.choice([6, 7])
            compare = b.choice(["Equal", "Greater", "Less"] + ["GreaterOrEqual", "LessOrEqual"] * (b.opset >= 12))
            y = b.node(compare, [b.node("Cast", [v], to=kind) for v in (y, b.choice(masks))])
        else:
            y = b.node(op, [y] if op == "Not" else [y, b.choice(masks)] if b.chance(0.5) else [b.choice(masks), y])
    form = b.integer(0, 2)
    if form == 0:
        b.node("Where", [y, x, b.constant(np.float32(0.5))])
    elif form == 1:
        b.node("Cast", [y], to=b.choice([1, 7, 11]))
    elif b.opset >= 20 and b.rank(y) >= 1:
        b.node(
            b.choice(["ReduceMax", "ReduceMin"]), [y, b.ints(*axes_of_reduction(b, y, [-1]))], keepdims=b.choice([0, 1])
        )


DOUBLE_UNARY = (
    "Abs", "Neg", "Sqrt", "Exp", "Log", "Tanh", "Sigmoid", "Relu", "Floor", "Ceil", "Sin", "Cos", "Erf", "Reciprocal",
    "Round", "Softplus", "Sign",
)  # fmt: skip
DOUBLE_OTHER = ("binary", "binary", "reduce", "Softmax", "MatMul", "LayerNormalization", "Clip", "Where", "Pow")
HALF_LAYERS = ("Relu", "Tanh", "Sigmoid", "Add", "Mul", "meet", "MatMul", "Softmax", "ReduceSum", "Transpose", "Exp")


@recipe(1)
def double_arithmetic(b: Builder) -> None:
    """Layers of float64 of every kind, with float32 at both ends."""
    x = b.node("Cast", [b.pick_rank(1)], to=11)
    for _ in range(b.integer(1, 4)):
        op = b.choice([*DOUBLE_UNARY, *DOUBLE_OTHER])
        rank = b.rank(x)
        if op == "binary":
            shape = [d[0] if b.chance(0.5) else 1 for d in b.dims(x)][b.integer(0, rank) :]
            y = b.constant(b.rng.uniform(0.5, 2, shape))
            x = b.node(b.choice(["Add", "Sub", "Mul", "Div", "Max", "Min"]), [x, y] if b.chance(0.5) else [y, x])
        elif op == "reduce":
            op = b.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceProd"])
            b.need(rank >= 1)
            inputs, attributes = axes_inputs(b, [b.integer(0, rank - 1)], 13 if op == "ReduceSum" else 18)
            x = b.node(op, [x, *inputs], keepdims=b.choice([0, 1]), **attributes)
        elif op == "Softmax":
            x = b.node(b.choice(["Softmax", "LogSoftmax"]), [x], axis=b.integer(0, rank - 1))
        elif op == "MatMul":
            depth = b.dims(x)[-1]
            b.need(len(set(depth)) == 1)
            x = b.node("MatMul", [x, b.constant(b.rng.standard_normal((depth[0], 3)))])
        elif op == "LayerNormalization":
            depth = b.dims(x)[-1]
            b.need(len(set(depth)) == 1)
            x = b.node(op, [x, b.constant(b.rng.standard_normal(depth[0]))])
        elif op == "Clip":
            b.need(b.opset >= 12)
            x = b.node("Clip", [x, b.constant(np.float64(-0.5)), b.constant(np.float64(1.5))])
        elif op == "Where":
            x = b.node("Where", [b.node("Less", [x, b.constant(np.float64(0.3))]), x, b.constant(np.float64(0.1))])
        elif op == "Pow":
            x = b.node("Pow", [x, b.constant(b.choice([np.float64, np.float32, np.int64])(2))])
        else:
            x = b.node(op, [b.node("Abs", [x]) if op in ("Sqrt", "Log", "Reciprocal") else x])
    if b.chance(0.8):
        b.node("Cast", [x], to=1)


@recipe(0.8)
def powers(b: Builder) -> None:
    """Exponents of other types than the base."""
    b.need(b.opset >= 12)
    x = b.pick()
    kind = b.choice([np.int32, np.int64, np.float64, np.float32])
    shape = b.choice([[], [1], [b.dims(x)[-1][0]] if b.rank(x) else []])
    b.node("Pow", [x, b.constant(b.rng.integers(0, 4, shape).astype(kind))])


@recipe(0.8)
def casts(b: Builder) -> None:
    """There and back through another type."""
    x = b.pick()
    b.need(not b.special and all((np.abs(v) < 120).all() for v in b.values[x]))
    kind = b.choice([10, 11, 6, 7, 3, 9, 5])
    y = b.node("Cast", [x], to=kind)
    if kind in (10, 11) and b.chance(0.5) and b.rank(y) >= 1:
        y = b.node("Transpose", [y]) if b.chance(0.5) else b.node("Reshape", [y, b.ints(-1)])
    if b.opset >= 15 and b.chance(0.4):
        b.node("CastLike", [y, x])
    else:
        b.node("Cast", [y], to=1)


@recipe(1)
def halves(b: Builder) -> None:
    """A passage of layers in float16."""
    b.need(not b.special and b.opset >= 13)
    before = len(b.nodes)
    x = y = b.node("Cast", [b.pick_rank(1)], to=10)
    number = lambda shape: b.constant(b.numbers(shape, 0.5).astype(np.float16))  # noqa: E731
    for _ in range(b.integer(1, 5)):
        op = b.choice(HALF_LAYERS)
        last = b.dims(y)[-1] if b.rank(y) else ()
        if op in ("Add", "Mul"):
            y = b.node(op, [y, number(b.choice([[], [1], [last[0]]]) if len(set(last)) == 1 else [])])
        elif op == "meet":
            y = b.node("Add", [y, x])
        elif op == "MatMul":
            b.need(len(set(last)) == 1)
            y = b.node(op, [y, number([last[0], b.choice([1, 3, 8, 17])])])
        elif op == "Softmax":
            y = b.node(op, [y], axis=-1)
        elif op == "ReduceSum":
            y = b.node(op, [y, b.ints(*axes_of_reduction(b, y, [-1]))], keepdims=b.choice([0, 1]))
        else:
            y = b.node(op, [y])
    for node in b.nodes[before:]:
        node.name += "half"
    if b.chance(0.8):
        b.node("Cast", [y], to=1)
