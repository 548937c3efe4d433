"""Loaders of networks."""

from __future__ import annotations

import fnmatch
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

import tensorrt as trt

from ... import constants, util
from ...exception import PolygraphyException
from ...logger import G_LOGGER
from ..base import BaseLoader, immediate

_LOGGER = None


def get_trt_logger() -> Any:
    """The logger that networks are made with."""
    global _LOGGER
    if _LOGGER is None:
        _LOGGER = trt.Logger()
    return _LOGGER


class LoadPlugins(BaseLoader):
    def __init__(self, plugins: Optional[List[str]] = None, obj: Any = None) -> None:
        self._plugins, self._obj = plugins or [], obj

    def call_impl(self, *args: Any, **kwargs: Any) -> Any:
        if self._plugins:
            G_LOGGER.warning(f"ulpscope has no TensorRT plugins; not loaded: {self._plugins}")
        return util.invoke_if_callable(self._obj, *args, **kwargs)[0]


class CreateNetwork(BaseLoader):
    """An empty network: returns (builder, network)."""

    def __init__(self, explicit_batch: Optional[bool] = None, strongly_typed: Optional[bool] = None, **kwargs: Any) -> None:
        self._strongly_typed = bool(strongly_typed)

    def call_impl(self) -> Tuple[Any, Any]:
        builder = trt.Builder(get_trt_logger())
        flags = 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
        if self._strongly_typed:
            flags |= 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        return builder, builder.create_network(flags)


class _FromOnnx(BaseLoader):
    def __init__(self, model: Any, flags: Any = None, plugin_instancenorm: Any = None, strongly_typed: Optional[bool] = None, **kwargs: Any) -> None:
        self._model = model
        self._strongly_typed = strongly_typed

    def _empty(self) -> Tuple[Any, Any, Any]:
        builder, network = CreateNetwork(strongly_typed=self._strongly_typed)()
        return builder, network, trt.OnnxParser(network, get_trt_logger())


class NetworkFromOnnxPath(_FromOnnx):
    """The network of an ONNX file: returns (builder, network, parser)."""

    def __init__(self, path: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(path, *args, **kwargs)

    def call_impl(self) -> Tuple[Any, Any, Any]:
        builder, network, parser = self._empty()
        parser.parse_from_file(util.invoke_if_callable(self._model)[0])
        return builder, network, parser


class NetworkFromOnnxBytes(_FromOnnx):
    """The network of a serialized ONNX model: returns (builder, network, parser)."""

    def __init__(self, model_bytes: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(model_bytes, *args, **kwargs)

    def call_impl(self) -> Tuple[Any, Any, Any]:
        builder, network, parser = self._empty()
        parser.parse(util.invoke_if_callable(self._model)[0])
        return builder, network, parser


class PostprocessNetwork(BaseLoader):
    """Calls a function with ``network=network``; returns what the loader returned."""

    def __init__(self, network: Any, func: Callable[..., None], name: Optional[str] = None) -> None:
        if not callable(func):
            raise PolygraphyException(f"Object {func} (of type {type(func).__name__}) is not a callable.")
        self._network, self._function = network, func

    def call_impl(self) -> Any:
        returned, _ = util.invoke_if_callable(self._network)
        results = returned if type(returned) is tuple else (returned,)
        network = next((item for item in results if isinstance(item, trt.INetworkDefinition)), None)
        if network is None:
            raise PolygraphyException("expected a loader that returns a network")
        self._function(network=network)
        return returned


class ModifyNetworkOutputs(PostprocessNetwork):
    """Marks and unmarks outputs by name; ``constants.MARK_ALL`` marks every tensor of every layer."""

    def __init__(self, network: Any, outputs: Union[str, Iterable[str], None] = None, exclude_outputs: Optional[Iterable[str]] = None) -> None:
        super().__init__(network, self._apply)
        self._wanted = outputs
        self._excluded = list(exclude_outputs or [])

    def _apply(self, network: Any) -> None:
        tensors = {tensor.name: tensor for layer in network for tensor in layer._outputs}
        if self._wanted == constants.MARK_ALL:
            skipped = (trt.LayerType.CONSTANT, trt.LayerType.SHAPE)
            names = [tensor.name for layer in network if layer._layer_type not in skipped for tensor in layer._outputs]
        elif self._wanted is not None:
            names = []
            for pattern in self._wanted:
                found = [name for name in tensors if name == pattern or fnmatch.fnmatchcase(name, pattern)]
                if not found:
                    raise PolygraphyException(f"The following outputs were not found: ['{pattern}'].\nNote: Available tensors: {list(tensors)}")
                names += found
        else:
            names = [network.get_output(index).name for index in range(network.num_outputs)]
        for index in reversed(range(network.num_outputs)):
            network.unmark_output(network.get_output(index))
        for name in util.unique_list(names):
            if not any(fnmatch.fnmatchcase(name, pattern) or name == pattern for pattern in self._excluded):
                network.mark_output(tensors[name])


def _inputs_and_outputs(network: Any) -> List[Any]:
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    return inputs + [network.get_output(index) for index in range(network.num_outputs)]


class SetLayerPrecisions(PostprocessNetwork):
    """Sets compute precisions by layer name."""

    def __init__(self, network: Any, layer_precisions: Dict[str, Any]) -> None:
        super().__init__(network, self._apply)
        self._precisions = layer_precisions

    def _apply(self, network: Any) -> None:
        layers = {layer.name: layer for layer in network}
        for name, precision in self._precisions.items():
            if name in layers:
                layers[name].precision = precision
            else:
                G_LOGGER.warning(f"The following layers were not found in the network: ['{name}']")


class SetTensorDatatypes(PostprocessNetwork):
    """Sets the types of network inputs and outputs by name."""

    def __init__(self, network: Any, tensor_datatypes: Dict[str, Any]) -> None:
        super().__init__(network, self._apply)
        self._types = tensor_datatypes

    def _apply(self, network: Any) -> None:
        tensors = _inputs_and_outputs(network)
        for name, dtype in self._types.items():
            found = [tensor for tensor in tensors if tensor.name == name]
            if not found:
                raise PolygraphyException(f"'{name}' is no input or output of the network: {[tensor.name for tensor in tensors]}")
            found[0].dtype = dtype


class SetTensorFormats(PostprocessNetwork):
    """Sets the formats of network inputs and outputs by name. They are kept for the script alone: the engine's are row-major."""

    def __init__(self, network: Any, tensor_formats: Dict[str, Iterable[Any]]) -> None:
        super().__init__(network, self._apply)
        self._formats = tensor_formats

    def _apply(self, network: Any) -> None:
        tensors = {tensor.name: tensor for tensor in _inputs_and_outputs(network)}
        for name, formats in self._formats.items():
            if name in tensors:
                tensors[name].allowed_formats = sum(1 << int(each) for each in set(formats))
            else:
                G_LOGGER.warning(f"The following tensors were not found in the network: ['{name}']")


load_plugins = immediate(LoadPlugins)
create_network = immediate(CreateNetwork)
network_from_onnx_path = immediate(NetworkFromOnnxPath)
network_from_onnx_bytes = immediate(NetworkFromOnnxBytes)
postprocess_network = immediate(PostprocessNetwork)
modify_network_outputs = immediate(ModifyNetworkOutputs)
set_layer_precisions = immediate(SetLayerPrecisions)
set_tensor_datatypes = immediate(SetTensorDatatypes)
set_tensor_formats = immediate(SetTensorFormats)
