"""Values with a bound of what another order of float32 arithmetic may make of them.

An element is `v`, and another implementation of the same rules may have anything in [v - e, v + e]. Rounding to a
narrow format mends small deviations: `e` is 0 again, but next to a tie, where it becomes a unit in the last place.
"""

from __future__ import annotations

import contextlib
import typing

import numpy as np
import onnx

from .rounding import EPSILON, FLOAT32_MAX, round_to

T = onnx.TensorProto
FLOATS = (T.FLOAT, T.FLOAT16, T.BFLOAT16, T.DOUBLE)
FORM_OF = {T.FLOAT: "fp32", T.FLOAT16: "fp16", T.BFLOAT16: "bf16"}
TYPE_OF = {form: kind for kind, form in FORM_OF.items()}


class Unsupported(Exception):
    """The oracle has no rule for this yet."""


class Value(typing.NamedTuple):
    """Elements of one tensor: float64 for all float types, else NumPy's own type. `e` is None where it is 0."""

    v: np.ndarray
    type: int
    e: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.v.shape

    @property
    def is_float(self) -> bool:
        return self.type in FLOATS

    def bound(self) -> np.ndarray:
        """`e` as an array."""
        return np.zeros(self.v.shape) if self.e is None else self.e

    def moved(self, function: typing.Callable[[np.ndarray], np.ndarray]) -> Value:
        """For what moves elements: `function` is applied to the elements and to their bounds."""
        return Value(function(self.v), self.type, None if self.e is None else function(self.e))


def kept(e: np.ndarray | None) -> np.ndarray | None:
    """None when all bounds are 0."""
    return e if e is not None and e.any() else None


def deviation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b|; 0 for equal infinities and two NaN, inf where just one is NaN."""
    result = np.abs(a - b)
    nan = np.isnan(result)
    if nan.any():
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        result = np.where(nan, np.where(same, 0.0, np.inf), result)
    return result


_ANYTHING = 1e300  #: How far an element moves of which nothing is known.


def corners(function: typing.Callable[..., np.ndarray], operands: typing.Sequence[Value]) -> np.ndarray | None:
    """How far `function` moves when its operands do, one after the other; None: none of them does."""
    if all(x.e is None for x in operands):
        return None
    values = [x.v for x in operands]
    center = function(*values)
    total = np.zeros(np.shape(center))
    for i, x in enumerate(operands):
        if x.e is None:
            continue
        ends = []
        for side in (-1, 1):
            # Beyond this, anything goes.
            moved = x.v + side * np.minimum(x.e, _ANYTHING)
            ends.append(deviation(function(*values[:i], moved, *values[i + 1 :]), center))
        total = total + np.maximum(*ends)
        open_ = np.isinf(x.e)
        if open_.any():
            # Where elements are combined, what such an element reaches has moved as far as it has.
            dims = zip(open_.shape[::-1], total.shape[::-1])
            elementwise = open_.ndim <= total.ndim and all(own in (1, all_) for own, all_ in dims)
            total = np.where(open_ if elementwise else total >= _ANYTHING / 2, np.inf, total)
    return total


_noise: np.random.Generator | None = None


@contextlib.contextmanager
def noise(seed: int) -> typing.Iterator[None]:
    """While it lasts, results are not bounded but moved: every element as far as its own error allows, either way."""
    global _noise
    _noise = np.random.default_rng(seed)
    try:
        yield
    finally:
        _noise = None


def moved_by_noise(x: Value) -> Value:
    """The value, moved by its bound while there is noise."""
    if _noise is None or x.e is None or not x.is_float:
        return x
    return Value(x.v + _noise.choice([-1.0, 1.0], x.shape) * np.where(np.isinf(x.e), 0, x.e), x.type)


def result(y: np.ndarray, kind: int, moved: np.ndarray | None = None, own: np.ndarray | float | None = None) -> Value:
    """What a layer computes: `y` in float32 (float64: as it is), `moved` by its operands, with an error of its own."""
    if kind not in FLOATS:
        return Value(np.asarray(y), kind, kept(moved))
    y = np.asarray(y, np.float64)
    e = moved
    if own is not None:
        own = np.abs(np.asarray(own, np.float64))
        own = np.where(np.isfinite(own), own, 0.0)
        e = own if e is None else e + own
        e = e if e.shape == y.shape else np.broadcast_to(e, y.shape)
    if _noise is not None:
        if e is not None:
            y = y + _noise.choice([-1.0, 1.0], y.shape) * np.where(np.isfinite(e), e, 0)
        e = None
    if kind == T.DOUBLE:
        return Value(y, kind, kept(e))
    v = round_to(y, "fp32")
    e = kept(e)
    if e is not None:
        e = np.where(e <= 1e250, e * 1.01, np.inf)
        # Both this value and the other implementation's are rounded, by half a unit in the last place each.
        e = np.where(e > 0, e + np.spacing(np.where(np.isfinite(v), np.abs(v), 0).astype(np.float32)), 0.0)
        # Next to the largest float32, one order of summation overflows and another does not.
        edge = np.abs(y) + e > FLOAT32_MAX
        if edge.any():
            edge &= (np.abs(y) - e < FLOAT32_MAX * (1 + EPSILON)) & np.isfinite(y) & (e > 0)
            e = np.where(edge, np.inf, e)
    return Value(v, kind, e)


def rounded(x: Value, form: str) -> Value:
    """Stored or loaded in a format. Values that are no floats, and float64, stay what they are."""
    if not x.is_float or x.type == T.DOUBLE or form == "fp32":
        return x
    v = round_to(x.v, form)
    if x.e is None:
        return Value(v, x.type)
    low, high = round_to(x.v - x.e, form), round_to(x.v + x.e, form)
    e = np.maximum(deviation(low, v), deviation(high, v))
    return Value(v, x.type, kept(np.where(np.isinf(x.e), np.inf, e)))


def uncertain(v: np.ndarray, kind: int, where: np.ndarray | bool) -> Value:
    """Elements that may be anything where `where` holds."""
    where = np.broadcast_to(where, np.shape(v))
    return Value(v, kind, np.where(where, np.inf, 0.0) if where.any() else None)
