"""ulpscope as a runner of NVIDIA's Polygraphy, which has to be installed.

    from polygraphy.comparator import Comparator
    from ulpscope.polygraphy import UlpscopeRunner
    results = Comparator.run([OnnxrtRunner(session), UlpscopeRunner("model.onnx", answer=answer)], data_loader=samples)
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Mapping, Optional

try:
    from polygraphy.backend.base import BaseRunner
    from polygraphy.common import TensorMetadata
    from polygraphy.util import array as arrays
except ImportError as error:
    from .errors import missing_package

    raise missing_package("polygraphy", "polygraphy", "pip install polygraphy") from error

from .arguments import checked
from .engine import Engine

if TYPE_CHECKING:
    from .data import Model

__all__ = ["UlpscopeRunner"]


class UlpscopeRunner(BaseRunner):  # type: ignore[misc]
    """Runs a model in the precisions of a GPU, emulated.

    model:   a path, bytes, or an onnx.ModelProto.
    name:    of the runner in results.
    options: those of ulpscope.Engine: answer, precision, layer_precisions, fusion, threads.

    Raises what ulpscope.Engine raises, when it is activated.

    >>> from polygraphy.comparator import Comparator
    >>> from ulpscope.polygraphy import UlpscopeRunner
    >>> results = Comparator.run([UlpscopeRunner("model.onnx", precision="fp16")], data_loader=samples)
    >>> len(results[0][1]) == len(samples)
    True
    """

    is_active = False  # Where __init__ refuses, and BaseRunner.__del__ asks.

    @checked
    def __init__(self, model: Model, name: Optional[str] = None, **options: Any) -> None:
        super().__init__(name=name, prefix="ulpscope-runner")
        self._model, self._options = model, options

    def activate_impl(self) -> None:
        self.engine = Engine(self._model, **self._options)

    def get_input_metadata_impl(self) -> Any:
        metadata = TensorMetadata()
        for spec in self.engine.inputs:
            metadata.add(spec.name, dtype=spec.dtype, shape=spec.shape)
        return metadata

    def infer_impl(self, feed_dict: Mapping[str, Any]) -> OrderedDict[str, Any]:
        feed = {name: arrays.to_numpy(value) for name, value in feed_dict.items()}
        begin = time.perf_counter()
        outputs = self.engine.run(feed)
        self.inference_time = time.perf_counter() - begin
        return OrderedDict(outputs)

    def deactivate_impl(self) -> None:
        del self.engine
