"""Forms of pointwise layers: functions, and arithmetic with operands of all kinds on either side."""

from __future__ import annotations

from typing import Callable, Dict

import numpy as np

from .site import Site
from .table import MICROSOFT, add, add_merge

CORE_UNARY = ("Exp", "Neg", "Relu", "Sigmoid", "Tanh", "Sqrt", "Reciprocal", "Abs")
UNARY = (
    "Log", "Erf", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos", "Tan", "Atan", "Sinh", "Asinh", "Softplus",
    "Softsign", "Elu", "Selu", "Celu", "LeakyRelu", "HardSigmoid", "HardSwish", "Mish", "ThresholdedRelu", "Shrink",
)  # fmt: skip


def unary(op: str, domain: str = "", **attributes) -> Callable[[Site, str], str]:
    """One operand, attributes as given."""
    return lambda s, x: s.node(op, [x], domain=domain, **attributes)


for _op in CORE_UNARY:
    add(_op, unary(_op), "core", "point")
for _op in UNARY:
    add(_op, unary(_op), "point")
add("Elu.half", unary("Elu", alpha=0.3), "point")
add("LeakyRelu.steep", unary("LeakyRelu", alpha=1.7), "point")
add("Gelu", unary("Gelu"), "core", "point")
add("Gelu.tanh", unary("Gelu", approximate="tanh"), "point")
add("QuickGelu", unary("QuickGelu", MICROSOFT), "point")
add("FastGelu", unary("FastGelu", MICROSOFT), "point")
add("Identity", unary("Identity"), "core", "move", "view")
add("Dropout", unary("Dropout"), "move", "view")


def _with_bias(op: str) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 1)
        return s.node(op, [x, s.weights(s.shape(x)[-1:])], domain=MICROSOFT)

    return build


add("FastGelu.bias", _with_bias("FastGelu"), "point")
add("BiasGelu", _with_bias("BiasGelu"), "point")


# Operands of two-operand arithmetic.


def _row(s: Site, x: str, constant: bool) -> str:
    s.need(s.rank(x) >= 1)
    return s.given(s.shape(x)[-1:], constant, "positive")


def _column(s: Site, x: str, constant: bool) -> str:
    s.need(s.rank(x) >= 2)
    return s.given([s.shape(x)[-2], 1], constant, "positive")


def _rows_of_all(s: Site, x: str, constant: bool) -> str:
    s.need(s.rank(x) >= 3)
    return s.given([*s.shape(x)[:-1], 1], constant, "positive")


def _channel(s: Site, x: str, constant: bool) -> str:
    s.need(s.rank(x) >= 3)
    return s.given([s.shape(x)[1]] + [1] * (s.rank(x) - 2), constant, "positive")


def _batch(s: Site, x: str, constant: bool) -> str:
    s.need(s.rank(x) >= 2)
    return s.given([s.shape(x)[0]] + [1] * (s.rank(x) - 1), constant, "positive")


def _higher(s: Site, x: str, constant: bool) -> str:
    return s.given([2, *s.shape(x)], constant, "positive")


def _gaps(s: Site, x: str, constant: bool) -> str:
    """Broadcast along every second dimension."""
    s.need(s.rank(x) >= 3)
    return s.given([size if d % 2 else 1 for d, size in enumerate(s.shape(x))], constant, "positive")


def _kind(function: Callable[[Site, str, bool], str], constant: bool) -> Callable[[Site, str], str]:
    return lambda s, x: function(s, x, constant)


def _computed_scalar(s: Site, x: str) -> str:
    return s.node("Exp", [s.input([], "small")])


def _computed_row(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 1)
    return s.node("Exp", [s.input(s.shape(x)[-1:], "small")])


def _scalar_of_shape(s: Site, x: str) -> str:
    """A number made of a shape."""
    s.need(s.rank(x) >= 1)
    size = s.node("Gather", [s.node("Shape", [x]), s.constant(np.int64(s.rank(x) - 1))])
    return s.node("Cast", [size], to=1)


def _identity(s: Site, x: str) -> str:
    return s.node("Identity", [x])


def _reshape(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 1 and 0 not in s.shape(x))
    return s.node("Reshape", [x, s.ints(*s.shape(x))])


def _first_rows(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 1 and s.shape(x)[0] >= 2)
    return s.node("Slice", [x, s.ints(0), s.ints(1), s.ints(0)])


def _last_column(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 2 and s.shape(x)[-1] >= 2)
    last = s.rank(x) - 1
    return s.node("Slice", [x, s.ints(s.shape(x)[-1] - 1), s.ints(s.shape(x)[-1]), s.ints(last)])


def _squeezed(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 2 and s.shape(x)[0] == 1)
    return s.node("Squeeze", [x, s.ints(0)]) if s.opset >= 13 else s.node("Squeeze", [x], axes=[0])


def _flattened(s: Site, x: str) -> str:
    s.need(s.rank(x) == 2)
    return s.node("Flatten", [x])


def _unsqueezed(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 1)
    return s.node("Unsqueeze", [x, s.ints(0)]) if s.opset >= 13 else s.node("Unsqueeze", [x], axes=[0])


def _transposed(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 2 and s.shape(x)[-1] == s.shape(x)[-2])
    order = list(range(s.rank(x)))
    return s.node("Transpose", [x], perm=[*order[:-2], order[-1], order[-2]])


