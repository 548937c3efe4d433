"""Layers that work element by element, with NumPy's broadcasting. Arithmetic in float64; see values.py for bounds."""

from __future__ import annotations

import functools
import math
import typing

import numpy as np

from .model import Node
from .rounding import EPSILON, SMALLEST_NORMAL
from .values import T, Unsupported, Value, corners, result

Array = np.ndarray
#: The error of a float32 function that is no single operation, in units of EPSILON times its scale.
FUNCTION = 6.0

_STEP = 1 / 64
_GRID = np.array([math.erf(i * _STEP) for i in range(int(6 / _STEP) + 1)])


def erf(x: Array) -> Array:
    """math.erf: Taylor's series, to 1e-13, around the nearest point of a grid."""
    magnitude = np.minimum(np.abs(x), 6.0)
    nearest = np.rint(np.nan_to_num(magnitude) / _STEP).astype(np.int64)
    at = nearest * _STEP
    d = magnitude - at
    # The derivatives are Hermite's polynomials times a bell.
    total, before, polynomial, term = np.zeros_like(d), np.zeros_like(d), np.ones_like(d), d
    for n in range(7):
        total = total + polynomial * term
        before, polynomial = polynomial, 2 * at * polynomial - 2 * n * before
        term = term * -d / (n + 2)
    return np.copysign(_GRID[nearest] + 2 / math.sqrt(math.pi) * np.exp(-at * at) * total, x)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))  # NaN at -inf, by the formula


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def swish(x: Array, alpha: float = 1.0) -> Array:
    return x * sigmoid(alpha * x)


def hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    return _clamp(alpha * x + beta, 0.0, 1.0)


def _clamp(x: Array, low: Array | float, high: Array | float) -> Array:
    return np.minimum(np.maximum(x, low), high)


def _one(x: Array) -> Array:
    return np.maximum(np.abs(x), 1.0)


def _self(x: Array) -> Array:
    return np.abs(x)


#: One operation of IEEE 754, or a choice: nothing is left to an implementation.
EXACT: dict[str, typing.Callable[[Array], Array]] = {
    "Neg": np.negative, "Abs": np.abs, "Sign": np.sign, "Reciprocal": lambda x: 1 / x, "Sqrt": np.sqrt,
    "Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Relu": lambda x: np.maximum(x, 0),
}  # fmt: skip

#: A function, and the scale of its error beside the result itself.
FUNCTIONS: dict[str, tuple[typing.Callable[[Array], Array], typing.Callable[[Array], Array] | None]] = {
    "Exp": (np.exp, lambda x: np.abs(x) * np.exp(np.minimum(x, 700))), "Log": (np.log, None),
    "Erf": (erf, None), "Tanh": (np.tanh, None), "Sigmoid": (sigmoid, lambda x: np.abs(x) * sigmoid(x)),
    "Sin": (np.sin, lambda x: np.ones_like(x)), "Cos": (np.cos, lambda x: np.ones_like(x)),
    "Tan": (np.tan, lambda x: 1 + np.tan(x) ** 2), "Asin": (np.arcsin, None), "Acos": (np.arccos, _one),
    "Atan": (np.arctan, None), "Sinh": (np.sinh, lambda x: np.abs(x) * np.cosh(x)),
    "Cosh": (np.cosh, lambda x: np.abs(x) * np.cosh(x)), "Asinh": (np.arcsinh, None), "Acosh": (np.arccosh, _one),
    "Atanh": (np.arctanh, None), "Softplus": (softplus, lambda x: np.where(x > 0, x, np.abs(x) * softplus(x))),
    "Softsign": (lambda x: x / (1 + np.abs(x)), None),
    "Mish": (lambda x: x * np.tanh(softplus(x)),  # NaN at -inf, by the formula
             lambda x: _self(x) * np.minimum(_one(x), 100)),
    "HardSwish": (lambda x: x * hard_sigmoid(x, 1 / 6, 0.5), _self),
}  # fmt: skip


