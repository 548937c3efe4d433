"""The graphs by their numbers, from which stage, forms, shape and opset follow; equivalent ones are dropped."""

from __future__ import annotations

import zlib
from typing import Iterator, Optional, Sequence

from .recipes import Plan
from .stages import STAGES, TOTAL


def plan_of(number: int) -> Optional[Plan]:
    """The plan with this number."""
    assert 0 <= number < TOTAL
    stage = next(s for s in STAGES.values() if s.first <= number < s.first + len(s))
    found = stage.plan(number - stage.first)
    return found[0] if found else None


class Enumeration:
    """The distinct plans of one part in so many, and what was left out. Which part a number is in has no pattern."""

    def __init__(self, names: Sequence[str], part: int, parts: int) -> None:
        self._names, self._part, self._parts = names, part, parts
        self.unfit = self.equivalent = 0

    def __iter__(self) -> Iterator[Plan]:
        seen = set()
        for name in self._names:
            stage = STAGES[name]
            for index in range(len(stage)):
                if zlib.crc32(b"%d" % (stage.first + index)) % self._parts != self._part:
                    continue
                found = stage.plan(index)
                if found is None:
                    self.unfit += 1
                elif (stage.judges, found[1]) in seen:
                    self.equivalent += 1
                else:
                    seen.add((stage.judges, found[1]))
                    yield found[0]
