"""Whether outputs are right in float32: as ONNX Runtime has them, or else as double arithmetic allows."""

from __future__ import annotations

from typing import List, Optional, Tuple

import numpy as np

import oracle

from .graph import Arrays, Graph, onnxruntime_run
from .reference import Reference

RELATIVE = 1e-5  #: Of the element: some hundred units in the last place, before anything is asked of the reference.
USUAL = 1e-5  #: Of the tensor's usual size: what sums of some thousand products lose at most.


def close(got: np.ndarray, want: np.ndarray) -> bool:
    """The same shape and type, infinities and NaN at the same places, and numbers within the two tolerances."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if want.dtype.kind != "f":
        return bool((got == want).all())
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return False
    a, b = got[finite].astype(np.float64), want[finite].astype(np.float64)
    if not b.size:
        return True
    limit = RELATIVE * np.abs(b) + USUAL * np.sqrt(np.mean(b * b)) + 1e-37
    return bool((np.abs(a - b) <= limit).all())  # NaN and infinities of `got` are in no limit.


def within(got: np.ndarray, exact: np.ndarray, bound: np.ndarray) -> bool:
    """Every element lies within its bound of the exact value, or is what the exact value is in float32."""
    if got.shape != exact.shape:
        return False
    a, x = got.astype(np.float64), exact.astype(np.float64)
    with np.errstate(all="ignore"):
        narrow = exact.astype(got.dtype).astype(np.float64)
        equal = (a == x) | (a == narrow) | (np.isnan(a) & np.isnan(x))
        limit = bound + 1e-37
        if got.dtype.kind == "f":
            limit = limit + RELATIVE / 10 * np.abs(x)
        # Beyond float32 the exact value says nothing about what became of it.
        beyond = (np.abs(x) > 3e38) & ~np.isfinite(a)
        return bool((equal | beyond | (np.abs(a - x) <= limit) | np.isinf(bound)).all())


def deviation(got: np.ndarray, want: np.ndarray) -> str:
    """How two outputs differ, in words."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    with np.errstate(all="ignore"):
        a, b = got.astype(np.float64), want.astype(np.float64)
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        apart = np.where(np.isnan(apart), np.inf, apart)
    worst = np.unravel_index(int(apart.argmax()), apart.shape)
    count = int((apart > 0).sum())
    place = [int(i) for i in worst]
    return f"differs in {count} of {apart.size} elements, most at {place}: {a[worst]:.9g}, expected {b[worst]:.9g}"


class Judge:
    """Knows what a graph's outputs are for one of its feeds."""

    def __init__(self, graph: Graph, feed: Arrays) -> None:
        self._graph, self._feed = graph, feed
        self._wanted: List[np.ndarray] = onnxruntime_run(graph.model(), feed)
        self._ruled: Optional[dict] = None
        self._bounds = None
        self._reference: Optional[Reference] = None
        self._choices: Optional[List[Tuple[np.ndarray, np.ndarray]]] = None
        self._optimized: Optional[List[np.ndarray]] = None

    def fault(self, outputs: List[np.ndarray]) -> str:
        """What is wrong with these outputs in float32; nothing if they are right."""
        for i, (got, want) in enumerate(zip(outputs, self._wanted)):
            if not close(got, want) and not self._excused(i, got):
                return f"output {self._graph.outputs[i]} {deviation(got, want)}"
        return ""

    def _wider(self) -> List[Tuple[np.ndarray, np.ndarray]]:
        """The bounds with what further runs choose; these take time, and few outputs need them."""
        if self._choices is None:
            self._choices = self._reference.wider(self._bounds, self._feed)
        return self._choices

    def _excused(self, index: int, got: np.ndarray) -> bool:
        """ONNX Runtime is not the last word: the oracle, double arithmetic and its optimized graph have one, too."""
        if self._ruled is None:
            try:
                self._ruled = oracle.run(self._graph.model(), self._feed, fusion="none")
            except Exception:  # It has no rule for something here, or fails: its own tests judge it.
                self._ruled = {}
        ruled = self._ruled.get(self._graph.outputs[index])
        if ruled is not None and not np.isinf(ruled.bound).all() and oracle.judge(ruled, got) is None:
            return True
        if self._bounds is None:
            try:
                self._reference = Reference(self._graph)
                self._bounds = self._reference.bounds(self._feed)
            except Exception:  # onnx.reference lacks an operator or a form of it
                self._bounds = []
        if self._bounds:
            if within(got, *self._bounds[index]) or within(got, *self._wider()[index]):
                return True
            if within(self._wanted[index], *self._bounds[index]):
                return False
            # onnx.reference agrees with nobody: it has its own defects.
        if self._optimized is None:
            self._optimized = onnxruntime_run(self._graph.model(), self._feed, optimize=True)
        want = self._wanted[index]
        if got.shape != want.shape or got.dtype != want.dtype:
            return False
        if close(got, self._optimized[index]):
            return True
        if want.dtype.kind != "f" or not np.array_equal(np.isfinite(got), np.isfinite(want)):
            return False
        finite = np.isfinite(want)
        return bool((np.abs(got - want)[finite] <= 1e-3 * np.abs(want[finite]).max(initial=1e-30)).all())
