"""Arguments of the public functions, held against their annotations before anything is done."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import operator
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional, NoReturn, ParamSpec, TypeVar, Union

import numpy as np

from .errors import invalid_argument

#: A path of a file.
FilePath = Union[str, "os.PathLike[str]"]
#: One name, or several.
Names = Union[str, Sequence[str]]
#: "fp16", "float16", or a type of elements: numpy.float16, torch.float16.
Precision = Union[str, Any]
#: One precision, or several.
Precisions = Union[Precision, Sequence[Precision]]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Short(reprlib.Repr):
    def repr_instance(self, value: object, level: int) -> str:
        return repr(value) if value is None or isinstance(value, (bool, float)) else type(value).__name__


def shown(value: object) -> str:
    """What somebody gave, for a message; of objects that may be large, the type."""
    return _Short().repr(value)


def is_text(value: object) -> bool:
    """Without halves of surrogate pairs, which no file or name can hold."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def name_of_type(value: Any) -> Optional[str]:
    """Of a type of elements: numpy.float16, numpy.dtype("float16"), those of ml_dtypes and of torch; None: others."""
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return str(np.dtype(value).name)
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return str(value).partition(".")[2]
    if isinstance(value, type) and value.__module__ == "ml_dtypes":
        return value.__name__
    return None


