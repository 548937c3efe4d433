"""What the fuzz of the pipeline does with one graph: conversions, answers and searches, with the choices of each."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import logging
from typing import Dict, Iterator, List, Tuple

import numpy as np

from .graph import Arrays, Graph
from .judge import deviation

CONVERT, ANSWER, SEARCH, KEPT = "convert", "answer", "search", "kept"
LONG_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
NARROW = ("fp16", "bf16")


@dataclasses.dataclass
class Step:
    """One use of the pipeline. Names in it that a graph does not have (any more) are left out."""

    stage: str
    precisions: List[str]
    fusion: str
    keep: List[str] = dataclasses.field(default_factory=list)  #: Layers, operators, patterns.
    lower: List[str] = dataclasses.field(default_factory=list)
    types: Dict[str, str] = dataclasses.field(default_factory=dict)  #: Of layers.
    program: bool = False  #: The words of the program and the script, too.
    objective: str = "smallest"
    share: float = 0.5  #: The threshold, as a share of the error of everything low.
    held_out: int = 0  #: Samples.
    seed: int = 0  #: Of samples.

    def __str__(self) -> str:
        fields = [f"{self.stage} {'+'.join(self.precisions)}, fusion {self.fusion}"]
        for name in ("keep", "lower", "types"):
            if getattr(self, name):
                fields.append(f"{name} {getattr(self, name)}")
        if self.stage == SEARCH:
            fields.append(f"{self.objective}, threshold {self.share:g} of everything low, {self.held_out} held out")
        return ", ".join(fields)

    @property
    def kind(self) -> str:
        """The step without names of layers."""
        chosen = [name for name in ("keep", "lower", "types") if getattr(self, name)]
        return " ".join([self.stage, "+".join(self.precisions), *chosen, f"fusion {self.fusion}"])


class Broken(Exception):
    """What a step found. `what`: the check, which says the cause; `text`: the details."""

    def __init__(self, kind: str, what: str, text: str) -> None:
        super().__init__(f"{what}: {text}")
        self.kind, self.what, self.text = kind, what, text


class RefusedTruly(Exception):
    """ulpscope refused what it cannot do, and says why rightly."""


def known(names: List[str], graph: Graph) -> List[str]:
    """Those that still mean something."""
    there = [node.name for node in graph.nodes] + sorted({node.op_type for node in graph.nodes})
    return [name for name in names if any(fnmatch.fnmatchcase(each, name) for each in there)]


def known_types(types: Dict[str, str], graph: Graph) -> Dict[str, str]:
    """Those of layers that are there."""
    names = {node.name for node in graph.nodes}
    return {name: each for name, each in types.items() if name in names}


@contextlib.contextmanager
def messages() -> Iterator[List[str]]:
    """What the library logs meanwhile."""
    lines: List[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("ulpscope")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def same_bits(got: Arrays, want: Arrays) -> str:
    """Where outputs have other bits; NaN is NaN. Nothing if they are the same."""
    for name, b in want.items():
        a = got[name]
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"output {name} {deviation(a, b)}"
        if a.tobytes() != b.tobytes() and not (a.dtype.kind == "f" and np.array_equal(a, b, equal_nan=True)):
            return f"output {name} {deviation(a, b)}"
        signs = a.dtype.kind == "f" and (np.signbit(a) != np.signbit(b))[~np.isnan(b)].any()
        if signs:
            return f"output {name} has zeros of another sign"
    return ""


def rel_l2(golden: Arrays, outputs: Arrays) -> float:
    """The largest |c - g| / |g| of a sample's outputs (docs/metrics.md), in double."""
    return max((_rel_l2(golden[name], outputs[name]) for name in golden), default=0.0)


def _rel_l2(golden: np.ndarray, output: np.ndarray) -> float:
    if golden.shape != output.shape:
        return np.inf
    g, c = (np.asarray(each, np.float64).ravel() for each in (golden, output))
    if not np.isfinite(c).all():
        return np.inf
    apart, size = np.linalg.norm(c - g), np.linalg.norm(g)
    return 0.0 if apart == 0 else float(apart / size) if size > 0 else np.inf


def samples_like(feed: Arrays, count: int, seed: int, spread: Tuple[float, float]) -> List[Arrays]:
    """Samples whose floats are those of `feed` times random factors; integers and bools stay."""
    rng = np.random.default_rng([seed, 79])
    return [
        {
            name: (value * rng.uniform(*spread, value.shape)).astype(value.dtype) if value.dtype.kind == "f" else value
            for name, value in feed.items()
        }
        for _ in range(count)
    ]
