"""What graphs are made of, and which shape and opset they are built for.

A recipe is a list of steps; each names a form and the values that it reads: 0 is the input x, n what step n made. On
which shape and in which opset it is built is taken in turn, so that all of them meet all kinds of forms; where a form
has no meaning, the next shape is tried, up to all of them."""

from __future__ import annotations

import dataclasses
import functools
import math
import zlib
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

from fuzz.graph import Graph

from . import shapes
from .site import Shape, Site, Unfit
from .table import FORMS, MERGES

OPSETS = (11, 17, 26)  #: The last is the newest that ONNX Runtime reads, too.

#: What these make of NaN is not defined.
CHOOSING = {"Hardmax", "ArgMax", "ArgMin", "TopK", "MaxPool", "GlobalMaxPool"}

Step = Tuple[str, Tuple[int, ...]]


class Recipe(NamedTuple):
    """What a graph is made of."""

    steps: Tuple[Step, ...]
    shown: Tuple[int, ...] = ()  #: Steps whose values are outputs, beside the last one's.


class Piece(NamedTuple):
    """What a form makes of shapes."""

    shape: Shape
    key: bytes


class Plan(NamedTuple):
    """A recipe with the shape and the opset that it is built for."""

    number: int
    stage: str
    recipe: Recipe
    shape: Shape
    opset: int

    def graph(self) -> Graph:
        """The graph itself, the same in every process. Raises Unfit where its values are not defined."""
        site, outputs = self._built()
        positive = site.has_nan  # It says little, and hides what becomes of other values.
        if positive:
            site, outputs = self._built(positive=True)
        if CHOOSING & {node.op_type for node in site.nodes}:
            site.need(not site.has_nan and not self._built(positive, 1)[0].has_nan)
        return site.graph(self.number, outputs)

    def _built(self, positive: bool = False, shown: int = 0) -> Tuple[Site, List[str]]:
        site = Site(self.opset, [self.shape], self.number, positive=positive, shown=shown)
        values = list(site.sources)
        for name, operands in self.recipe.steps:
            values.append(_build(site, name, [values[i] for i in operands]))
        return site, list(dict.fromkeys(values[i] for i in (*self.recipe.shown, len(values) - 1)))

    def __str__(self) -> str:
        steps = "; ".join(
            f"{i + 1}: {name} of {', '.join(map(str, of))}" for i, (name, of) in enumerate(self.recipe.steps)
        )
        return f"graph {self.number} ({self.stage}, opset {self.opset}, x {list(self.shape)}): {steps}"


def _build(site: Site, name: str, operands: Sequence[str]) -> str:
    return FORMS[name].build(site, operands[0]) if name in FORMS else MERGES[name](site, *operands)


@functools.lru_cache(None)
def piece(name: str, given: Tuple[Shape, ...], opset: int) -> Optional[Piece]:
    """What becomes of operands of these shapes; None where the form has no meaning."""
    site = Site(opset, given)
    try:
        output = _build(site, name, site.sources)
    except Unfit:
        return None
    return Piece(site.shape(output), site.key([output]))


@dataclasses.dataclass
class Stage:
    """All combinations of some lists of forms, each `turns` times on other shapes."""

    name: str
    lists: Tuple[Sequence[str], ...]
    recipe: Callable[..., Recipe]
    turns: int = 1
    shapes: Sequence[Shape] = dataclasses.field(default_factory=lambda: shapes.TURNS)
    every: int = 1  #: Of the combinations, one in so many.
    first: int = 0  #: The number of its first graph.
    judges: Tuple[str, ...] = ("engines",)

    def __len__(self) -> int:
        return math.prod(map(len, self.lists)) * self.turns // self.every

    def _turn(self, index: int) -> Tuple[Recipe, int, int]:
        index, turn = divmod(index, self.turns)
        index = index * self.every + zlib.crc32(b"%d" % index) % self.every
        chosen = []
        for names in reversed(self.lists):
            index, i = divmod(index, len(names))
            chosen.append(names[i])
        chosen.reverse()
        return self.recipe(*chosen), zlib.crc32(repr(chosen).encode()), turn

    def plan(self, index: int) -> Optional[Tuple[Plan, tuple]]:
        """The plan, and what is equal for equivalent graphs; None where no shape fits."""
        recipe, start, turn = self._turn(index)
        count = len(self.shapes)
        for i in range(count):
            shape = self.shapes[(start + turn * (count // self.turns or 1) + i) % count]
            for k in range(len(OPSETS)):
                opset = OPSETS[(start // count + turn + k) % len(OPSETS)]
                key = _key(recipe, shape, opset)
                if key is not None:
                    return Plan(self.first + index, self.name, recipe, shape, opset), key
        return None


def _key(recipe: Recipe, shape: Shape, opset: int) -> Optional[tuple]:
    made: List[Shape] = [shape]
    keys = []
    for name, operands in recipe.steps:
        found = piece(name, tuple(made[i] for i in operands), opset)
        if found is None:
            return None
        made.append(found.shape)
        keys.append((found.key, operands))
    return (opset, shape, tuple(keys), recipe.shown)


# Recipes.


def chain(*names: str) -> Recipe:
    """One after the other."""
    return Recipe(tuple((name, (i,)) for i, name in enumerate(names)))


def shown(*names: str) -> Recipe:
    """The same with the first value as an output."""
    return chain(*names)._replace(shown=(1,))


def triangle(merge: str, f: str, g: str) -> Recipe:
    """s = f(x); merge(s, g(s))."""
    return Recipe(((f, (0,)), (g, (1,)), (merge, (1, 2))))


def side(merge: str, f: str, g: str) -> Recipe:
    """merge(x, g(f(x)))."""
    return Recipe(((f, (0,)), (g, (1,)), (merge, (0, 2))))


def diamond(merge: str, f: str, g: str) -> Recipe:
    """merge(f(x), g(x))."""
    return Recipe(((f, (0,)), (g, (0,)), (merge, (1, 2))))


def idiom(f: str, row: str, merge: str, g: str) -> Recipe:
    """s = f(x); g(merge(s, row(s))), as normalizations are written out."""
    return Recipe(((f, (0,)), (row, (1,)), (merge, (1, 2)), (g, (3,))))


def in_turn(recipe: Callable[..., Recipe], merges: Sequence[str]) -> Callable[..., Recipe]:
    """The merges one after the other instead of all."""
    return lambda *names: recipe(merges[zlib.crc32(repr(names).encode()) % len(merges)], *names)
