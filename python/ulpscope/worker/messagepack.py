"""MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md), as much of it as the worker needs.

Written here so that the worker asks for nothing but NumPy. Strings that are not UTF-8 (names in ONNX files may be) keep
their bytes through ``surrogateescape``.
"""

from __future__ import annotations

import struct
from typing import Any, Callable, List, Optional, Tuple

# Codes of numbers, and of what has a size behind its code: the first one, and the layouts of those that follow.
_NUMBERS = {code: struct.Struct(">" + letter) for code, letter in enumerate("fdBHIQbhiq", 0xCA)}
_SIZED = {"bin": (0xC4, "BHI"), "ext": (0xC7, "BHI"), "str": (0xD9, "BHI"), "array": (0xDC, "HI"), "map": (0xDE, "HI")}
_SIZES = {
    code: (kind, struct.Struct(">" + letter))
    for kind, (first, letters) in _SIZED.items()
    for code, letter in enumerate(letters, first)
}
# Codes that hold a size themselves: the first one, and how many there are.
_SMALL = {"map": (0x80, 16), "array": (0x90, 16), "str": (0xA0, 32)}

Extension = Tuple[int, bytes]


def packb(value: Any, default: Optional[Callable[[Any], Extension]] = None) -> bytes:
    """The bytes of a value; ``default`` turns objects of other types into (extension type, bytes)."""
    out: List[bytes] = []
    _pack(value, out.append, default)
    return b"".join(out)


def _pack_size(kind: str, size: int, emit: Callable[[bytes], None]) -> None:
    small, count = _SMALL.get(kind, (0, 0))
    if size < count:
        emit(bytes((small | size,)))
        return
    for code, (other, layout) in _SIZES.items():
        if other == kind and size < 1 << 8 * layout.size:
            emit(bytes((code,)) + layout.pack(size))
            return
    raise ValueError("too large for MessagePack")


def _pack_int(value: int, emit: Callable[[bytes], None]) -> None:
    if 0 <= value < 1 << 7:
        emit(struct.pack(">B", value))
    elif -32 <= value < 0:
        emit(struct.pack(">b", value))
    elif -(1 << 63) <= value < 1 << 63:
        emit(struct.pack(">Bq", 0xD3, value))
    elif 0 <= value < 1 << 64:
        emit(struct.pack(">BQ", 0xCF, value))
    else:
        raise ValueError(f"{value} does not fit in 64 bits")


def _pack(value: Any, emit: Callable[[bytes], None], default: Optional[Callable[[Any], Extension]]) -> None:
    if value is None:
        emit(b"\xc0")
    elif value is True:
        emit(b"\xc3")
    elif value is False:
        emit(b"\xc2")
    elif isinstance(value, int):
        _pack_int(int(value), emit)
    elif isinstance(value, float):
        emit(struct.pack(">Bd", 0xCB, value))
    elif isinstance(value, str):
        data = value.encode("utf-8", "surrogateescape")
        _pack_size("str", len(data), emit)
        emit(data)
    elif isinstance(value, (bytes, bytearray)):
        _pack_size("bin", len(value), emit)
        emit(bytes(value))
    elif isinstance(value, dict):
        _pack_size("map", len(value), emit)
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"expected a dict whose keys are strings, got the key {key!r}")
            _pack(key, emit, default)
            _pack(item, emit, default)
    elif isinstance(value, (list, tuple)):
        _pack_size("array", len(value), emit)
        for item in value:
            _pack(item, emit, default)
    elif default is not None:
        kind, data = default(value)
        _pack_size("ext", len(data), emit)
        emit(struct.pack(">b", kind) + data)
    else:
        raise TypeError(f"cannot send an object of type {type(value).__name__}")


def unpackb(data: bytes, extension: Optional[Callable[[int, bytes], Any]] = None) -> Any:
    """The value in ``data``, all of it; ``extension`` makes objects of (extension type, bytes)."""
    value, end = _unpack(memoryview(data), 0, extension)
    if end != len(data):
        raise ValueError("bytes after the value")
    return value


def _unpack(data: memoryview, at: int, extension: Optional[Callable[[int, bytes], Any]]) -> Tuple[Any, int]:
    if at >= len(data):
        raise ValueError("the message ends early")
    code = data[at]
    at += 1
    if code < 0x80:
        return code, at
    if code >= 0xE0:
        return code - 0x100, at
    if code in _NUMBERS:
        layout = _NUMBERS[code]
        return layout.unpack_from(data, at)[0], at + layout.size
    if code < 0xC0:
        kind = "map" if code < 0x90 else "array" if code < 0xA0 else "str"
        size = code - _SMALL[kind][0]
    elif code == 0xC0:
        return None, at
    elif code in (0xC2, 0xC3):
        return code == 0xC3, at
    elif 0xD4 <= code <= 0xD8:
        kind, size = "ext", 1 << (code - 0xD4)
    elif code in _SIZES:
        kind, layout = _SIZES[code]
        size = layout.unpack_from(data, at)[0]
        at += layout.size
    else:
        raise ValueError(f"unknown code {code:#x}")

    if kind == "array":
        items = []
        for _ in range(size):
            item, at = _unpack(data, at, extension)
            items.append(item)
        return items, at
    if kind == "map":
        entries = {}
        for _ in range(size):
            key, at = _unpack(data, at, extension)
            entries[key], at = _unpack(data, at, extension)
        return entries, at
    type_code = 0
    if kind == "ext":
        type_code = struct.unpack_from(">b", data, at)[0]
        at += 1
    if at + size > len(data):
        raise ValueError("the message ends early")
    body = bytes(data[at : at + size])
    at += size
    if kind == "str":
        return body.decode("utf-8", "surrogateescape"), at
    if kind == "bin":
        return body, at
    if extension is None:
        raise ValueError("an extension that nobody reads")
    return extension(type_code, body), at
