"""Whether the engine computes a graph as it should, in all precisions, levels, backends and numbers of threads."""

from __future__ import annotations

import collections
import pathlib
import traceback
from typing import Dict, List, Optional, Tuple

import numpy as np
from ulpscope.native import _core, assign

import oracle
from fuzz.checks import BITS, INTERNAL, LEVELS, ORACLE, REFUSED, WRONG, Failure, Way
from fuzz.graph import Graph, onnxruntime_run
from fuzz.judge import Judge as FuzzJudge
from fuzz.judge import close, deviation

from .recipes import Plan
from .site import Unfit

SHOWS_THROUGH = "an earlier input shows through"

#: The order in which an engine runs the inputs. The second one meets what the first one left, and the third run has to
#: be the first one again.
RUNS = (0, 1, 0)
#: That of a second engine: the other input is the first one here.
OTHER_RUNS = (1, 0)

Outputs = List[np.ndarray]


def same_bits(a: Outputs, b: Outputs) -> bool:
    """Equal types, shapes and bits; any NaN is as good as another."""
    return all(
        x.dtype == y.dtype
        and x.shape == y.shape
        and (x.tobytes() == y.tobytes() or (x.dtype.kind == "f" and _equal_bits(x, y)))
        for x, y in zip(a, b)
    )


def _equal_bits(x: np.ndarray, y: np.ndarray) -> bool:
    nan = np.isnan(x)
    return bool((nan == np.isnan(y)).all()) and x[~nan].tobytes() == y[~nan].tobytes()


