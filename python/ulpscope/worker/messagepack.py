"""MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md), as much of it as the worker needs.

Written here so that the worker asks for nothing but NumPy. Strings that are not UTF-8 (names in ONNX files may be) keep
their bytes through ``surrogateescape``.
"""

from __future__ import annotations

import struct
from typing import Any, Callable, List, Optional, Tuple

_U8 = struct.Struct(">B")
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_F32 = struct.Struct(">f")
_F64 = struct.Struct(">d")

Extension = Tuple[int, bytes]


def packb(value: Any, default: Optional[Callable[[Any], Extension]] = None) -> bytes:
    """The bytes of a value; ``default`` turns objects of other types into (extension type, bytes)."""
    out: List[bytes] = []
    _pack(value, out.append, default)
    return b"".join(out)


def _pack_size(size: int, emit: Callable[[bytes], None], fix: Optional[Tuple[int, int]], codes: Tuple[Optional[int], int, int]) -> None:
    if fix is not None and size < fix[1]:
        emit(bytes((fix[0] | size,)))
    elif codes[0] is not None and size < 1 << 8:
        emit(bytes((codes[0], size)))
    elif size < 1 << 16:
        emit(bytes((codes[1],)) + _U16.pack(size))
    elif size < 1 << 32:
        emit(bytes((codes[2],)) + _U32.pack(size))
    else:
        raise ValueError("too large for MessagePack")


def _pack_int(value: int, emit: Callable[[bytes], None]) -> None:
    if 0 <= value < 1 << 7:
        emit(_U8.pack(value))
    elif -32 <= value < 0:
        emit(_I8.pack(value))
    elif -(1 << 63) <= value < 1 << 63:
        emit(b"\xd3" + _I64.pack(value))
    elif 0 <= value < 1 << 64:
        emit(b"\xcf" + _U64.pack(value))
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
        emit(b"\xcb" + _F64.pack(value))
    elif isinstance(value, str):
        data = value.encode("utf-8", "surrogateescape")
        _pack_size(len(data), emit, (0xA0, 32), (0xD9, 0xDA, 0xDB))
        emit(data)
    elif isinstance(value, (bytes, bytearray)):
        _pack_size(len(value), emit, None, (0xC4, 0xC5, 0xC6))
        emit(bytes(value))
    elif isinstance(value, dict):
        _pack_size(len(value), emit, (0x80, 16), (None, 0xDE, 0xDF))
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"expected a dict whose keys are strings, got the key {key!r}")
            _pack(key, emit, default)
            _pack(item, emit, default)
    elif isinstance(value, (list, tuple)):
        _pack_size(len(value), emit, (0x90, 16), (None, 0xDC, 0xDD))
        for item in value:
            _pack(item, emit, default)
    elif default is not None:
        kind, data = default(value)
        _pack_size(len(data), emit, None, (0xC7, 0xC8, 0xC9))
        emit(_I8.pack(kind) + data)
    else:
        raise TypeError(f"cannot send an object of type {type(value).__name__}")


def unpackb(data: bytes, extension: Optional[Callable[[int, bytes], Any]] = None) -> Any:
    """The value in ``data``, all of it; ``extension`` makes objects of (extension type, bytes)."""
    value, end = _unpack(memoryview(data), 0, extension)
    if end != len(data):
        raise ValueError("bytes after the value")
    return value


_FIXED = {
    0xCA: _F32, 0xCB: _F64, 0xCC: _U8, 0xCD: _U16, 0xCE: _U32, 0xCF: _U64, 0xD0: _I8, 0xD1: _I16, 0xD2: _I32, 0xD3: _I64,
}  # fmt: skip
_SIZES = {
    0xC4: ("bin", _U8), 0xC5: ("bin", _U16), 0xC6: ("bin", _U32), 0xC7: ("ext", _U8), 0xC8: ("ext", _U16), 0xC9: ("ext", _U32),
    0xD9: ("str", _U8), 0xDA: ("str", _U16), 0xDB: ("str", _U32), 0xDC: ("array", _U16), 0xDD: ("array", _U32),
    0xDE: ("map", _U16), 0xDF: ("map", _U32),
}  # fmt: skip


def _unpack(data: memoryview, at: int, extension: Optional[Callable[[int, bytes], Any]]) -> Tuple[Any, int]:
    if at >= len(data):
        raise ValueError("the message ends early")
    code = data[at]
    at += 1
    if code < 0x80:
        return code, at
    if code >= 0xE0:
        return code - 0x100, at
    if code in _FIXED:
        layout = _FIXED[code]
        return layout.unpack_from(data, at)[0], at + layout.size
    if code < 0x90:
        kind, size = "map", code & 0x0F
    elif code < 0xA0:
        kind, size = "array", code & 0x0F
    elif code < 0xC0:
        kind, size = "str", code & 0x1F
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
        type_code = _I8.unpack_from(data, at)[0]
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
