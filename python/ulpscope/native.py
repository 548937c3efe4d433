"""The C++ library, ready for use in this process."""

from __future__ import annotations

import os
import sys

# Before the extension loads OpenMP: its threads would otherwise spin for milliseconds after each piece of work.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")

from . import _core  # noqa: E402

if sys.executable:
    _core.use_python(sys.executable, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

def assign(options: object, **values: object) -> None:
    """Sets properties of an object of the library."""
    for name, value in values.items():
        setattr(options, name, value)


__all__ = ["_core", "assign"]