def _parametric(node: Node) -> tuple[typing.Callable[[Array], Array], typing.Callable[[Array], Array] | float | None]:
    """Functions with attributes: the function, and the scale of its error (0: exact)."""
    real = lambda name, absent: float(np.float32(node.get(name, absent)))
    op = node.op
    if op == "LeakyRelu":
        alpha = real("alpha", 0.01)
        return lambda x: np.where(x < 0, alpha * x, x), 0
    if op == "ThresholdedRelu":
        alpha = real("alpha", 1.0)
        return lambda x: np.where(x > alpha, x, 0.0), 0
    if op == "HardSigmoid":
        alpha, beta = real("alpha", 0.2), real("beta", 0.5)
        return lambda x: hard_sigmoid(x, alpha, beta), lambda x: np.minimum(np.abs(alpha * x), 4) + abs(beta)
    if op in ("Elu", "Selu", "Celu"):
        alpha = real("alpha", 1.67326319217681884765625 if op == "Selu" else 1.0)
        gamma = real("gamma", 1.05070102214813232421875) if op == "Selu" else 1.0
        inner = alpha if op == "Celu" else 1.0
        return lambda x: gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / inner)), lambda x: np.where(
            x > 0, np.abs(x), abs(alpha)
        )
    if op == "Swish":
        return lambda x: swish(x, real("alpha", 1.0)), lambda x: _self(x) * np.minimum(_one(x), 100)
    if op == "Gelu":
        return (gelu_tanh if node.get("approximate", "none") == "tanh" else gelu), _self
    if op == "Shrink":
        lambd, bias = real("lambd", 0.5), real("bias", 0.0)
        return lambda x: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, np.where(np.isnan(x), x, 0.0))), 0
    if op == "QuickGelu":
        return lambda x: swish(x, real("alpha", 1.702)), lambda x: _self(x) * np.minimum(_one(x), 100)
    raise Unsupported(op)


PARAMETRIC = {
    "LeakyRelu",
    "ThresholdedRelu",
    "HardSigmoid",
    "Elu",
    "Selu",
    "Celu",
    "Swish",
    "Gelu",
    "Shrink",
    "QuickGelu",
}


def _larger(a: Array, b: Array) -> Array:
    return np.maximum(a, b)


def _remainder(node: Node) -> typing.Callable[[Array, Array], Array]:
    return np.fmod if node.get("fmod", 0) else lambda a, b: np.where(np.isinf(b), np.nan, a - b * np.floor(a / b))


def _power(a: Array, b: Array) -> Array:
    # All exponents written out: for a lone 0.5 NumPy takes the square root, which is not the power of -inf.
    a, b = np.broadcast_arrays(a, b)
    return np.power(a.ravel().copy(), b.ravel().copy()).reshape(a.shape)


BINARY: dict[str, typing.Callable[[Array, Array], Array]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": _power,
    "PRelu": lambda x, slope: np.where(x < 0, slope * x, x), "Min": np.minimum, "Max": _larger,
    "Sum": np.add, "Mean": np.add,
}  # fmt: skip

#: Float layers that may be in groups, by (domain, operator).
POINTWISE = {
    ("", op) for op in [*EXACT, *FUNCTIONS, *(PARAMETRIC - {"QuickGelu"}), *BINARY, "Clip", "Mod", "SwiGLU"]
} | {("com.microsoft", op) for op in ("FastGelu", "QuickGelu", "BiasGelu", "Gelu")}


def _integer_divide(a: Array, b: Array) -> Array:
    safe = np.where(b == 0, 1, b)
    quotient = np.trunc(a.astype(np.longdouble) / safe).astype(a.dtype)
    return np.where(b == 0, 0, quotient).astype(a.dtype)


def _integers(node: Node, x: list[Value | None]) -> Array:
    """Arithmetic on integers: wraps around."""
    values = [v.v for v in x if v is not None]
    op = node.op
    if op in ("Add", "Sub", "Mul", "Min", "Max"):
        function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Min": np.minimum, "Max": np.maximum}[op]
        return functools.reduce(function, values)
    if op == "Div":
        return _integer_divide(*values)
    if op == "Mod":
        return (np.fmod if node.get("fmod", 0) else np.mod)(*values)
    if op == "Pow":
        return np.power(values[0].astype(np.float64), values[1].astype(np.float64)).astype(values[0].dtype)
    if op in ("Neg", "Abs", "Sign"):
        return {"Neg": np.negative, "Abs": np.abs, "Sign": np.sign}[op](values[0])
    if op == "Relu":
        return np.maximum(values[0], 0)
    if op == "Clip":
        low = values[1] if x[1] is not None else values[0].min(initial=0)
        high = x[2].v if len(x) > 2 and x[2] is not None else np.iinfo(values[0].dtype).max
        return np.minimum(np.maximum(values[0], low), high).astype(values[0].dtype)
    raise Unsupported(f"{op} on integers")


