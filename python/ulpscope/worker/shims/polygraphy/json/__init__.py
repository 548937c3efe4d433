"""Arrays and results as JSON: ``polygraphy_class`` names a type; an array is a base64-encoded .npy file."""

from __future__ import annotations

import base64
import io
import json as _json
import os
from typing import Any, Callable, Dict, Optional

import numpy as np

_MARKER = "polygraphy_class"
_ENCODERS: Dict[type, Callable[[Any], Dict[str, Any]]] = {}
_DECODERS: Dict[str, Callable[[Dict[str, Any]], Any]] = {}
_NAMES: Dict[type, str] = {}


class Encoder(_json.JSONEncoder):
    """Turns registered types into dictionaries."""

    @staticmethod
    def register(kind: type, alias: Optional[str] = None) -> Callable[[Any], Any]:
        def decorate(function: Callable[[Any], Dict[str, Any]]) -> Callable[[Any], Dict[str, Any]]:
            _ENCODERS[kind] = function
            _NAMES[kind] = kind.__name__
            return function

        return decorate

    def default(self, o: Any) -> Any:
        for kind, function in _ENCODERS.items():
            if type(o) is kind:
                return {**function(o), _MARKER: _NAMES[kind]}
        if isinstance(o, np.ndarray):
            return self.default(np.asarray(o))
        if isinstance(o, np.generic):
            return o.item()
        return super().default(o)


class Decoder:
    """Turns dictionaries back into registered types."""

    @staticmethod
    def register(kind: type, alias: Optional[str] = None) -> Callable[[Any], Any]:
        def decorate(function: Callable[[Dict[str, Any]], Any]) -> Callable[[Dict[str, Any]], Any]:
            for name in (kind.__name__, alias):
                if name:
                    _DECODERS[name] = function
            return function

        return decorate

    def __call__(self, pairs: Any) -> Any:
        entries = dict(pairs)
        name = entries.get(_MARKER)
        if name is None:
            for key, value in entries.items():
                if isinstance(value, str) and value == "polygraphy_serialized_json_type" and key.startswith("__polygraphy_encoded_"):
                    name = key[len("__polygraphy_encoded_") :]
        if name in _DECODERS:
            entries.pop(_MARKER, None)
            return _DECODERS[name](entries)
        return entries


@Encoder.register(np.ndarray)
def _encode_array(array: np.ndarray) -> Dict[str, Any]:
    data = io.BytesIO()
    np.save(data, array, allow_pickle=False)
    return {"array": base64.b64encode(data.getvalue()).decode("ascii")}


@Decoder.register(np.ndarray)
def _decode_array(entries: Dict[str, Any]) -> np.ndarray:
    text = entries["array"]
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        data = text.encode("latin-1")
    loaded = np.load(io.BytesIO(data), allow_pickle=False)
    return loaded[list(loaded.keys())[0]] if isinstance(loaded, np.lib.npyio.NpzFile) else loaded


def to_json(obj: Any) -> str:
    return _json.dumps(obj, cls=Encoder, indent=4)


def from_json(src: str) -> Any:
    return _json.loads(src, object_pairs_hook=Decoder())


def save_json(obj: Any, dest: Any, description: Optional[str] = None) -> None:
    text = to_json(obj)
    if hasattr(dest, "write"):
        dest.write(text)
        return
    os.makedirs(os.path.dirname(os.path.realpath(dest)), exist_ok=True)
    with open(dest, "w", encoding="utf-8") as file:
        file.write(text)


def load_json(src: Any, description: Optional[str] = None) -> Any:
    if hasattr(src, "read"):
        return from_json(src.read())
    with open(src, encoding="utf-8") as file:
        return from_json(file.read())


def add_json_methods(description: Optional[str] = None) -> Callable[[type], type]:
    """Gives a class to_json, from_json, save and load."""

    def decorate(kind: type) -> type:
        def checked(obj: Any) -> Any:
            if not isinstance(obj, kind):
                raise TypeError(f"expected {kind.__name__}, got {type(obj).__name__}")
            return obj

        kind.to_json = lambda self: to_json(self)  # type: ignore[attr-defined]
        kind.from_json = staticmethod(lambda src: checked(from_json(src)))  # type: ignore[attr-defined]
        kind.save = lambda self, dest: save_json(self, dest)  # type: ignore[attr-defined]
        kind.load = staticmethod(lambda src: checked(load_json(src)))  # type: ignore[attr-defined]
        return kind

    return decorate