def _is_path(value: object) -> bool:
    if not isinstance(value, (str, os.PathLike)):
        return False
    path = os.fspath(value)
    try:
        return isinstance(path, str) and path != "" and b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def _is_whole(value: Any) -> bool:
    try:
        return -(2**63) <= operator.index(value) < 2**63
    except TypeError:
        return False


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, (str, bytes)) and not math.isnan(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _is_sequence(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


def _is_mapping(value: object, is_value: Callable[[Any], bool]) -> bool:
    return isinstance(value, Mapping) and all(is_text(name) and is_value(each) for name, each in value.items())


def _is_model(value: object) -> bool:
    is_proto = hasattr(value, "SerializeToString") and hasattr(value, "graph")
    return isinstance(value, bytes) or _is_path(value) or is_proto


def _is_data(value: object) -> bool:
    """Samples themselves are looked at one by one, later."""
    if isinstance(value, (str, os.PathLike)):
        return _is_path(value)
    iterable = hasattr(value, "__iter__") or hasattr(value, "__getitem__")
    return hasattr(value, "get_next") or (iterable and not isinstance(value, (bytes, np.ndarray)))


def _is_a(name: str) -> Callable[[object], bool]:
    def is_it(value: object) -> bool:
        from . import answer

        return isinstance(value, getattr(answer, name))

    return is_it


class _Kind(NamedTuple):
    holds: Callable[[Any], bool]
    words: str
    hint: str = ""


#: By what annotations are put together from.
_KINDS = {
    "Answer": _Kind(_is_a("Answer"), "an ulpscope.Answer"),
    "Calibration": _Kind(lambda value: hasattr(value, "algorithm"), "an ulpscope.Calibration"),
    "CurvePoint": _Kind(_is_a("CurvePoint"), "a point of pareto()"),
    "Data": _Kind(
        _is_data, "dictionaries of arrays by name, a file, or a CalibrationDataReader", "[{'INPUT': array}]"
    ),
    "FilePath": _Kind(_is_path, "a path"),
    "Mapping[str, Any]": _Kind(lambda value: _is_mapping(value, lambda _: True), "values by name"),
    "Mapping[str, float]": _Kind(lambda value: _is_mapping(value, _is_number), "numbers by name", "{'NAME': 0.01}"),
    "Mapping[str, str]": _Kind(lambda value: _is_mapping(value, is_text), "types by name", "{'NAME': 'float16'}"),
    "Metric": _Kind(
        lambda value: callable(value) or (is_text(value) and value != ""), "a name, a script or a function", "'rel-l2'"
    ),
    "Model": _Kind(_is_model, "a path, bytes or an onnx.ModelProto", "ulpscope.from_torch for a module of torch"),
    "Names": _Kind(lambda value: is_text(value) or _is_sequence(value), "a name, or several", "['NAME']"),
    "None": _Kind(lambda value: value is None, "None"),
    "Precision": _Kind(
        lambda value: is_text(value) or name_of_type(value) is not None, "a precision, or a type of NumPy", "'fp16'"
    ),
    "Precisions": _Kind(
        lambda value: is_text(value) or name_of_type(value) is not None or _is_sequence(value),
        "a precision, or several, or types of NumPy", "['fp16']",
    ),
    "PerOutput": _Kind(
        lambda value: _is_number(value) or _is_mapping(value, _is_number), "a number, or numbers by output"
    ),
    "Sequence[Sequence[int]]": _Kind(
        lambda value: _is_sequence(value) and all(_is_sequence(each) and all(map(_is_whole, each)) for each in value),
        "a shape per input", "[(1, 3, 224, 224)]",
    ),
    "Sequence[str]": _Kind(lambda value: _is_sequence(value) and all(map(is_text, value)), "names", "['NAME']"),
    "Trial": _Kind(_is_a("Trial"), "one of trials"),
    "Watcher": _Kind(
        lambda value: callable(value) or value is None or isinstance(value, bool),
        "a callable of ulpscope.Progress, None (a bar) or False",
    ),
    "bool": _Kind(lambda value: isinstance(value, bool), "True or False"),
    "float": _Kind(_is_number, "a number"),
    "int": _Kind(_is_whole, "a whole number of 64 bits"),
    "onnx.ModelProto": _Kind(lambda value: hasattr(value, "graph"), "an onnx.ModelProto"),
    "str": _Kind(is_text, "a text"),
}  # fmt: skip
#: Those of True and False, where numpy.bool_ means the same.
_FLAGS = {_KINDS["bool"], _KINDS["Watcher"]}


def _parts(annotation: ast.expr) -> list[str]:
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
        if annotation.value.id == "Optional":
            return [*_parts(annotation.slice), "None"]
        if annotation.value.id == "Union" and isinstance(annotation.slice, ast.Tuple):
            return [part for each in annotation.slice.elts for part in _parts(each)]
    return [ast.unparse(annotation)]


def _refuse(where: str, kinds: Sequence[_Kind], value: object) -> NoReturn:
    words = [kind.words for kind in kinds]
    expected = " or ".join([*([", ".join(words[:-1])] if words[1:] else []), words[-1]])
    hint = next((f"; try {kind.hint}" for kind in kinds if kind.hint), "")
    raise invalid_argument(f"[{where}: expected {expected}, got {shown(value)}{hint}")


#: What arguments are called elsewhere, also by other functions here.
_ELSEWHERE = {
    "tolerance": "threshold", "tol": "threshold", "precisions": "precision", "precision": "precisions",
    "samples": "data", "inputs": "data", "dataset": "data", "output": "out", "path": "out", "provider": "backend",
    "device": "backend", "gpu": "target", "exclude": "keep",
}  # fmt: skip


def _meant(signature: inspect.Signature, given: Mapping[str, object], message: str) -> str:
    """What the first name that is no argument may have meant."""
    import difflib  # Late, as nobody waits for a refusal.

    for name in given:
        if name in signature.parameters:
            continue
        near = [each for each in [_ELSEWHERE.get(name, "")] if each in signature.parameters]
        near = near or difflib.get_close_matches(name, [each for each in signature.parameters if each != "self"], n=1)
        is_named = "" if f"'{name}'" in message else f" by '{name}'"
        return f"; did you mean '{near[0]}'{is_named}?" if near else ""
    return ""


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Raises Error(INVALID_ARGUMENT) for arguments that are not what their annotations say."""
    place = function.__qualname__.removesuffix(".__init__")
    where = place.lower()

    @functools.cache  # At the first call: most functions of a process are never called.
    def expected() -> tuple[inspect.Signature, dict[str, list[_Kind]]]:
        signature = inspect.signature(function)
        return signature, {
            name: [_KINDS[part] for part in _parts(ast.parse(each.annotation, mode="eval").body)]
            for name, each in signature.parameters.items()
            if name != "self" and each.annotation != "Any"
        }

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        signature, kinds = expected()
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"ulpscope.{place}() {error}{_meant(signature, kwargs, str(error))}") from None
        for name, value in bound.arguments.items():
            if isinstance(value, np.bool_) and not _FLAGS.isdisjoint(kinds.get(name, ())):
                bound.arguments[name] = bool(value)
            elif name in kinds and not any(kind.holds(value) for kind in kinds[name]):
                _refuse(f"{where}] {name}", kinds[name], value)
        return function(*bound.args, **bound.kwargs)

    return call
