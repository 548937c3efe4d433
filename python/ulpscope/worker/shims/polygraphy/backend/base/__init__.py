"""Loaders: objects that are called to make something."""

from __future__ import annotations

import functools
import re
from typing import Any, Callable


class BaseLoader:
    """``call_impl`` makes it; calling the loader calls that."""

    def call_impl(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call_impl(*args, **kwargs)


def immediate(loader: Callable[..., Any]) -> Callable[..., Any]:
    """The loader as a function that makes the thing at once: ``network_from_onnx_path`` for NetworkFromOnnxPath."""

    @functools.wraps(loader.__init__, assigned=("__doc__",))
    def function(*args: Any, **kwargs: Any) -> Any:
        return loader(*args, **kwargs)()

    function.__name__ = re.sub(r"(?<!^)(?=[A-Z])", "_", loader.__name__).lower()
    return function
