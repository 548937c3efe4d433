"""Carries out a graph in all the ways that must agree, and says which did not."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterator, List, Optional

import numpy as np

from .graph import Arrays, Graph, all_nodes
from .judge import Judge, deviation

LEVELS = ("none", "pointwise", "full")
WRONG, REFUSED, INTERNAL, BITS, CRASHED = "wrong", "refused", "internal error", "other bits", "crashed"
ORACLE = "oracle failed"  #: Not ulpscope's fault.

Outputs = List[List[np.ndarray]]  #: Per feed, per output.

_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?|-?\b(inf|nan)\b")


@dataclasses.dataclass
class Way:
    """One way to carry a graph out, and with what it is compared."""

    fusion: str
    threads: int = 1
    precision: str = "fp32"
    layer_precisions: Dict[str, str] = dataclasses.field(default_factory=dict)
    against: str = "judge"  #: "judge"; "threads": one thread; "again": itself; "callers": several Python threads.

    def __str__(self) -> str:
        mixed = f", {self.layer_precisions}" if self.layer_precisions else ""
        return f"{self.precision}{mixed}, fusion {self.fusion}, {self.threads} threads, against {self.against}"


@dataclasses.dataclass
class Failure:
    """What went wrong in which way."""

    kind: str
    text: str
    way: Optional[Any] = None  #: A Way, or what another suite has in its place.
    what: str = ""  #: What was looked at, where the text has numbers alone.

    @property
    def cause(self) -> str:
        """The text without names and numbers: failures of one cause mostly share it."""
        return _NUMBER.sub("N", re.sub(r"'[^']*'", "'...'", self.what or self.text))[:200]


class _Refusal(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


def _engine(graph: Graph, way: Way, threads: Optional[int] = None):
    import ulpscope

    names = {node.name for node in all_nodes(graph.nodes)}
    return ulpscope.Engine(
        graph.model(),
        precision=way.precision,
        layer_precisions={name: p for name, p in way.layer_precisions.items() if name in names},
        fusion=way.fusion,
        threads=threads or way.threads,
    )


def _run(engine, feed: Arrays) -> List[np.ndarray]:
    return list(engine.run(feed).values())


def leave_other_values(engine, feed: Arrays) -> None:
    """Runs the engine on other numbers of the same shapes: a run that reads what it has not written finds these."""
    import ulpscope

    other = {name: -a.reshape(-1)[::-1].reshape(a.shape) if a.dtype.kind == "f" else a for name, a in feed.items()}
    with contextlib.suppress(ulpscope.Error):  # Of numbers that the graph has no answer for.
        engine.run(other)


def _all_feeds(graph: Graph, way: Way, threads: Optional[int] = None) -> Outputs:
    engine = _engine(graph, way, threads)
    results = []
    for feed in graph.feeds:
        leave_other_values(engine, feed)
        results.append(_run(engine, feed))
    return results


def _difference(graph: Graph, got: Outputs, want: Outputs) -> str:
    """Where two results have other bits."""
    for feed_got, feed_want in zip(got, want):
        for name, a, b in zip(graph.outputs, feed_got, feed_want):
            if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
                both_nan = a.shape == b.shape and a.dtype.kind == "f" and np.array_equal(a, b, equal_nan=True)
                if not both_nan:
                    return f"output {name} {deviation(a, b)}"
    return ""


def _callers(graph: Graph, way: Way) -> str:
    """Engines made by one thread and run by others, two engines and several callers at once."""
    with ThreadPoolExecutor(4) as pool:
        first, second = pool.map(lambda t: _engine(graph, way, t), (way.threads, 3 - way.threads))
        want = _run(first, graph.feeds[0])
        jobs = [pool.submit(_run, engine, graph.feeds[0]) for engine in (first, second, first, second, first)]
        for job in jobs:
            if text := _difference(graph, [job.result()], [want]):
                return text
    return ""


class Checks:
    """The ways of one graph. Results that several ways are compared with are kept."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._judges: List[Judge] = []
        self._results: Dict[str, Outputs] = {}
        #: Results in low precision that the oracle knew ("judged"), and did not know ("unjudged").
        self.counts: Counter = Counter(judged=0, unjudged=0)

    def ways(self) -> Iterator[Way]:
        """All ways; which of the rarer ones is chosen by the graph's seed."""
        rng = np.random.default_rng([self.graph.seed, 77])
        for fusion in LEVELS:
            yield Way(fusion)
            yield Way(fusion, 2, against="threads")
        yield Way(str(rng.choice(LEVELS)), 3, against="threads")
        if len(self.graph.feeds) > 1:
            yield Way("full", against="again")
        yield Way(str(rng.choice(LEVELS)), int(rng.integers(1, 3)), against="callers")
        for way in self._narrow(rng):
            yield way
            yield dataclasses.replace(way, threads=int(rng.integers(2, 4)), against="threads")

    def _narrow(self, rng: np.random.Generator) -> Iterator[Way]:
        """One precision everywhere, and a mixture of all."""
        fusion = str(rng.choice(LEVELS))
        way = Way(fusion, 1, str(rng.choice(["fp16", "bf16", "tf32"])))
        yield way
        try:
            layers = [l.name for l in _engine(self.graph, way).layers if l.precision in ("fp16", "bf16", "tf32")]
        except Exception:  # the way before says so
            return
        types = {name: str(rng.choice(["float32", "float16", "bfloat16"])) for name in layers if rng.random() < 0.5}
        if types:
            yield dataclasses.replace(way, layer_precisions=types, fusion=str(rng.choice(LEVELS)))

    def found(self, way: Way) -> List[Failure]:
        """The same as a list."""
        failure = self.check(way)
        return [failure] if failure else []

    def check(self, way: Way) -> Optional[Failure]:
        """What is wrong with the graph when it is carried out this way."""
        try:
            text = self._compare(way)
        except _Refusal as refusal:
            return dataclasses.replace(refusal.failure, way=way)
        if not text:
            return None
        return Failure(WRONG if way.against == "judge" else BITS, text, way)

    def _compare(self, way: Way) -> str:
        try:
            if way.against == "callers":
                return _callers(self.graph, way)
            got = _all_feeds(self.graph, way)
            if way.against == "threads":
                return _difference(self.graph, got, self._single(way))
            if way.against == "again":
                engine = _engine(self.graph, way)
                twice = [[_run(engine, feed) for feed in self.graph.feeds] for _ in range(2)]
                return _difference(self.graph, twice[1], got)
        except (RuntimeError, AssertionError) as error:
            kind = INTERNAL if type(error).__name__ == "InternalError" else REFUSED
            raise _Refusal(Failure(kind, str(error))) from None
        self._results[str(dataclasses.replace(way, against="judge"))] = got
        return self._judge(way, got)

    def _single(self, way: Way) -> Outputs:
        one = dataclasses.replace(way, threads=1, against="judge")
        if str(one) not in self._results:
            self._results[str(one)] = _all_feeds(self.graph, one)
        return self._results[str(one)]

    def _judge(self, way: Way, got: Outputs) -> str:
        if way.precision != "fp32" or self.graph.has_halves:
            return self._follows_the_rules(way, got)
        if not self._judges:
            self._judges = [Judge(self.graph, feed) for feed in self.graph.feeds]
        for judge, outputs in zip(self._judges, got):
            if text := judge.fault(outputs):
                return text
        return ""

    def _follows_the_rules(self, way: Way, got: Outputs) -> str:
        """What the oracle says of outputs in low precision."""
        import oracle

        model = self.graph.model()
        for feed, outputs in zip(self.graph.feeds, got):
            try:
                right = oracle.run(model, feed, way.precision, way.fusion, way.layer_precisions)
            except oracle.Unsupported:
                self.counts["unjudged"] += 1
                return ""
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{pathlib.Path(where.filename).name}, {where.name}"
                raise _Refusal(Failure(ORACLE, f"{type(error).__name__} in {place}: {error}")) from None
            self.counts["judged"] += 1
            for name, output in zip(self.graph.outputs, outputs):
                if text := oracle.judge(right[name], output):
                    return f"output {name}: {text}"
        return ""

    def failures(self, before: Callable[[Way], None] = lambda way: None) -> List[Failure]:
        """One failure per kind and cause; `before` hears of each way before it is tried."""
        found: Dict[tuple, Failure] = {}
        for way in self.ways():
            before(way)
            failure = self.check(way)
            if failure is None:
                continue
            narrow = bool(failure.way) and failure.way.precision != "fp32"
            cause = failure.cause if failure.kind in (REFUSED, INTERNAL, ORACLE) else narrow
            found.setdefault((failure.kind, cause), failure)
        return list(found.values())
