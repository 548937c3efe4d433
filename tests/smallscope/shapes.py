"""The shapes of what graphs read: sizes 0, 1, 2, 3 and 17 in ranks 0 to 5, and some that are larger than a tile."""

from __future__ import annotations

import itertools
from typing import List

import numpy as np

from .site import Shape

SIZES = (0, 1, 2, 3, 17)
TILE = 1536  #: Elements that the CPU's programs hold at a time.

#: Those that most forms have a meaning for.
CORE: List[Shape] = [
    (2, 3), (2, 3, 17), (1, 2, 3, 17), (17, 3), (3, 17, 2), (2, 3, 3, 3), (3, 17), (1, 17, 3), (17,), (2, 2, 3, 2, 3),
    (17, 17), (2, 17, 1), (1, 17, 3, 3), (1, 17), (17, 1, 3), (2, 3, 1, 17), (3, 3), (2, 1, 3), (3, 2, 17, 2), (),
    (17, 1), (3, 3, 3), (2, 1, 1, 3), (1, 3, 2, 2, 17), (1, 1), (1, 1, 17), (17, 2, 2, 1), (1,), (1, 4, 2, 2),
]  # fmt: skip
#: Nothing somewhere.
EMPTY: List[Shape] = [
    (0, 3),
    (3, 0),
    (0,),
    (2, 0, 3),
    (2, 3, 0),
    (0, 2, 17),
    (2, 0, 2, 3),
    (1, 2, 3, 0),
    (0, 0),
    (2, 0, 0),
]
#: More than a tile, in rows of all lengths.
LARGE: List[Shape] = [
    (3, 1537), (1537, 3), (2, 2, 1536), (4099,), (2, 17, 131), (1, 3, 37, 41), (5003, 1), (1, 8, 23, 25), (1, 4111),
    (2, 3, 5, 7, 11),
]  # fmt: skip
#: Whose last dimension, or channels, are whole blocks of elements of few bits.
BLOCKS: List[Shape] = [
    (3, 32), (17, 64), (2, 3, 32), (32, 17), (2, 2, 3, 32), (2, 32, 3, 2), (1, 17, 96), (2, 64, 17), (40, 32),
    (3, 2, 32, 17),
]  # fmt: skip


def _of_rank(rank: int, count: int) -> List[Shape]:
    shapes = list(itertools.product(SIZES, repeat=rank))
    if len(shapes) <= count:
        return shapes
    order = np.random.default_rng([27, rank]).permutation(len(shapes))
    chosen = (shapes[i] for i in order if np.prod(shapes[i]) <= 6000)
    return list(itertools.islice(chosen, count))


#: All of ranks 0 to 2, and a draw of the others: what every form alone is tried on.
ALL: List[Shape] = list(
    dict.fromkeys([*CORE, *EMPTY, *(s for r, n in enumerate((1, 5, 25, 36, 24, 16)) for s in _of_rank(r, n))])
)
#: What graphs of several operators take turns on: one in six is empty.
TURNS: List[Shape] = [
    shape for i, shape in enumerate(CORE) for shape in [shape, *EMPTY[i // 5 : i // 5 + 1] * (i % 5 == 4)]
]
