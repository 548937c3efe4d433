"""Tensors, weights and shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, List, Optional, Sequence, Tuple

import numpy as np

from ._base import Object, kept
from ._enums import DataType, TensorFormat, TensorLocation, type_name, type_of_array

if TYPE_CHECKING:
    from ._network import INetworkDefinition


class Dims(tuple[int, ...]):
    """A shape; a plain tuple with the real module's name."""

    MAX_DIMS = 8

    def __new__(cls, *shape: Any) -> "Dims":
        if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)):
            shape = tuple(shape[0])
        return super().__new__(cls, (int(dim) for dim in shape))

    @property
    def volume(self) -> int:
        return volume(self)


Dims2 = Dims3 = Dims4 = DimsHW = Dims


class Permutation(Dims):
    """The order of dimensions of a transposition."""


def volume(shape: Iterable[int]) -> int:
    """The number of elements; -1 for an empty iterable's dynamic dimensions is the caller's business."""
    result = 1
    for dim in shape:
        result *= int(dim)
    return result


class Weights:
    """Numbers for a layer: a NumPy array, or zeros of a type."""

    def __init__(self, a: Any = None, ptr: Optional[int] = None, count: int = 0) -> None:
        if ptr is not None:
            raise TypeError("ulpscope's tensorrt takes weights as NumPy arrays, not as addresses")
        if a is None or isinstance(a, DataType):
            type_name(a if a is not None else DataType.FLOAT)
            self.array = np.zeros(0, np.float32)
        else:
            self.array = np.ascontiguousarray(a).reshape(np.shape(a))

    @property
    def size(self) -> int:
        return int(self.array.size)

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)

    @property
    def dtype(self) -> DataType:
        return type_of_array(self.array)

    def numpy(self) -> np.ndarray:
        return self.array

    def __len__(self) -> int:
        return self.size


def weights_array(weights: Any) -> Optional[np.ndarray]:
    """The array in what a script passed as weights; None for absent or empty ones."""
    if weights is None:
        return None
    array = weights.array if isinstance(weights, Weights) else np.asarray(weights)
    if array.size == 0:
        return None
    type_of_array(array)
    return np.ascontiguousarray(array).reshape(array.shape)


class ITensor(Object):
    """A named value of a network. ``shape`` has -1 for dimensions that are not known."""

    allowed_formats = kept("_allowed_formats", int)  # the engine here has the linear format only
    broadcast_across_batch = False

    def __init__(self, network: "INetworkDefinition", index: int, name: str, dtype: Optional[DataType], shape: Optional[Tuple[int, ...]]) -> None:
        self._network = network
        self._index = index  # in the network's list of tensors
        self._name = name
        self._dtype = dtype
        self._shape = None if shape is None else Dims(shape)
        self._producer: Any = None  # the layer that computes it
        self._original_name = name
        self._set_dtype: Optional[DataType] = None
        self._allowed_formats = 1
        self._dynamic_range: Optional[Tuple[float, float]] = None
        self._dim_names: List[str] = []

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        self._network._rename_tensor(self, str(value))

    @property
    def dtype(self) -> DataType:
        if self._set_dtype is not None:
            return self._set_dtype
        if self._dtype is None:
            self._network._infer()
        return DataType.FLOAT if self._dtype is None else self._dtype

    @dtype.setter
    def dtype(self, value: DataType) -> None:
        type_name(value)
        self._set_dtype = value
        self._network._changed()

    @property
    def shape(self) -> Dims:
        if self._shape is None:
            self._network._infer()
        return Dims(()) if self._shape is None else self._shape

    @shape.setter
    def shape(self, value: Iterable[int]) -> None:
        if not self.is_network_input:
            raise AttributeError(f"'{self._name}' is no network input: its shape follows from the layer that computes it")
        self._shape = Dims(tuple(value))
        self._network._changed(shapes=True)

    @property
    def is_network_input(self) -> bool:
        return any(tensor is self for tensor in self._network._inputs)

    @property
    def is_network_output(self) -> bool:
        return any(tensor is self for tensor in self._network._outputs)

    @property
    def is_shape_tensor(self) -> bool:
        return self._index in self._network._shape_tensors()

    @property
    def is_execution_tensor(self) -> bool:
        return not self.is_shape_tensor

    location = property(lambda self: TensorLocation.DEVICE, lambda self, value: None)

    def set_dynamic_range(self, min: float, max: float) -> bool:
        self._dynamic_range = (float(min), float(max))
        return True

    def get_dynamic_range(self) -> Optional[Tuple[float, float]]:
        return self._dynamic_range

    def reset_dynamic_range(self) -> None:
        self._dynamic_range = None

    dynamic_range = property(
        get_dynamic_range, lambda self, value: None if value is None else self.set_dynamic_range(*value)
    )

    def set_dimension_name(self, index: int, name: str) -> None:
        self._dim_names += [""] * (index + 1 - len(self._dim_names))
        self._dim_names[index] = name

    def get_dimension_name(self, index: int) -> Optional[str]:
        return self._dim_names[index] if index < len(self._dim_names) else None

    def __repr__(self) -> str:
        return f"<tensorrt.ITensor '{self._name}'>"


class InputsAndOutputs(Object):
    """What networks and layers say of the tensors that go in and come out."""

    _inputs: Sequence[Optional[ITensor]]
    _outputs: Sequence[ITensor]

    @property
    def num_inputs(self) -> int:
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        return len(self._outputs)

    def get_input(self, index: int) -> Optional[ITensor]:
        return self._inputs[index] if 0 <= index < len(self._inputs) else None

    def get_output(self, index: int) -> Optional[ITensor]:
        return self._outputs[index] if 0 <= index < len(self._outputs) else None


__all__ = ["Dims", "Dims2", "Dims3", "Dims4", "DimsHW", "ITensor", "Permutation", "TensorFormat", "Weights", "volume", "weights_array"]
