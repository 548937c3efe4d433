"""The C++ library, ready for use in this process."""

from __future__ import annotations

import os
import pathlib
import sys

from .architecture import complaint

# Before the extension loads OpenMP: its threads would otherwise spin for milliseconds after each piece of work.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")

try:
    from . import _core
except ImportError:
    for _file in sorted(pathlib.Path(__file__).parent.glob("_core*.so")):
        if _wrong := complaint(_file):
            raise ImportError(_wrong) from None
    raise

if sys.executable:
    _core.use_python(sys.executable, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

def assign(options: object, **values: object) -> None:
    """Sets properties of an object of the library."""
    for name, value in values.items():
        setattr(options, name, value)


__all__ = ["_core", "assign"]
