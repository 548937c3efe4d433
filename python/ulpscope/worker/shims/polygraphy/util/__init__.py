"""Small helpers that scripts import."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple


def default(value: Any, default: Any) -> Any:
    """The value, or the default for None."""
    return default if value is None else value


def is_sequence(obj: Any) -> bool:
    return isinstance(obj, (list, tuple)) or (hasattr(obj, "__len__") and hasattr(obj, "__getitem__") and not isinstance(obj, (str, bytes, dict)))


def invoke_if_callable(func: Any, *args: Any, **kwargs: Any) -> Tuple[Any, bool]:
    """What the callable returns and True, or the object itself and False."""
    if callable(func):
        return func(*args, **kwargs), True
    return func, False


def is_shape_dynamic(shape: Iterable[Any]) -> bool:
    return any(dim is None or isinstance(dim, str) or dim < 0 for dim in shape)


def override_dynamic_shape(shape: Iterable[Any], default_shape_value: int = 1) -> List[int]:
    return [default_shape_value if is_shape_dynamic([dim]) else int(dim) for dim in shape]


def volume(shape: Iterable[int]) -> int:
    result = 1
    for dim in shape:
        result *= int(dim)
    return result


def unique_list(sequence: Iterable[Any]) -> List[Any]:
    return list(dict.fromkeys(sequence))


def find_str_in_iterable(name: str, seq: Iterable[str], index: Optional[int] = None) -> Optional[str]:
    """The entry of that name; else one that contains it or is contained; else the one at the index."""
    entries = list(seq)
    if name in entries:
        return name
    for entry in entries:
        if name.lower() in entry.lower() or entry.lower() in name.lower():
            return entry
    return entries[index] if index is not None and index < len(entries) else None


def check_sequence_contains(sequence: Iterable[Any], items: Iterable[Any], **kwargs: Any) -> Tuple[List[Any], List[Any]]:
    present, wanted = list(sequence), list(items)
    return [item for item in wanted if item not in present], [item for item in present if item not in wanted]


def check_called_by(expected_caller_name: str) -> Callable[[Any], Any]:
    return lambda function: function


def load_file(src: Any, mode: str = "rb", description: Optional[str] = None) -> Any:
    if hasattr(src, "read"):
        return src.read()
    with open(src, mode) as file:
        return file.read()


def save_file(contents: Any, dest: Any, mode: str = "wb", description: Optional[str] = None) -> Any:
    if hasattr(dest, "write"):
        dest.write(contents)
        return dest
    folder = os.path.dirname(os.path.realpath(dest))
    os.makedirs(folder, exist_ok=True)
    with open(dest, mode) as file:
        file.write(contents)
    return dest


class TempAttrChange:
    """Sets attributes while a with-block runs."""

    def __init__(self, arg_group: Any, attr_values: Dict[str, Any]) -> None:
        self._target, self._values = arg_group, attr_values
        self._old: Dict[str, Any] = {}

    def __enter__(self) -> None:
        for name, value in self._values.items():
            self._old[name] = getattr(self._target, name)
            setattr(self._target, name, value)

    def __exit__(self, *exception: Any) -> None:
        for name, value in self._old.items():
            setattr(self._target, name, value)
