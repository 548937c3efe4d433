"""What changes results before they are compared, for scripts given to --postprocess-func-script."""

from __future__ import annotations

from typing import Any, Dict, Tuple, Union

import numpy as np

_K = Union[int, Tuple[int, int]]


def _descending(array: np.ndarray, axis: int) -> np.ndarray:
    """The order of falling values: of equal ones the first comes first, NaN come last."""
    if array.dtype.kind == "f":
        return np.argsort(-array, axis=axis, kind="stable")
    backwards = np.argsort(np.flip(array, axis=axis), axis=axis, kind="stable")
    order: np.ndarray = array.shape[axis] - 1 - np.flip(backwards, axis=axis)
    return order


class BasePostprocessFunc:
    """A function of one IterationResult that returns one."""

    def __call__(self, iter_result: Any) -> Any:
        raise NotImplementedError


class TopKPostprocessFunc(BasePostprocessFunc):
    """Puts the indices of the k largest values in place of the values, along the last axis or that of ``(k, axis)``.

    A dictionary says it per output, under "" for those that it does not name.
    """

    def __init__(self, k: Union[None, _K, Dict[str, _K]] = None) -> None:
        self.k = 10 if k is None else k

    def __call__(self, iter_result: Any) -> Any:
        for name, output in list(iter_result.items()):
            k = self.k.get(name, self.k.get("")) if isinstance(self.k, dict) else self.k
            if not k:
                continue
            count, axis = k if isinstance(k, (tuple, list)) else (k, -1)
            array = np.asarray(output)
            iter_result[name] = np.take(_descending(array, axis), np.arange(min(count, array.shape[axis])), axis=axis)
        return iter_result


class PostprocessFunc:
    """The older name."""

    @staticmethod
    def top_k(k: Union[None, _K, Dict[str, _K]] = None) -> TopKPostprocessFunc:
        """See TopKPostprocessFunc."""
        return TopKPostprocessFunc(k)
