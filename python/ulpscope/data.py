"""Models and data in the forms that people have them in."""

from __future__ import annotations

import os
import pathlib
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, Protocol, Union, cast

import numpy as np
from numpy.typing import ArrayLike

from .arguments import FilePath, Names, Precisions, is_text, name_of_type, shown
from .errors import Error, ErrorCode, invalid_argument
from .native import _core

if TYPE_CHECKING:
    import onnx

#: A path, the bytes of a serialized model, or an onnx.ModelProto.
Model = Union[FilePath, bytes, "onnx.ModelProto"]

#: Inputs (or outputs) of one inference, by name, in the shapes of the model.
Sample = Mapping[str, ArrayLike]
Arrays = dict[str, "np.ndarray[Any, Any]"]


class CalibrationDataReader(Protocol):
    """As onnxruntime.quantization has it."""

    def get_next(self) -> Optional[Sample]:
        """The next sample; None at the end."""


#: Samples: dictionaries of arrays, one per inference (also a polygraphy DataLoader); one dictionary of stacked samples;
#: a CalibrationDataReader; or a file: .npz, .npy, or the JSON of Polygraphy's --save-inputs.
Data = Union[Iterable[Sample], Sample, CalibrationDataReader, FilePath]

_LARGEST_MESSAGE = 2**31 - 2**20  # Of protobuf, less some room.


class Source:
    """A model as the library reads it: from a file or from memory. A large ModelProto is written to a folder, which lives
    as long as this."""

    def __init__(self, model: Model) -> None:
        self.path: Optional[str] = None
        self.bytes = b""
        if isinstance(model, bytes):
            self.bytes = model
        elif isinstance(model, (str, os.PathLike)):
            self.path = os.fspath(model)
        else:
            weights = sum(len(each.raw_data) for each in model.graph.initializer)
            if weights < _LARGEST_MESSAGE:
                self.bytes = model.SerializeToString()
            else:
                self._write(model)

    def _write(self, model: onnx.ModelProto) -> None:
        import onnx

        self._folder = tempfile.TemporaryDirectory(prefix="ulpscope-")
        self.path = os.path.join(self._folder.name, "model.onnx")
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        onnx.save_model(copy, self.path, save_as_external_data=True, location="model.onnx.data")

    @property
    def name(self) -> str:
        return self.path or "model.onnx"

    def file_in(self, folder: str) -> str:
        """The path of the model's file, which is written to this folder where there is none."""
        if self.path is not None:
            return self.path
        path = os.path.join(folder, "model.onnx")
        pathlib.Path(path).write_bytes(self.bytes)
        return path

    def load(self, options: _core.ModelOptions) -> _core.Model:
        if self.path is not None:
            return _core.Model.from_file(self.path, options)
        return _core.Model.from_bytes(self.bytes, options, self.name)


def path_of(data: object) -> Optional[str]:
    """The path, where it is one."""
    return os.fspath(data) if isinstance(data, (str, os.PathLike)) else None


def names_of(value: Names, what: str) -> list[str]:
    """One word, or several. Raises Error(INVALID_ARGUMENT) for what is none, under the name of the argument."""
    names = [value] if isinstance(value, str) else list(value)
    for name in names:
        if not is_text(name):
            raise invalid_argument(f"[{what}] expected a name, or several, got {shown(name)}")
    return names


def precisions_of(value: Precisions, what: str) -> list[str]:
    """The same of precisions, by their short names: "float16", "FP16" and numpy.float16 are "fp16"."""
    short = {request: name for name, request in _core.precisions()}
    short.update({name.lower(): short for name, short in _OTHER_TYPES.items()})
    several = [value] if isinstance(value, str) or name_of_type(value) is not None else list(value)
    names = []
    for each in several:
        name = str(each) if is_text(each) else name_of_type(each)
        if name is None:
            raise invalid_argument(
                f"[{what}] expected precisions ('fp16', 'bf16', 'int8', ...) or types of NumPy, got {shown(each)}"
            )
        names.append(name.lower())
    return [short.get(name, name) for name in names]


#: Types of ml_dtypes and torch that precisions are called by otherwise.
_OTHER_TYPES = {"float8_e4m3fn": "fp8"}


def samples_of(data: Data, model: _core.Model, what: str = "data") -> list[Arrays]:
    """All samples, one at least. Raises Error(INVALID_ARGUMENT) for what is none, and for a different number of samples
    per input; Error(NOT_FOUND) and Error(INVALID_FILE) for files."""
    return _some(each_sample(data, model, what), what)


def _some(samples: Iterable[Arrays], what: str) -> list[Arrays]:
    if not (result := list(samples)):
        raise invalid_argument(f"[{what}] expected at least one sample, got none")
    return result


def outputs_of(golden: Data, model: _core.Model) -> list[Arrays]:
    """Golden outputs, one per sample. JSON: results that Polygraphy or `ulpscope run` saved, of the first runner."""
    path = path_of(golden)
    if path is not None and not path.endswith((".npz", ".npy")):
        return _core.load_outputs(path)
    return _some(_samples(golden, model.outputs(), "golden"), "golden")


