"""What all objects of this module share: enumerations, strict attributes, and the way to the program."""

from __future__ import annotations

import enum
from typing import Any, Callable, Dict, NoReturn, Optional, Tuple


class Enum(enum.IntEnum):
    """Prints as the enumerations of the real module do: ``DataType.FLOAT``."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {int(self)}>"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class Object:
    """Refuses attributes that it does not have, as the real classes do: a misspelt name is an error, not a no-op.

    ``with`` holds it, as older scripts do; leaving the block has no effect.
    """

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: Any) -> None:
        pass

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and not hasattr(type(self), name):
            raise AttributeError(unknown_attribute(self, name))
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(unknown_attribute(self, name))


def unknown_attribute(owner: Any, name: str) -> str:
    known = sorted(entry for entry in dir(type(owner)) if not entry.startswith("_"))
    return f"ulpscope's tensorrt has no {type(owner).__name__}.{name}; it provides: {', '.join(known)}"


def kept(name: str, convert: Callable[[Any], Any]) -> Any:
    """A property whose value is another attribute's, converted when it is set."""
    return property(lambda self: getattr(self, name), lambda self, value: setattr(self, name, convert(value)))


def flag_methods(mask: str, kind: Callable[[Any], Any]) -> Tuple[Any, Any, Any]:
    """Methods that set, clear and look at a bit of an attribute; `kind`: its enumeration."""

    def bit(flag: Any) -> int:
        return 1 << int(kind(flag))

    return (
        lambda self, flag: setattr(self, mask, getattr(self, mask) | bit(flag)),
        lambda self, flag: setattr(self, mask, getattr(self, mask) & ~bit(flag)),
        lambda self, flag: bool(getattr(self, mask) & bit(flag)),
    )


class _Bridge:
    """The program behind this module. Set by the worker; absent when the module is used for its names alone."""

    request: Optional[Callable[[str, Dict[str, Any]], Any]] = None

    def ask(self, method: str, args: Dict[str, Any]) -> Any:
        if self.request is None:
            raise RuntimeError("ulpscope's tensorrt can load models only in scripts that ulpscope runs as network or config scripts")
        return self.request(method, args)


bridge = _Bridge()