def _clip(node: Node, x: list[Value | None]) -> Value:
    data = x[0]
    assert data is not None
    most = float(np.finfo(np.float64 if data.type == T.DOUBLE else np.float32).max)
    if node.opset < 11:
        low, high = float(np.float32(node.get("min", -most))), float(np.float32(node.get("max", most)))
        operands = [data]
        function = lambda v: _clamp(v, low, high)
        return result(function(data.v), data.type, corners(function, operands))
    low_value = x[1] if len(x) > 1 and x[1] is not None else Value(np.float64(-most), data.type)
    high_value = x[2] if len(x) > 2 and x[2] is not None else Value(np.float64(most), data.type)
    operands = [data, low_value._replace(v=low_value.v.reshape(())), high_value._replace(v=high_value.v.reshape(()))]
    operands = [o if o.e is None else o._replace(e=o.e.reshape(o.v.shape)) for o in operands]
    return result(_clamp(*[o.v for o in operands]), data.type, corners(_clamp, operands))


def _unary(function: typing.Callable[[Array], Array], scale: typing.Any, x: Value) -> Value:
    y = function(x.v)
    own = None
    if not np.isscalar(scale) or scale != 0:
        own = FUNCTION * EPSILON * (np.abs(y) + (0 if scale is None else scale(x.v)))
        # There, a function may give 0.
        own = np.where((y != 0) & (np.abs(y) < SMALLEST_NORMAL), SMALLEST_NORMAL, own)
    moved = corners(function, [x])
    if moved is not None and function in _PERIODIC:
        moved = _PERIODIC[function](y, x.bound())
    return result(y, x.type, moved, own)


#: Between the ends of their operands these have other values than there: the farthest that they may be.
_PERIODIC: dict[typing.Any, typing.Callable[[Array, Array], Array]] = {
    np.sin: lambda y, e: np.minimum(e, 2.0), np.cos: lambda y, e: np.minimum(e, 2.0),
    np.tan: lambda y, e: np.where(e * (1 + np.abs(y)) < 0.25, 2 * e * (1 + y * y), np.inf),
}  # fmt: skip


def pointwise(node: Node, x: list[Value | None], loose: bool = False) -> Value:
    """The float layer in float32. `loose`: it rides on a product, whose kernel may add and scale in another order."""
    present = [v for v in x if v is not None]
    op, data = node.op, present[0]
    if not data.is_float:
        y = _integers(node, x)
        if all(v.e is None for v in present):
            return Value(y, data.type)
        # Integers may be those of floats that are not determined: nothing is known of what comes of them.
        doubt = functools.reduce(np.logical_or, [np.asarray(v.bound() > 0) for v in present])
        return Value(y, data.type, np.where(np.broadcast_to(doubt, y.shape), np.inf, 0.0))
    if op in EXACT:
        moved = corners(EXACT[op], [data])
        return result(EXACT[op](data.v), data.type, _beyond_zero(moved, data) if op == "Reciprocal" else moved)
    if op in FUNCTIONS:
        return _unary(*FUNCTIONS[op], data)
    if op in PARAMETRIC:
        return _unary(*_parametric(node), data)
    if op == "Clip":
        return _clip(node, x)
    if op == "FastGelu":
        if len(present) > 1:
            data = pointwise(node._replace(op="Add"), list(present), True)
        return _unary(gelu_tanh, _self, data)
    if op == "BiasGelu":
        return _unary(gelu, _self, pointwise(node._replace(op="Add"), list(present), True))
    if op == "SwiGLU":
        gate = _unary(lambda v: swish(v), lambda v: _self(v) * np.minimum(_one(v), 100), data)
        return pointwise(node._replace(op="Mul"), [gate, present[1]], True)
    if op == "Mod":
        function = _remainder(node)
        moved = corners(function, present)
        if moved is not None:  # Where the quotient may pass an integer, the remainder jumps.
            ends = [
                np.floor((data.v + s * data.bound()) / (present[1].v + t * present[1].bound()) + u * 1e-6)
                for s in (-1, 1) for t in (-1, 1) for u in (-1, 1)
            ]  # fmt: skip
            moved = np.where(np.max(ends, 0) != np.min(ends, 0), np.inf, moved)
        return result(function(data.v, present[1].v), data.type, moved)
    if op in BINARY:
        return _fold(node, present, loose)
    raise Unsupported(op)