def each_sample(data: Data, model: _core.Model, what: str = "data") -> Iterator[Arrays]:
    """The samples, one in memory at a time where the data allow it."""
    return _samples(data, model.inputs(), what)


def _samples(data: Data, specs: list[_core.Spec], what: str) -> Iterator[Arrays]:
    if (path := path_of(data)) is not None:
        yield from _from_file(path, specs, what)
    elif isinstance(data, Mapping):
        yield from _unstacked(_numbers(data, what), specs, what)
    elif hasattr(data, "get_next"):
        while (sample := data.get_next()) is not None:
            yield _named(_arrays(sample, what), specs, what)
    else:
        _tell_inputs(data, specs)
        for sample in cast(Iterable[Sample], data):
            yield _named(_arrays(sample, what), specs, what)


def _named(sample: Arrays, specs: list[_core.Spec], what: str) -> Arrays:
    """Refuses samples that name something else than an input of the model where that input is missing: the program
    would take what has its place."""
    if what.startswith("golden"):
        return sample
    names = [name for name, _, _ in specs]
    missing = [name for name in names if name not in sample]
    unknown = [name for name in sample if name not in names]
    if missing and unknown:
        import difflib  # Late, as in arguments.py.

        near = difflib.get_close_matches(missing[0], unknown, 1, 0.3)
        raise invalid_argument(
            f"[{what}] expected a sample with the inputs {names}, got {list(sample)}"
            + (f"; try {missing[0]!r} in place of {near[0]!r}" if near else "")
        )
    return sample


def _arrays(sample: object, what: str) -> Arrays:
    if not isinstance(sample, Mapping):
        raise invalid_argument(
            f"[{what}] expected a dictionary of arrays by name per sample, got {type(sample).__name__}"
        )
    return _numbers(sample, what)


def _numbers(arrays: Mapping[Any, Any], what: str) -> Arrays:
    result: Arrays = {}
    for name, array in arrays.items():
        try:
            result[str(name)] = np.asarray(array)
        except (TypeError, ValueError) as error:
            raise invalid_argument(f"[{what}] '{name}': expected an array, got {shown(array)}: {error}") from error
    return result


def _tell_inputs(data: object, specs: list[_core.Spec]) -> None:
    """A polygraphy DataLoader makes arrays for the inputs that somebody tells it."""
    if getattr(data, "input_metadata", ()) is not None:
        return
    from polygraphy.common import TensorMetadata

    metadata = TensorMetadata()
    for name, dtype, shape in specs:
        metadata.add(name, dtype=dtype, shape=None if shape is None else tuple(shape))
    setattr(data, "input_metadata", metadata)


def samples_in(files: Sequence[str], model: _core.Model) -> Optional[list[Arrays]]:
    """None where there are no files, or one of them is not there."""
    if not files or not all(os.path.exists(file) for file in files):
        return None
    return [sample for file in files for sample in samples_of(file, model)]


def _from_file(path: str, specs: list[_core.Spec], what: str) -> Iterator[Arrays]:
    """As the program reads it (src/compare/array_files.h), which has no NumPy; here samples are views of what NumPy read."""
    if not path.endswith((".npz", ".npy")):
        yield from _core.load_inputs(path)
        return
    try:
        content = np.load(path)
        arrays = content if isinstance(content, np.ndarray) else dict(content)
    except FileNotFoundError as error:
        raise Error(ErrorCode.NOT_FOUND, f"[{what}] '{path}': there is no such file") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise Error(ErrorCode.INVALID_FILE, f"[{what}] '{path}': {error}") from error
    if isinstance(arrays, np.ndarray):
        if len(specs) != 1:
            raise invalid_argument(
                f"[{what}] '{path}': expected arrays for {', '.join(repr(spec[0]) for spec in specs)}, got one without a "
                "name; try an .npz file"
            )
        arrays = {specs[0][0]: arrays}
    yield from _unstacked(arrays, specs, f"{what}] '{path}'" if path else what)


def _unstacked(arrays: Arrays, specs: list[_core.Spec], what: str) -> Iterator[Arrays]:
    """Samples along the first axis: of arrays with one axis more than the model's, and of arrays that are a multiple of
    a batch whose size the model fixes."""
    _named(arrays, specs, what.split("]")[0])
    shapes = {name: shape for name, _, shape in specs}
    parts: dict[str, list[np.ndarray[Any, Any]]] = {}
    for name, array in arrays.items():
        declared = shapes.get(name)
        shape = list(array.shape) if declared is None else declared
        batch = shape[0] if shape else 0
        if array.ndim == len(shape) + 1:
            parts[name] = list(array)
        elif array.ndim == len(shape) and batch > 0 and array.shape[0] > batch and array.shape[0] % batch == 0:
            parts[name] = list(array.reshape(-1, batch, *array.shape[1:]))
        else:
            parts[name] = [array]
    counts = {name: len(each) for name, each in parts.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} of '{name}'" for name, count in counts.items())
        where = what if what.endswith("'") else what + "]"
        raise invalid_argument(
            f"[{where}: expected as many samples of every input, got {listed}; try a list of dictionaries"
        )
    for values in zip(*parts.values()):
        yield dict(zip(parts, values))
