"""Random inputs as the real module generates them."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from ..logger import G_LOGGER


def _is_size(dim: Any) -> bool:
    return isinstance(dim, (int, np.integer)) and bool(dim >= 0)


def _numpy_type(dtype: Any) -> np.dtype:
    if dtype is None:
        return np.dtype(np.float32)
    return np.dtype(dtype if isinstance(dtype, (str, type, np.dtype)) else getattr(dtype, "numpy", lambda: dtype)())


def _overrides(given: List[Any], shape: Optional[List[Any]]) -> bool:
    """Whether a shape that the user gave fits that of the model."""
    if shape is None:
        return True
    return len(given) == len(shape) and all(not _is_size(dim) or dim == mine for dim, mine in zip(shape, given))


class DataLoader:
    """Per iteration i a RandomState(seed + i), from which the inputs are drawn in their order.

    ``input_metadata`` of the constructor overrides shapes and types of the model's, which are set as the attribute later. For a
    one-dimensional integer input with as many elements as the given shape has dimensions, the shape is taken for the values.
    """

    def __init__(
        self,
        seed: Optional[int] = None,
        iterations: Optional[int] = None,
        input_metadata: Any = None,
        int_range: Any = None,
        float_range: Any = None,
        val_range: Any = None,
        data_loader_backend_module: Optional[str] = None,
    ) -> None:
        self.seed = 1 if seed is None else int(seed)
        self.iterations = 1 if iterations is None else int(iterations)
        self.user_input_metadata = input_metadata or {}
        self.input_metadata: Any = None
        self.val_range: Any = val_range or (0.0, 1.0)

    def __len__(self) -> int:
        return self.iterations

    def _range(self, name: str) -> Tuple[float, float]:
        if isinstance(self.val_range, dict):
            by_name: Dict[str, Tuple[float, float]] = self.val_range
            return by_name.get(name, by_name.get("", (0.0, 1.0)))
        low, high = self.val_range
        return low, high

    def _draw(self, generator: np.random.RandomState, name: str, dtype: np.dtype, shape: List[int]) -> np.ndarray:
        low, high = self._range(name)
        if np.issubdtype(dtype, np.integer) or dtype == np.bool_:
            whole: Any = bool if dtype == np.bool_ else int
            integer: Any = dtype
            return np.array(generator.randint(whole(low), whole(high) + 1, size=shape, dtype=integer))
        scale, shift = float(high) - float(low), float(low)
        if math.isinf(low):
            scale, shift = float(low), 0.0
        if math.isinf(high):
            scale = float(high)
        return np.array((generator.random_sample(size=shape) * scale + shift).astype(dtype))

    def __getitem__(self, index: int) -> Dict[str, np.ndarray]:
        if index >= self.iterations:
            raise IndexError()
        generator = np.random.RandomState(self.seed + index)
        feed: Dict[str, np.ndarray] = OrderedDict()
        metadata = self.input_metadata if self.input_metadata is not None else self.user_input_metadata
        for name, entry in metadata.items():
            dtype, shape = entry
            if name in self.user_input_metadata and metadata is not self.user_input_metadata:
                given_type, given = self.user_input_metadata[name]
                dtype = dtype if given_type is None else given_type
                numpy_type = _numpy_type(dtype)
                whole = given is not None and all(map(_is_size, given))
                values = whole and np.issubdtype(numpy_type, np.integer) and len(shape) == 1 and shape[0] == len(given)
                if values:
                    feed[name] = np.array(given, dtype=numpy_type)
                    continue
                if given is not None and whole and _overrides(list(given), shape):
                    shape = given
                elif given is not None:
                    G_LOGGER.warning(
                        f"Input tensor: {name} [shape={tuple(shape)}] | Cannot use provided custom shape: {tuple(given)} to override "
                        "tensor shape. Will use default shape instead."
                    )
            feed[name] = self._draw(generator, name, _numpy_type(dtype), [int(dim) if _is_size(dim) else 1 for dim in shape])
        return feed