def _beyond_zero(moved: Array | None, divisor: Value) -> Array | None:
    """Where the divisor may as well be 0, the quotient is anything."""
    if divisor.e is None or moved is None:
        return moved
    return np.where(np.broadcast_to(np.abs(divisor.v) <= divisor.e, moved.shape), np.inf, moved)


def _fold(node: Node, x: list[Value], loose: bool) -> Value:
    """One operand after the other: Sum, Mean, Min and Max have any number of them."""
    function = BINARY[node.op]
    y = functools.reduce(function, [v.v for v in x])
    every = lambda *values: functools.reduce(function, values)
    moved = corners(every, x)
    if moved is not None and node.op in ("Mul", "PRelu") and len(x) == 2:
        both = x[0].bound() * x[1].bound()
        moved = moved + np.where(np.isnan(both), 0, both)
    if node.op == "Div":
        moved = _beyond_zero(moved, x[1])
    own: typing.Any = None
    # Squares are products, but an integer is converted first and leaves a power, which is a function.
    if node.op == "Pow" and not (x[1].is_float and x[1].v.size == 1 and float(x[1].v.reshape(())) in (1.0, 2.0)):
        own = FUNCTION * EPSILON * np.abs(y) * (1 + np.abs(x[1].v * np.log(np.abs(x[0].v))))
    if node.op in ("Sum", "Mean", "Add", "Sub") and (len(x) > 2 or loose or moved is not None):
        own = EPSILON * len(x) * functools.reduce(np.add, [np.abs(v.v) for v in x])
    if node.op == "Mean":
        y, moved = y / len(x), None if moved is None else moved / len(x)
        own = 0.0 if own is None and len(x) < 3 else own / len(x) + EPSILON * np.abs(y)
    return result(y, x[0].type, moved, own)


# Comparisons and booleans ------------------------------------------------------------------------------------------

COMPARISONS: dict[str, typing.Callable[[Array, Array], Array]] = {
    "Equal": np.equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Less": np.less,
    "LessOrEqual": np.less_equal,
}  # fmt: skip
LOGIC = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor, "Not": np.logical_not}
BITS = {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor, "BitwiseNot": np.invert}


def compare(node: Node, x: list[Value | None]) -> Value:
    """Bool outputs; an element whose operands may lie on both sides may be either."""
    a, b = x[0], x[1]
    assert a is not None and b is not None
    function = COMPARISONS[node.op]
    y = function(a.v, b.v)
    if a.e is None and b.e is None:
        return Value(y, T.BOOL)
    apart = np.abs(np.subtract(a.v, b.v, dtype=np.float64))
    either = ~(apart > a.bound() + b.bound()) & ~(np.isnan(a.v) | np.isnan(b.v))
    either = either & ((a.bound() + b.bound()) > 0)
    return Value(y, T.BOOL, np.where(either, 1.0, 0.0) if either.any() else None)


def logic(node: Node, x: list[Value | None]) -> Value:
    present = [v for v in x if v is not None]
    function = {**LOGIC, **BITS}[node.op]
    y = function(*[v.v for v in present])
    moved = (
        functools.reduce(np.maximum, [v.bound() for v in present]) if any(v.e is not None for v in present) else None
    )
    return Value(y, present[0].type, None if moved is None else np.broadcast_to(moved, y.shape) + 0.0)


def classify(node: Node, x: list[Value | None]) -> Value:
    """IsNaN and IsInf."""
    data = x[0]
    assert data is not None
    if node.op == "IsNaN":
        y = np.isnan(data.v)
    else:
        y = (np.isposinf(data.v) & bool(node.get("detect_positive", 1))) | (
            np.isneginf(data.v) & bool(node.get("detect_negative", 1))
        )
    return Value(y, T.BOOL, None if data.e is None else np.where(np.isinf(data.e), 1.0, 0.0))