class Judge:
    """What is wrong with the graph of a plan. `counts` says what was looked at."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.graph: Graph = plan.graph()
        self.model = self.graph.model()
        self.counts: collections.Counter = collections.Counter()
        self.failures: Dict[tuple, Failure] = {}
        self._oracle: Dict[tuple, Optional[dict]] = {}
        self._outputs: Outputs = []  #: Of the engine that ran last.

    def note(self, kind: str, text: str, way: Optional[Way]) -> None:
        """A failure; one per kind and cause is kept."""
        failure = Failure(kind, text, way)
        cause = failure.cause if kind in (REFUSED, INTERNAL, ORACLE) else (way.precision if way else "")
        self.failures.setdefault((kind, cause), failure)

    # Engines.

    def run(self, way: Way, runs: Tuple[int, ...] = RUNS, backend: str = "cpu") -> Optional[List[Outputs]]:
        """The outputs for both sets of inputs of an engine that ran them in this order; None where it did not."""
        self.counts["engines"] += 1
        try:
            options = _core.EngineOptions()
            assign(
                options, precision=way.precision, layer_precisions=way.layer_precisions, fusion=way.fusion,
                threads=way.threads, backend=backend,
            )  # fmt: skip
            engine = _core.Engine.from_bytes(self.model, options)
            results: Dict[int, Outputs] = {}
            for i in runs:
                outputs = engine.run(list(self.graph.feeds[i].values()), {})
                if i in results and not same_bits(outputs, results[i]):
                    self.note(WRONG, f"{SHOWS_THROUGH}: {self.difference(outputs, results[i])}", way)
                results[i] = self._outputs = outputs
        except (RuntimeError, AssertionError) as error:
            self.note(INTERNAL if type(error).__name__ == "InternalError" else REFUSED, str(error), way)
            return None
        return [results[0], results[1]]

    def difference(self, got: Outputs, want: Outputs) -> str:
        """Where two results differ."""
        for name, a, b in zip(self.graph.outputs, got, want):
            if not same_bits([a], [b]):
                return f"output {name} {deviation(a, b)}"
        return ""

    # What is right.

    def rules(self, way: Way, feed: int) -> Optional[dict]:
        """What the oracle says of a set of inputs."""
        key = (way.precision, way.fusion, tuple(way.layer_precisions.items()), feed)
        if key not in self._oracle:
            self._oracle[key] = self.consult(self.model, way, feed)
        return self._oracle[key]

    def consult(self, model: bytes, way: Way, feed: int) -> Optional[dict]:
        """What the oracle says of a model on a set of inputs; None where it has no say."""
        try:
            return oracle.run(model, self.graph.feeds[feed], way.precision, way.fusion, way.layer_precisions)
        except oracle.Unsupported:
            self.counts["outside of the oracle"] += 1
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{pathlib.Path(where.filename).name}, {where.name}"
            self.note(ORACLE, f"{type(error).__name__} in {place}: {error}", way)
        return None

    def fault(self, way: Way, feed: int, outputs: Outputs) -> Optional[str]:
        """What the oracle finds wrong; None if nothing is, or if it has no say."""
        outcomes = self.rules(way, feed)
        if outcomes is None:
            return None
        self.counts["judged by the oracle"] += 1
        for name, output in zip(self.graph.outputs, outputs):
            if text := oracle.judge(outcomes[name], output):
                return f"output {name}, inputs {'AB'[feed]}: {text}"
        return None

    # Ways.

    def engines(self) -> None:
        """All engines that a graph is tried on."""
        self._float32()
        number = self.plan.number
        levels = ("none", "full", "pointwise", "full")
        self._narrow("fp16", levels[number % 4], number // 4 % 2)
        self._narrow("bf16", levels[(number + 1) % 4], 1 - number // 4 % 2)
        if len(self.graph.nodes) > 1:
            self._mixed()

    def in_turn(self) -> None:
        """`engines` for one graph in three, `light` for the others."""
        if self.plan.number // 12 % 3 == 0:
            self.engines()
        else:
            self.light()

    def light(self) -> None:
        """One engine that fuses, in float32, and one that rounds."""
        number = self.plan.number
        way, feed = Way("full" if number % 2 else LEVELS[number // 2 % 3]), number // 2 % 2
        got = self.run(way)
        if got is not None:
            self._judge_float32(Way("none"), way, feed, got[feed])
        way = Way(LEVELS[number // 4 % 3], 1, ("fp16", "bf16")[number % 2])
        got = self.run(way)
        if got is not None and (text := self.fault(way, feed, got[feed])):
            self.note(WRONG, text, way)

    def _float32(self) -> None:
        exact = Way("none")  # Nothing is rounded in float32: one judgement for all levels.
        known: List[List[Outputs]] = []
        for fusion in LEVELS:
            way = Way(fusion)
            got = self.run(way)
            if got is None:
                continue
            if not any(same_bits(got[0], k[0]) and same_bits(got[1], k[1]) for k in known):
                known.append(got)
                for feed in (0, 1):
                    self._judge_float32(exact, way, feed, got[feed])
            if fusion == "full":
                self._again(Way(fusion, 2, against="threads"), got)
        plain = self.run(Way("full", against="plain"), OTHER_RUNS, "plain")
        for feed in (0, 1) if plain is not None else ():
            self._judge_float32(exact, Way("full", against="plain"), feed, plain[feed])

    def _again(self, way: Way, want: List[Outputs]) -> None:
        """With more threads, and with the other input first: the same bits."""
        got = self.run(way, OTHER_RUNS)
        for a, b in zip(got or (), want):
            if text := self.difference(a, b):
                self.note(BITS, text, way)

    def _judge_float32(self, exact: Way, way: Way, feed: int, outputs: Outputs) -> None:
        if text := self.fault(exact, feed, outputs):
            theirs = self.onnxruntime(feed)
            if theirs is not None and all(close(a, b) for a, b in zip(outputs, theirs)):
                self.note(ORACLE, f"ONNX Runtime sides with the engine: {text}", way)
            else:
                self.note(WRONG, text, way)
            return
        if (feed or self.plan.number % 3) and self.rules(exact, feed) is not None:
            return
        theirs = self.onnxruntime(feed)
        if theirs is None or all(close(a, b) for a, b in zip(outputs, theirs)):
            return
        if self.rules(exact, feed) is None:
            # Its MeanVarianceNormalization takes a variance for a difference of squares, which may be below 0.
            operators = {node.op_type for node in self.graph.nodes}
            roots = "MeanVarianceNormalization" in operators
            # A state beside a tie becomes one byte here, and another there. The oracle has no bound of FusedMatMul's
            # sums: a reciprocal of what they leave of each other is anything.
            left_open = "DynamicQuantizeLSTM" in operators or {"FusedMatMul", "Reciprocal"} <= operators
            lost = roots and any(np.isnan(b).any() and not np.isnan(a).any() for a, b in zip(outputs, theirs))
            if lost or left_open:
                self.counts["ONNX Runtime differs from the oracle"] += 1
            elif FuzzJudge(self.graph, self.graph.feeds[feed]).fault(outputs):  # By float64 arithmetic, too.
                self.note(WRONG, f"by ONNX Runtime: {self._apart(outputs, theirs)}", way)
        elif self.fault(exact, feed, theirs):
            self.counts["ONNX Runtime differs from the oracle"] += 1

    def _apart(self, outputs: Outputs, theirs: Outputs) -> str:
        return next(deviation(a, b) for a, b in zip(outputs, theirs) if not close(a, b))

    def onnxruntime(self, feed: int) -> Optional[Outputs]:
        """Its outputs; None where it has none, or crashes on empty tensors."""
        given = (*self.graph.feeds[feed].values(), *self.graph.constants.values(), *self._outputs)
        if any(value.size == 0 for value in given):
            return None
        try:
            return onnxruntime_run(self.model, self.graph.feeds[feed])
        except Exception:  # ONNX Runtime's own kinds of errors share no base but this.
            self.counts["refused by ONNX Runtime"] += 1
            return None

    def _narrow(self, precision: str, fusion: str, feed: int) -> None:
        way = Way(fusion, 1, precision)
        got = self.run(way)
        if got is None:
            return
        if text := self.fault(way, feed, got[feed]):
            self.note(WRONG, text, way)
        plain = self.run(way, OTHER_RUNS, "plain")
        for i in range(2) if plain is not None else ():
            if same_bits(plain[i], got[i]):
                continue
            self.counts["cpu and plain differ within the rules"] += 1
            for outputs, backend in ((plain[i], "plain"), (got[i], "judge")):
                if text := self.fault(way, i, outputs):
                    self.note(WRONG, text, Way(fusion, 1, precision, against=backend))
        if precision == "bf16":
            self._again(Way(fusion, 2, precision, against="threads"), got)

    def _mixed(self) -> None:
        """Layers of two precisions in one graph."""
        number = self.plan.number
        names = [node.name for node in self.graph.nodes if _computes(node.op_type)]
        base, other = (
            ("fp16", "float32"),
            ("bf16", "float32"),
            ("fp16", "bfloat16"),
            ("bf16", "float16"),
            ("fp32", "float16"),
        )[number % 5]
        chosen = {name: other for i, name in enumerate(names) if (number // 5 + i) % 2}
        if not chosen:
            return
        way = Way(LEVELS[1 + number % 2], 1, base, chosen)
        got = self.run(way)
        if got is None:
            return
        feed = number // 3 % 2
        if text := self.fault(way, feed, got[feed]):
            self.note(WRONG, text, way)


#: Layers without float arithmetic: no precision can be asked for.
_FIXED = {
    "Constant", "Shape", "Size", "ArgMax", "ArgMin", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear",
    "MatMulInteger", "If", "Loop", "Scan", "Cast", "Greater", "Less", "Compress", "Gather",
}  # fmt: skip


def _computes(op: str) -> bool:
    return op not in _FIXED


def failures_of(plan: Plan, judges: Tuple[str, ...]) -> Tuple[List[Failure], collections.Counter]:
    """What is wrong with a plan's graph, and what was looked at."""
    try:
        judge = Judge(plan)
    except Unfit:
        return [], collections.Counter({"without defined values": 1})
    for name in judges:
        if name in ("engines", "in_turn", "light"):
            getattr(judge, name)()
        else:
            from . import elements, further

            getattr(elements if name == "elements" else further, name)(judge)
    return list(judge.failures.values()), judge.counts
