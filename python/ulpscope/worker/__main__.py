"""Entry point; works by module name and by file name, with and without the package around it."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType


def _package() -> ModuleType:
    """This folder as a package, without importing the package ``ulpscope`` (and its compiled module) around it."""
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0] or os.getcwd()) == folder:
        del sys.path[0]
    spec = importlib.util.spec_from_file_location(
        "_ulpscope_worker", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    if sys.version_info < (3, 9):
        sys.exit("ulpscope's worker needs Python 3.9 or later; this is " + sys.version.split()[0])
    if __package__:
        from .server import main
    else:
        _package()
        from _ulpscope_worker.server import main  # type: ignore[import-not-found,no-redef]
    sys.exit(main(sys.argv[1:]))
