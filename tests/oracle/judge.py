"""Whether an implementation computed what the rules allow."""

from __future__ import annotations

import typing

import numpy as np

from .model import NUMPY_TYPES
from .values import FLOATS, T, Unsupported

_BITS = {T.FLOAT: 23, T.FLOAT16: 10, T.BFLOAT16: 7, T.DOUBLE: 52}


class Outcome(typing.NamedTuple):
    """`expected`, and how far from it each element may lie: 0 where all bits are determined, inf where none is."""

    expected: np.ndarray  #: float64 for all float types.
    bound: np.ndarray
    type: int  #: An onnx.TensorProto.DataType.
    #: The values of a run whose results are all moved a little, by a seed.
    sample: typing.Callable[[int], np.ndarray] | None = None


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
        return _spread(outcome, got) if outcome.type in FLOATS else None
    worst = np.unravel_index(np.argmax(np.where(wrong, np.where(np.isnan(off), np.inf, off), -1)), expected.shape)
    place = [int(i) for i in worst]
    return (
        f"{int(wrong.sum())} of {actual.size} elements are wrong; at {place}: expected {expected[worst]!r} within "
        f"{float(bound[worst]):.3g}, got {got[worst]!r}"
    )


#: Runs that are looked at before anything is said; the deviation that is allowed, as a multiple of theirs.
_RUNS, _ALLOWED = 24, 1.5
#: Elements that move at all, below which one more of them is no exception.
_ENOUGH = 16


def _spread(outcome: Outcome, got: np.ndarray) -> str | None:
    """Bounds add up the worst of every step, and say little after many of them. Then the deviation as a whole must be
    one that a run with as much noise has, too."""
    if outcome.sample is None or got.size < _ENOUGH:
        return None
    finite = np.isfinite(outcome.expected) & np.isfinite(got) & np.isfinite(outcome.bound)
    loose = finite & (outcome.bound > 0)
    if loose.sum() < max(_ENOUGH, 0.25 * got.size):
        return None
    off = float(np.sqrt(np.sum((got[loose] - outcome.expected[loose]) ** 2)))
    allowed = 1e-7 * float(np.sqrt(np.sum(outcome.expected[loose] ** 2))) + 1e-37
    most = 0
    for seed in range(_RUNS):
        if off <= allowed:
            return None
        try:
            run = outcome.sample(seed)
        except Unsupported:  # Values decide shapes here, and noise decides values.
            return None
        if run.shape != outcome.expected.shape:
            return None
        moved = run[loose] - outcome.expected[loose]
        most = max(most, np.count_nonzero(moved))
        allowed = max(allowed, _ALLOWED * float(np.sqrt(np.sum(np.where(np.isfinite(moved), moved, 0.0) ** 2))))
    if off <= allowed or most < _ENOUGH:
        return None
    return f"all {int(loose.sum())} elements together are {off:.3g} off, where {allowed:.3g} is what noise explains"
