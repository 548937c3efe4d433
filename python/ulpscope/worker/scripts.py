"""Loading functions from users' scripts."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any, Callable, Dict, Tuple

from .errors import WorkerError

#: Of Polygraphy's logger, by its name.
log_level = "INFO"

_modules: Dict[Tuple[str, int], ModuleType] = {}


def load_function(path: str, name: str) -> Callable[..., Any]:
    """The function ``name`` of the script; the script runs when it is first named (or has changed since)."""
    full = os.path.abspath(path)
    if not os.path.isfile(full):
        what = "a folder" if os.path.isdir(full) else "none"
        raise WorkerError("not_found", f"[script] {path}: expected a Python script, got {what}; try its path relative to {os.getcwd()}")
    key = (full, os.stat(full).st_mtime_ns)
    if key not in _modules:
        _modules[key] = _run(full)
    module = _modules[key]
    function = getattr(module, name, None)
    if function is None:
        own = [entry for entry, value in vars(module).items() if callable(value) and getattr(value, "__module__", "") == module.__name__]
        raise WorkerError(
            "not_found",
            f"[script] {path}: expected a function '{name}', got none; it defines: {', '.join(own) or 'no functions'}; "
            f"try '{path}:<function>'",
        )
    if not callable(function):
        raise WorkerError("script", f"[script] {path}: expected '{name}' to be a function, got {type(function).__name__}")
    found: Callable[..., Any] = function
    return found


def set_up_polygraphy() -> None:
    """Polygraphy logs as the program does. Raises ImportError where it is not installed."""
    if "polygraphy.logger" not in sys.modules:
        from polygraphy.logger import G_LOGGER

        G_LOGGER.colors, G_LOGGER.module_severity = False, getattr(G_LOGGER, log_level)


def _run(path: str) -> ModuleType:
    sys.dont_write_bytecode = True  # No __pycache__ beside it, and from here on: it may import its neighbors later.
    with open(path, "rb") as file:
        if b"polygraphy" in file.read():
            with contextlib.suppress(ImportError):
                set_up_polygraphy()
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # its imports of neighbors, also those that run later
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules or not name.isidentifier():
        name = f"_ulpscope_script_{len(_modules)}"
    loader = importlib.machinery.SourceFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def describe_type(value: Any) -> str:
    """What a script returned, for a message."""
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} of ({', '.join(type(item).__name__ for item in value)})"
    return "None" if value is None else f"an object of type {type(value).__name__}"
