"""What stays open between calls of the program."""

from __future__ import annotations

from typing import Any, Dict


class Handles(Dict[int, Any]):
    """Objects by number; no number is given twice."""

    _next = 1

    def add(self, value: Any) -> int:
        handle, self._next = self._next, self._next + 1
        self[handle] = value
        return handle
