"""The C++ library, ready for use in this process."""

from __future__ import annotations

import os
import sys

# Before the extension loads OpenMP: its threads would otherwise spin for milliseconds after each piece of work.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")

from . import _core  # noqa: E402
from .errors import Error, ErrorCode  # noqa: E402

if sys.executable:
    _core.use_python(sys.executable, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

_KINDS = {bool: "True or False", int: "an integer", float: "a number", str: "a text", list: "texts", dict: "texts by name"}


def assign(options: object, where: str, **values: object) -> None:
    """Sets properties of an object of the library. Raises Error(INVALID_ARGUMENT) for a value of another type."""
    for name, value in values.items():
        try:
            setattr(options, name, value)
        except TypeError:
            expected = _KINDS.get(type(getattr(options, name)), "another type")
            raise Error(ErrorCode.INVALID_ARGUMENT, f"[{where}] {name}: expected {expected}, got {value!r}") from None


__all__ = ["_core", "assign"]
