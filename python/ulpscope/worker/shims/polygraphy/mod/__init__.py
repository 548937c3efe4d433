"""Late imports and version comparison."""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import Any, Callable, Tuple


def version(text: str) -> Tuple[int, ...]:
    """The leading numbers of a version, comparable."""
    numbers = re.match(r"\d+(?:\.\d+)*", str(text))
    return tuple(int(part) for part in numbers.group(0).split(".")) if numbers else (0,)


class _LazyModule:
    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def _load(self) -> Any:
        return importlib.import_module(self._name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._load(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._load(), name, value)

    def is_installed(self) -> bool:
        return importlib.util.find_spec(self._name.split(".")[0]) is not None

    def is_importable(self) -> bool:
        try:
            self._load()
        except Exception:  # noqa: BLE001 - whatever it is, it cannot be imported
            return False
        return True


def lazy_import(name: str, *args: Any, **kwargs: Any) -> _LazyModule:
    """Imports a module when it is first used. A version requirement in the name is not checked."""
    return _LazyModule(re.split(r"[<>=!~\s]", name, maxsplit=1)[0])


def has_mod(name: Any) -> bool:
    return (name if isinstance(name, _LazyModule) else _LazyModule(str(name))).is_installed()


def autoinstall(lazy_mod: Any) -> None:
    """Nothing is installed by scripts."""


def export(funcify: bool = False, func_name: Any = None) -> Callable[[Any], Any]:
    """A decorator without effect here."""
    return lambda symbol: symbol


def import_from_script(path: str, name: str) -> Any:
    """A symbol of another script."""
    spec = importlib.util.spec_from_file_location(f"_script_{abs(hash(path))}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import from '{path}'")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)
