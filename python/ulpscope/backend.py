"""ONNX's backend interface over ulpscope's engine: `prepare(model, "CPU").run(inputs)`."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Tuple

import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType

from .arguments import shown
from .engine import Engine
from .errors import Error, ErrorCode


class UlpscopeRep(BackendRep):
    """A model that is ready to run."""

    def __init__(self, engine: Engine, outputs: Sequence[str] = ()) -> None:
        """`outputs`: as the model lists them, where one may be listed twice."""
        self.engine, self._outputs = engine, tuple(outputs)

    def run(self, inputs: Any, **kwargs: Any) -> Tuple[Any, ...]:
        """The outputs in the model's order. `inputs`: arrays in the model's order, or by name; a single array is the
        only input."""
        if not isinstance(inputs, (Mapping, list, tuple)):
            inputs = [inputs]
        results = self.engine.run(inputs)
        # Outputs that are no tensors have given way to others.
        names = self._outputs if set(self._outputs) == set(results) else tuple(results)
        return tuple(results[name] for name in names)


class UlpscopeBackend(Backend):
    """Keyword arguments of `prepare` are those of ulpscope.Engine: precision, layer_precisions, fusion, threads."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> UlpscopeRep:
        """Builds an engine. Raises ulpscope.Error for what the engine refuses, and for another device."""
        if not cls.supports_device(device):
            raise Error(
                ErrorCode.UNSUPPORTED,
                f"[backend] device: expected 'CPU', got {shown(device)}; try backend='cuda' for an NVIDIA GPU",
            )
        engine = Engine(model.SerializeToString(), **kwargs)
        return UlpscopeRep(engine, [output.name for output in model.graph.output])

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> Tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(  # type: ignore[override]
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Optional[Sequence[Tuple[Any, Tuple[int, ...]]]] = None,
        opset_version: Optional[int] = None,
        **kwargs: Any,
    ) -> Tuple[Any, ...]:
        """Runs one node; `inputs` has an array per input that is present (an absent one has an empty name)."""
        import numpy as np

        arrays = [np.asarray(value) for value in (inputs.values() if isinstance(inputs, Mapping) else inputs)]
        names = [name for name in node.input if name]
        graph_inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(names, arrays)
        ]
        graph_outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        for value, (dtype, shape) in zip(graph_outputs, outputs_info or ()):
            value.CopyFrom(
                helper.make_tensor_value_info(value.name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            )
        graph = helper.make_graph([node], "node", graph_inputs, graph_outputs)
        opsets = [helper.make_opsetid(node.domain, opset_version or onnx.defs.onnx_opset_version())]
        return cls.run_model(helper.make_model(graph, opset_imports=opsets), arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        try:
            return bool(Device(device).type == DeviceType.CPU)
        except (AttributeError, ValueError):  # No device that ONNX knows.
            return False


prepare = UlpscopeBackend.prepare
run_model = UlpscopeBackend.run_model
run_node = UlpscopeBackend.run_node
supports_device = UlpscopeBackend.supports_device
is_compatible = UlpscopeBackend.is_compatible
