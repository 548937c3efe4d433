"""Recipes of pointwise layers: float, integer, boolean and float64."""

from __future__ import annotations

import numpy as np

from .builder import Builder
from .graph import MICROSOFT
from .recipes import SEQUENCE, operand, partner, recipe, scalar

ANY, POSITIVE, UNIT, ABOVE_ONE, NONZERO = "any", "positive", "unit", "above one", "nonzero"

UNARY = {
    "Neg": ANY, "Abs": ANY, "Sign": ANY, "Reciprocal": NONZERO, "Sqrt": POSITIVE, "Exp": ANY, "Log": POSITIVE,
    "Erf": ANY, "Tanh": ANY, "Sigmoid": ANY, "Sin": ANY, "Cos": ANY, "Tan": UNIT, "Asin": UNIT, "Acos": UNIT,
    "Atan": ANY, "Sinh": ANY, "Cosh": ANY, "Asinh": ANY, "Acosh": ABOVE_ONE, "Atanh": UNIT, "Floor": ANY, "Ceil": ANY,
    "Round": ANY, "Relu": ANY, "HardSwish": ANY, "Softplus": ANY, "Softsign": ANY, "Mish": ANY,
}  # fmt: skip

PARAMETRIC = {
    "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",), "Selu": ("alpha", "gamma"),
    "Celu": ("alpha",), "ThresholdedRelu": ("alpha",), "Swish": ("alpha",), "Shrink": ("lambd", "bias"),
}  # fmt: skip


def into_domain(b: Builder, x: str, domain: str) -> str:
    """x, or something made of it that lies in the domain of a function."""
    if domain == ANY or b.special:
        return x
    values = np.concatenate([v.reshape(-1) for v in b.values[x]])
    size = np.abs(values)
    fine = {
        POSITIVE: (values > 1e-3).all(),
        UNIT: (size < 0.98).all(),
        ABOVE_ONE: (values > 1.01).all(),
        NONZERO: (size > 1e-2).all(),
    }
    if fine[domain]:
        return x
    if domain == UNIT:
        return b.node("Mul", [b.node("Tanh", [x]), scalar(b, 0.9)])
    return b.node("Add", [b.node("Abs", [x]), scalar(b, 1.25 if domain == ABOVE_ONE else 0.5)])


@recipe(5)
def unary(b: Builder) -> None:
    op = b.choice(list(UNARY))
    b.need(b.has(op))
    b.node(op, [into_domain(b, b.pick(), UNARY[op])])


@recipe(2.5)
def activation(b: Builder) -> None:
    op = b.choice(list(PARAMETRIC))
    b.need(b.has(op))
    attributes = {key: float(np.float32(b.rng.uniform(0.05, 1.5))) for key in PARAMETRIC[op] if b.chance(0.6)}
    b.node(op, [b.pick()], **attributes)


@recipe(1.5)
def gelu_forms(b: Builder) -> None:
    x = b.pick_rank(1)
    form = b.integer(0, 5)
    if form == 0:
        b.node("Gelu", [x], approximate=b.choice([None, "none", "tanh"]))
    elif form == 1:
        bias = [operand(b, x, [b.dims(x)[-1]])] if b.chance(0.5) else []
        b.node("FastGelu", [x, *bias], domain=MICROSOFT)
    elif form == 2:
        b.node("QuickGelu", [x], domain=MICROSOFT, alpha=b.choice([None, 1.0, 1.702, 0.5]))
    elif form == 3:
        b.node("BiasGelu", [x, operand(b, x, [b.dims(x)[-1]])], domain=MICROSOFT)
    elif form == 4:
        erf = b.node("Erf", [b.node("Div", [x, scalar(b, 1.4142135)])])
        b.node("Mul", [b.node("Mul", [x, b.node("Add", [erf, scalar(b, 1.0)])]), scalar(b, 0.5)])
    else:
        b.node("Mul", [x, b.node(b.choice(["Sigmoid", "HardSigmoid", "Tanh"]), [x])])


@recipe(6)
def binary(b: Builder) -> None:
    op = b.choice(["Add", "Sub", "Mul", "Add", "Mul", "Div", "Pow", "PRelu", "Mod"])
    x = b.pick()
    if op == "PRelu":
        dims = b.dims(x)
        cut = b.integer(0, len(dims))
        slope = [d if b.chance(0.6) else 1 for d in dims[cut:]]
        b.node("PRelu", [x, operand(b, x, slope)])
        return
    y = operand(b, x)
    if op == "Div":
        b.node("Div", [x, into_domain(b, y, "nonzero")])
    elif op == "Mod":
        b.node("Mod", [x, into_domain(b, y, "nonzero")], fmod=1)
    elif op == "Pow":
        if b.chance(0.7):
            b.node("Pow", [x, scalar(b, b.choice([2.0, 3.0, 1.0, 0.0]))])
        else:
            b.node("Pow", [into_domain(b, x, "positive"), scalar(b, b.choice([0.5, -1.0, 1.7, 2.5, -0.5]))])
    else:
        b.node(op, [x, y] if b.chance(0.7) else [y, x])


@recipe(2)
def meet(b: Builder) -> None:
    """Two tensors of the graph, with whatever broadcast fits."""
    x = b.pick()
    y = partner(b, x)
    b.need(y)
    b.node(b.choice(["Add", "Sub", "Mul", "Max", "Min"]), [x, y] if b.chance(0.5) else [y, x])


@recipe(1.5)
def same_twice(b: Builder) -> None:
    """One tensor as all operands of a layer."""
    x = b.pick()
    op = b.choice(["Add", "Sub", "Mul", "Max", "Min", "Sum", "Mean", "PRelu"])
    count = b.integer(2, 3) if op in ("Max", "Min", "Sum", "Mean") else 2
    b.node(op, [x] * count)


