"""Which steps of the pipeline a graph goes through, and what they find."""

from __future__ import annotations

from collections import Counter
from typing import Callable, Dict, Iterator, List, Optional

import numpy as np

from . import conversions, searches
from .checks import LEVELS, Failure
from .graph import Graph
from .steps import ANSWER, CONVERT, KEPT, LONG_NAMES, NARROW, SEARCH, Broken, RefusedTruly, Step

STAGES: Dict[str, Callable[[Step, Graph, Counter], List[Broken]]] = {
    CONVERT: conversions.carry_out, ANSWER: searches.say_again, SEARCH: searches.find, KEPT: searches.keep_all,
}  # fmt: skip
PROGRAM_SHARE = 0.08  #: Of the answers: a process takes as long as ten of the others.


class PipelineChecks:
    """The steps of one graph; which choices they make is decided by its seed."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.counts: Counter = Counter()  #: What passed, and what was refused truly.
        self._rng = np.random.default_rng([graph.seed, 80])

    def _one_of(self, options):  # type: ignore[no-untyped-def]
        return options[int(self._rng.integers(len(options)))]

    def ways(self) -> Iterator[Step]:
        """All steps. Names of layers come from an engine: those that have a precision."""
        import ulpscope

        try:
            layers = ulpscope.Engine(self.graph.model(), precision="fp16", threads=1).layers
        except RuntimeError:  # What the other fuzz says.
            self.counts["refused by Engine"] += 1
            return
        floats = [(l.name, l.op) for l in layers if l.precision in NARROW]
        yield self._conversion(["fp16"], floats)
        yield self._conversion(["bf16"], floats)
        yield self._mixture(floats)
        yield self._conversion(self._one_of([["int8"], ["int8", "fp16"], ["int8", "bf16"]]), floats)
        yield self._answer(self._one_of([["fp16"], ["fp16"], ["bf16"], ["int8", "fp16"], ["int8"]]), floats)
        for precisions in (["fp16"], self._one_of([["bf16"], ["int8", "fp16"], ["int8"]])):
            yield Step(
                SEARCH, precisions, self._one_of(LEVELS), objective=self._one_of(["smallest", "cheapest", "fastest"]),
                share=self._one_of([0.05, 0.3, 0.7, 0.95, 2.0]), held_out=self._one_of([0, 0, 1, 3]),
                seed=int(self._rng.integers(1 << 30)),
            )  # fmt: skip
        yield Step(KEPT, ["fp16"], self._one_of(LEVELS), seed=int(self._rng.integers(1 << 30)))

    def _some(self, floats: List) -> List[str]:
        """Names of layers, operators, and now and then a pattern."""
        picked = [each for each in floats if self._rng.random() < self._one_of([0.1, 0.3, 0.6])]
        return [
            name if (form := self._rng.random()) < 0.7 else op if form < 0.9 else f"*_{op[: len(op) // 2 + 1]}*"
            for name, op in picked
        ]

    def _conversion(self, precisions: List[str], floats: List) -> Step:
        step = Step(CONVERT, precisions, self._one_of(LEVELS))
        form = self._rng.random()
        if form < 0.35:
            step.keep = self._some(floats)
        elif form < 0.6:
            step.lower = self._some(floats)
        elif form < 0.7:
            step.lower, step.keep = self._some(floats), self._some(floats)
        return step

    def _mixture(self, floats: List) -> Step:
        precisions = self._one_of([["fp16"], ["bf16"], ["fp16", "bf16"], ["fp16", "bf16"]])
        allowed = ["float32", *(LONG_NAMES[each] for each in precisions)]
        types = {name: self._one_of(allowed) for name, _ in floats if self._rng.random() < 0.7}
        return Step(CONVERT, precisions, self._one_of(LEVELS), types=types)

    def _answer(self, precisions: List[str], floats: List) -> Step:
        program = bool(self._rng.random() < PROGRAM_SHARE)
        return Step(ANSWER, precisions, self._one_of(LEVELS), self._some(floats), program=program)

    def found(self, step: Step) -> List[Failure]:
        """All that is wrong with one step."""
        try:
            broken = STAGES[step.stage](step, self.graph, self.counts)
        except Broken as one:
            broken = [one]
        except RefusedTruly as refused:
            self.counts[f"refused, {step.stage}: {refused}"] += 1
            broken = []
        return [Failure(each.kind, each.text, step, each.what) for each in broken]

    def failures(self, before: Callable[[Optional[Step]], None] = lambda step: None) -> List[Failure]:
        """One failure per kind and cause; `before` hears of each step before it is tried."""
        causes: Dict[tuple, Failure] = {}
        for step in self.ways():
            before(step)
            for failure in self.found(step):
                causes.setdefault((failure.kind, failure.cause), failure)
        return list(causes.values())