OPERANDS: Dict[str, Callable[[Site, str], str]] = {
    "scalar": lambda s, x: s.weights([], "positive"),
    "one": lambda s, x: s.weights([1], "positive"),
    "ones": lambda s, x: s.weights([1] * s.rank(x), "positive"),
    "given scalar": lambda s, x: s.input([], "positive"),
    "given one": lambda s, x: s.input([1], "positive"),
    "computed scalar": _computed_scalar,
    "scalar of a shape": _scalar_of_shape,
    "row": _kind(_row, True),
    "given row": _kind(_row, False),
    "computed row": _computed_row,
    "column": _kind(_column, True),
    "given column": _kind(_column, False),
    "rows": _kind(_rows_of_all, True),
    "given rows": _kind(_rows_of_all, False),
    "channel": _kind(_channel, True),
    "given channel": _kind(_channel, False),
    "batch": _kind(_batch, True),
    "gaps": _kind(_gaps, True),
    "given gaps": _kind(_gaps, False),
    "full": lambda s, x: s.weights(s.shape(x), "positive"),
    "given full": lambda s, x: s.input(s.shape(x), "positive"),
    "higher": _kind(_higher, True),
    "given higher": _kind(_higher, False),
    "itself": lambda s, x: x,
    "its Identity": _identity,
    "its Reshape": _reshape,
    "its first row": _first_rows,
    "its last column": _last_column,
    "its Squeeze": _squeezed,
    "its Flatten": _flattened,
    "its Unsqueeze": _unsqueezed,
    "its transpose": _transposed,
}
ARITHMETIC = ("Add", "Mul", "Sub", "Div")
CORE_OPERANDS = {"scalar", "row", "given row", "column", "given full", "itself", "its Identity", "one"}


def _binary(op: str, operand: Callable[[Site, str], str], swapped: bool, **attributes) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        other = operand(s, x)
        return s.node(op, [other, x] if swapped else [x, other], **attributes)

    return build


def _prelu(operand: Callable[[Site, str], str]) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        slope = operand(s, x)
        s.need(s.rank(slope) <= s.rank(x))
        return s.node("PRelu", [x, slope])

    return build


# Add and Mul give their operand now on this side, now on that one; the others on both.
for _i, (_name, _operand) in enumerate(OPERANDS.items()):
    for _op in ARITHMETIC:
        _core = _name in CORE_OPERANDS and (_op in ("Mul", "Add") or _name in ("row", "itself"))
        _tags = ("core", "point") if _core else ("point",)
        if _op in ("Add", "Mul"):
            add(f"{_op} {_name}", _binary(_op, _operand, (_i + (_op == "Mul")) % 2 == 1), *_tags)
            continue
        add(f"{_op} {_name}", _binary(_op, _operand, False), *_tags)
        if _name not in ("itself", "one", "ones", "given one"):
            add(f"{_op} {_name}, swapped", _binary(_op, _operand, True), "point")

for _op in ("Max", "Min", "Pow", "PRelu", "Sum", "Mean"):
    for _name in ("scalar", "one", "row", "given row", "column", "given full", "its Identity", "channel"):
        if _op == "PRelu" and _name == "its Identity":
            continue
        if _op == "PRelu":  # A slope has at most the rank of what it is for.
            add(f"{_op} {_name}", _prelu(OPERANDS[_name]), "point")
        else:
            add(f"{_op} {_name}", _binary(_op, OPERANDS[_name], False), "point")
add("Mod row", _binary("Mod", OPERANDS["row"], False, fmod=1), "point")
add("Sum of three", lambda s, x: s.node("Sum", [x, OPERANDS["row"](s, x), x]), "point")
add("Clip", lambda s, x: s.node("Clip", [x, s.constant(np.float32(-0.613)), s.constant(np.float32(0.877))]),
    "core", "point")  # fmt: skip
add("Clip below", lambda s, x: s.node("Clip", [x, s.constant(np.float32(0.1234))]), "point")
add("Clip above, given", lambda s, x: s.node("Clip", [x, "", s.input([], "positive")]), "point")
add("Square by Pow", lambda s, x: s.node("Pow", [x, s.constant(np.float32(2))]), "core", "point")
add("Root by Pow", lambda s, x: s.node("Pow", [x, s.constant(np.float32(0.5))]), "point")


def _where(s: Site, x: str) -> str:
    mask = s.node("Greater", [x, s.constant(np.float32(0.123))])
    return s.node("Where", [mask, x, s.constant(np.float32(-0.7771))])


def _masked(s: Site, x: str) -> str:
    mask = s.constant(s.rng.random(s.shape(x)[-1:]) < 0.5)
    return s.node("Where", [mask, x, s.constant(np.float32(-1e4))])


def _gate(s: Site, x: str) -> str:
    """x or nothing, by a bool that becomes a number."""
    mask = s.node("Cast", [s.node("Less", [x, s.constant(np.float32(0.321))])], to=1)
    return s.node("Mul", [x, mask])


add("Where", _where, "core", "point")
add("Where by a row", _masked, "point")
add("Mul of a comparison", _gate, "point")


# What reads two branches.


def _merge(op: str, swapped: bool = False) -> Callable[[Site, str, str], str]:
    return lambda s, x, y: s.node(op, [y, x] if swapped else [x, y])


for _op in ("Add", "Mul", "Sub", "Div", "Max", "Min", "Sum"):
    add_merge(_op, _merge(_op))
    if _op in ("Mul", "Sub", "Div"):
        add_merge(f"{_op}, swapped", _merge(_op, True))
add_merge("Where", lambda s, x, y: s.node("Where", [s.node("Less", [x, y]), x, y]))


def _slope(s: Site, x: str, y: str) -> str:
    """y is a slope for x, of which it cannot make more elements."""
    s.need(s.rank(y) <= s.rank(x) and all(n in (1, m) for n, m in zip(s.shape(y)[::-1], s.shape(x)[::-1])))
    return s.node("PRelu", [x, y])


add_merge("PRelu", _slope)
