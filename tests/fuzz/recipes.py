"""The table of recipes: functions that add a few nodes to a builder, each with its weight."""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Tuple

import numpy as np

from .builder import Builder

IMAGE, SEQUENCE, MISC = "image", "sequence", "misc"
STYLES = (IMAGE, SEQUENCE, MISC)


class Recipe(NamedTuple):
    """`weights`: how often, per style of graph."""

    make: Callable[[Builder], None]
    weights: Dict[str, float]


RECIPES: List[Recipe] = []


def recipe(weight: float, styles: Tuple[str, ...] = STYLES) -> Callable:
    """Enters a function into the table; styles that are not named have a tenth of the weight."""

    def enter(make: Callable[[Builder], None]) -> Callable[[Builder], None]:
        RECIPES.append(Recipe(make, {style: weight if style in styles else weight / 10 for style in STYLES}))
        return make

    return enter


def axis_of(b: Builder, rank: int, low: int = 0) -> int:
    """An axis, counted from either end."""
    axis = b.integer(low, rank - 1)
    return axis - rank if b.chance(0.4) else axis


def signed(b: Builder, axes: List[int], rank: int) -> List[int]:
    """The same axes, some counted from the end (in opsets that allow it)."""
    return [axis - rank if b.opset >= 11 and b.chance(0.4) else axis for axis in axes]


def axes_inputs(b: Builder, axes: List[int], since: int) -> Tuple[List[str], Dict[str, List[int]]]:
    """Axes as an input from opset `since`, as an attribute before: (inputs, attributes)."""
    return ([b.ints(*axes)], {}) if b.opset >= since else ([], {"axes": axes})


def axes_of_reduction(b: Builder, x: str, axes: List[int]) -> List[int]:
    """These axes, none of them negative where x is empty: ONNX Runtime forgets such ones then."""
    return axes if all(v.size for v in b.values[x]) else sorted(axis % b.rank(x) for axis in axes)


def scalar(b: Builder, value: float) -> str:
    """A constant of one element, of rank 0 or 1."""
    return b.constant(np.full((1,) * b.integer(0, 1), value, np.float32))


def broadcast_dims(b: Builder, dims: List[Tuple[int, ...]]) -> List:
    """Dimensions of something that broadcasts with `dims`, in one of the common ways or any other."""
    rank, one = len(dims), (1,) * b.num_feeds
    form = b.rng.random()
    if form < 0.3 or rank == 0:
        return list(dims)
    if form < 0.38:
        return []
    if form < 0.44:
        return [one] * b.integer(1, rank)
    if form < 0.58:
        return [dims[-1]]
    if form < 0.72 and rank >= 2:
        channel = [dims[1]] + [one] * (rank - 2)
        return [one] * b.integer(0, 1) + channel
    if form < 0.78:
        return [dims[0]] + [one] * (rank - 1)
    if form < 0.84:
        return list(dims[:-1]) + [one]
    if form < 0.89:
        return [b.integer(1, 3)] + list(dims)
    masked = [one if b.chance(0.5) else d for d in dims]
    return masked[b.integer(0, rank) :]


def operand(b: Builder, like: str, dims: List = None) -> str:
    """A float tensor that broadcasts with `like` (or has `dims`): a constant, an input, or what the graph has."""
    if dims is None:
        if b.chance(0.35):
            found = partner(b, like)
            if found:
                return found
        dims = broadcast_dims(b, b.dims(like))
    sizes = [d if isinstance(d, tuple) else (d,) * b.num_feeds for d in dims]
    if b.chance(0.25):
        same = [n for n in b.floats if b.dims(n) == sizes]
        if same:
            return b.choice(same)
    if all(len(set(s)) == 1 for s in sizes) and b.chance(0.7):
        name = b.constant(b.numbers([s[0] for s in sizes]))
        if b.chance(0.12):
            name = b.node("Identity", [name])
        return name
    return b.input(sizes)


def partner(b: Builder, like: str) -> str:
    """A tensor of the graph that broadcasts with `like`, or nothing."""

    def fits(name: str) -> bool:
        try:
            return all(
                np.prod(np.broadcast_shapes(x.shape, y.shape)) < 20000 for x, y in zip(b.values[name], b.values[like])
            )
        except ValueError:
            return False

    names = [name for name in b.floats if name != like and fits(name)]
    return b.choice(names) if names else ""
