"""From a seed to a graph: the same seed always gives the same graph."""

from __future__ import annotations

import bisect
import itertools
from typing import Dict, List, Tuple

import numpy as np

from . import control, forms, movement, options, pointwise  # noqa: F401  (they enter recipes)
from . import products, quantized, reductions, typed, windows  # noqa: F401
from .builder import Builder, Rejected
from .graph import Graph, onnxruntime_run
from .recipes import IMAGE, MISC, RECIPES, SEQUENCE

OLDEST, NEWEST = 7, 26  #: The opsets of graphs: ONNX Runtime reads no newer ones.

_COMMON_OPSETS = (11, 13, 17, 18, 20, 21)


def _cumulative() -> Dict[str, List[float]]:
    styles = (IMAGE, SEQUENCE, MISC)
    return {style: list(itertools.accumulate(r.weights[style] for r in RECIPES)) for style in styles}


_CUMULATIVE = _cumulative()


def _pick_recipe(rng: np.random.Generator, style: str):
    sums = _CUMULATIVE[style]
    return RECIPES[bisect.bisect(sums, rng.random() * sums[-1])]


def _opset(rng: np.random.Generator) -> int:
    if rng.random() < 0.4:
        return int(rng.choice(_COMMON_OPSETS))
    return int(rng.integers(OLDEST, NEWEST + 1))


def _image(b: Builder) -> List:
    spatial = b.choice([1, 2, 2, 2, 3])
    side = b.choice([1, 2, 3, 4, 5, 7, 8, 9, 13])
    channels = side if b.chance(0.15) else b.choice([1, 2, 3, 3, 4, 5, 8, 16, 17, 33])
    sizes = [side if b.chance(0.5) else b.choice([1, 2, 3, 4, 6, 8, 11]) for _ in range(spatial)]
    return [b.choice([1, 1, 2, 3]), channels, *sizes]


def _sequence(b: Builder) -> List:
    length = b.choice([1, 2, 3, 4, 5, 8, 11])
    width = length if b.chance(0.3) else b.choice([1, 2, 4, 8, 16, 17, 33])
    lead = b.choice([[], [b.choice([1, 2, 3, length])], [b.choice([1, 2, 3, length])], [2, b.choice([1, 2, length])]])
    return [*lead, length, width]


def _misc(b: Builder) -> List:
    side = b.integer(1, 4)
    return [side if b.chance(0.6) else b.choice([1, 2, 3, 5, 7]) for _ in range(b.integer(0, 5))]


def _first_input(b: Builder, style: str) -> None:
    """The first input; with several feeds, its dimensions differ between them at one or two places."""
    dims: List = {IMAGE: _image, SEQUENCE: _sequence, MISC: _misc}[style](b)
    sizes: List[Tuple[int, ...]] = [(d,) * b.num_feeds for d in dims]
    if b.chance(0.03) and sizes:
        sizes[b.integer(0, len(sizes) - 1)] = (0,) * b.num_feeds
    if b.num_feeds > 1 and sizes:
        places = [d for d in range(len(sizes)) if style != IMAGE or d != 1]
        for place in b.rng.choice(places, min(len(places), b.integer(1, 2)), replace=False):
            sizes[int(place)] = tuple(int(n) for n in b.rng.integers(1, 7, b.num_feeds))
    b.input(sizes)


def attempt(seed: int, trial: int) -> Graph:
    """One try at a graph; raises Rejected when nothing came of it."""
    rng = np.random.default_rng([seed, trial])
    style = [IMAGE, SEQUENCE, MISC][int(rng.choice(3, p=[0.4, 0.35, 0.25]))]
    feeds = int(rng.integers(2, 4)) if rng.random() < 0.2 else 1
    b = Builder(seed * 8 + trial, _opset(rng), feeds, special=bool(rng.random() < 0.06))
    for _ in range(b.choice([1, 1, 2])):
        _first_input(b, style)
    wanted, misses = int(rng.choice([1, 2, 3, 4, 5, 6, 8])), 0
    while wanted > 0 and misses < 40:
        before = len(b.nodes)
        try:
            _pick_recipe(rng, style).make(b)
        except (Rejected, ValueError, IndexError):  # A recipe that found no place; what it began may stay.
            misses += 1
        wanted -= len(b.nodes) > before
    graph = b.finish()
    if not graph.nodes or not graph.feeds[0]:
        raise Rejected
    graph.seed = seed
    try:
        model = graph.model()
        for feed in graph.feeds:
            onnxruntime_run(model, feed)
    except Exception as error:  # Shapes that differ between branches, and the like.
        raise Rejected(str(error)) from None
    return graph


def generate(seed: int) -> Graph:
    """The graph of a seed."""
    for trial in range(8):
        try:
            return attempt(seed, trial)
        except Rejected:
            continue
    raise RuntimeError(f"no graph came of seed {seed}")