@recipe(2)
def variadic(b: Builder) -> None:
    x = b.pick()
    others = [operand(b, x) for _ in range(b.integer(0, 3))]
    b.node(b.choice(["Sum", "Mean", "Min", "Max"]), [x, *others])


@recipe(3)
def clip(b: Builder) -> None:
    x = b.pick()
    low, high = sorted(float(np.float32(v)) for v in b.rng.uniform(-2, 2, 2))
    if b.chance(0.06):
        low, high = high, low
    if b.opset < 11:
        b.node("Clip", [x], min=low if b.chance(0.8) else None, max=high if b.chance(0.8) else None)
        return

    def bound(value: float) -> str:
        form = b.rng.random()
        if form < 0.2:
            return ""
        if form < 0.6 or b.special:
            return b.constant(np.float32(value))
        if form < 0.75:
            return b.input([], lambda shape: np.float32(value))
        source = b.pick_rank(1)
        attributes = {"keepdims": 0}
        return b.node(b.choice(["ReduceMean", "ReduceMax", "ReduceMin"]), [source], **attributes)

    b.node("Clip", [x, bound(low), bound(high)])


@recipe(2.5)
def select(b: Builder) -> None:
    x = b.pick()
    y = operand(b, x)
    mask = b.node(b.choice(["Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal"]), [x, y])
    if b.chance(0.3):
        mask = b.node("Not", [mask])
    if b.chance(0.25):
        other = b.node("Less", [x, scalar(b, 0.5)])
        mask = b.node(b.choice(["And", "Or", "Xor"]), [mask, other])
    if b.chance(0.3):
        b.node("Mul", [x, b.node("Cast", [mask], to=1)])
        return
    a, c = operand(b, x), (x if b.chance(0.5) else scalar(b, b.choice([0.0, -1e4, 1.0])))
    b.node("Where", [mask, a, c] if b.chance(0.5) else [mask, c, a])


@recipe(0.7)
def classify(b: Builder) -> None:
    x = b.pick()
    mask = b.node(b.choice(["IsNaN", "IsInf"]), [x])
    b.node("Where", [mask, scalar(b, 0.0), x])


@recipe(1.2)
def integers(b: Builder) -> None:
    dtype, code = b.choice([(np.int64, 7), (np.int32, 6)])
    x = b.pick()
    # What integer NaN or 1e18 becomes is for each to choose.
    b.need(all((np.abs(v) < 1e6).all() for v in b.values[x]))
    x = b.node("Cast", [x], to=code)
    for _ in range(b.integer(1, 3)):
        op = b.choice(["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Neg", "Abs", "Sign"])
        if op in ("Neg", "Abs", "Sign"):
            x = b.node(op, [x])
        else:
            value = b.constant(np.asarray(b.choice([1, 2, 3, 5, -3] if op != "Mod" else [2, 3, 5]), dtype))
            x = b.node(op, [x, value])
    if b.chance(0.8):
        b.node("Cast", [x], to=1)


@recipe(1)
def float64(b: Builder) -> None:
    x = b.node("Cast", [b.pick()], to=11)
    for _ in range(b.integer(1, 3)):
        op = b.choice(["Add", "Mul", "Sub", "Tanh", "Sigmoid", "Abs", "Relu", "Neg", "ReduceSum", "MatMul", "Exp"])
        if op in ("Add", "Mul", "Sub"):
            x = b.node(op, [x, b.constant(np.float64(b.rng.standard_normal()))])
        elif op == "MatMul":
            b.need(b.rank(x) >= 1)
            depth = b.dims(x)[-1]
            b.need(len(set(depth)) == 1)
            x = b.node("MatMul", [x, b.constant(b.rng.standard_normal((depth[0], 3)))])
        else:
            x = b.node(op, [x])
    if b.chance(0.7):
        b.node("Cast", [x], to=1)


@recipe(1.5)
def batch_normalization(b: Builder) -> None:
    x = b.pick_rank(2)
    dims = b.dims(x)
    spatial = 0 if b.opset < 9 and b.chance(0.5) else None
    sizes = dims[1:] if spatial == 0 else [dims[1]]
    b.need(all(len(set(s)) == 1 for s in sizes))
    shape = [s[0] for s in sizes]
    parameters = [b.numbers(shape), b.numbers(shape), b.numbers(shape), np.abs(b.numbers(shape)) + np.float32(0.3)]
    if b.chance(0.85):
        names = [b.constant(p, as_node=False) for p in parameters]
    else:
        names = [b.input(shape, lambda _, p=p: p) for p in parameters]
    b.node("BatchNormalization", [x, *names], epsilon=b.choice([None, 1e-3]), spatial=spatial)


@recipe(1)
def passing(b: Builder) -> None:
    """Layers that compute nothing in inference."""
    x = b.pick()
    if b.chance(0.5):
        b.node("Identity", [x])
    elif b.opset < 12:
        b.node("Dropout", [x], ratio=0.3)
    else:
        ratio = b.constant(np.float32(0.3))
        b.node("Dropout", b.choice([[x], [x, ratio], [x, "", b.constant(np.bool_(False))]]))


@recipe(1, (SEQUENCE,))
def chain(b: Builder) -> None:
    """A longer run of pointwise layers on one tensor, which is read again at its end."""
    x = y = b.pick()
    for _ in range(b.integer(2, 5)):
        op = b.choice(["Add", "Mul", "Sub", "Relu", "Tanh", "Neg", "Sigmoid"])
        y = b.node(op, [y, operand(b, y)] if op in ("Add", "Mul", "Sub") else [y])
    b.node(b.choice(["Add", "Mul"]), [y, x])
