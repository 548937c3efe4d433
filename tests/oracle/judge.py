"""Whether an implementation computed what the rules allow."""

from __future__ import annotations

import typing

import numpy as np

from .model import NUMPY_TYPES
from .values import FLOATS, T

_BITS = {T.FLOAT: 23, T.FLOAT16: 10, T.BFLOAT16: 7, T.DOUBLE: 52}


class Outcome(typing.NamedTuple):
    """`expected`, and how far from it each element may lie: 0 where all bits are determined, inf where none is."""

    expected: np.ndarray  #: float64 for all float types.
    bound: np.ndarray
    type: int  #: An onnx.TensorProto.DataType.


def judge(outcome: Outcome, actual: np.ndarray) -> str | None:
    """None, or what is wrong and where."""
    expected, bound = outcome.expected, outcome.bound
    actual = np.asarray(actual)
    if actual.shape != expected.shape:
        return f"expected the shape {expected.shape}, got {actual.shape}"
    if outcome.type in NUMPY_TYPES and actual.dtype != NUMPY_TYPES[outcome.type]:
        return f"expected elements of {np.dtype(NUMPY_TYPES[outcome.type])}, got {actual.dtype}"
    if actual.size == 0:
        return None
    got = actual.astype(np.float64) if outcome.type in FLOATS else actual
    with np.errstate(all="ignore"):
        if outcome.type in FLOATS:
            off = np.abs(got - expected)
            same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        else:
            off = np.abs(got.astype(np.float64) - expected.astype(np.float64))
            same = got == expected
        wrong = ~same & ~(off <= bound * (1 + 2.0**-20)) & ~np.isinf(bound)
    if not wrong.any():
        return None
    worst = np.unravel_index(np.argmax(np.where(wrong, np.where(np.isnan(off), np.inf, off), -1)), expected.shape)
    place = [int(i) for i in worst]
    return (
        f"{int(wrong.sum())} of {actual.size} elements are wrong; at {place}: expected {expected[worst]!r} within "
        f"{float(bound[worst]):.3g}, got {got[worst]!r}"
    )
