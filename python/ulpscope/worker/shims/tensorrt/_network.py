"""INetworkDefinition: the network of a script, kept as a list of changes to the program's network."""

from __future__ import annotations

import inspect
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import numpy as np

from . import _layers as layers
from . import _window_layers as windows
from ._base import bridge, kept
from ._enums import (
    ActivationType, DataType, ElementWiseOperation, GatherMode, LayerType, MatrixOperation,
    NetworkDefinitionCreationFlag, PoolingType, ReduceOperation, ScaleMode, ScatterMode, TopKOperation,
    UnaryOperation, type_from_name, type_name, type_of_array,
)  # fmt: skip
from ._layers import Emitter, ILayer
from ._tensor import Dims, InputsAndOutputs, ITensor, weights_array

_HAND_BUILT_OPSET = 17
_PLACEHOLDER_ELEMENTS = 4096  # larger constants are not sent when only shapes are asked for


def _adder(kind: Any, inputs: str, outputs: int = 1, **fields: Any) -> Any:
    """An add_* that takes these tensors, and then what attributes of the layer are made of: by a conversion, or by
    (attribute, conversion) where the argument has another name."""
    tensors = inputs.split()
    attributes = {name: each if isinstance(each, tuple) else (name, each) for name, each in fields.items()}
    signature = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in (*tensors, *fields)]
    )

    def add(self: "INetworkDefinition", *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        values = {attribute: convert(given[name]) for name, (attribute, convert) in attributes.items()}
        return self._add(kind, [given[name] for name in tensors], outputs, **values)

    return add


class INetworkDefinition(InputsAndOutputs):
    """Layers and tensors. Made by Builder.create_network, filled by OnnxParser or by add_*."""

    def __init__(self, flags: int = 0) -> None:
        self._flags = int(flags)
        self._handle: Optional[int] = None
        self._opset = _HAND_BUILT_OPSET
        self._name = "Unnamed Network 0"
        self._tensors: List[ITensor] = []
        self._base_tensors = 0
        self._base_values: Set[int] = set()
        self._layers: List[ILayer] = []
        self._inputs: List[ITensor] = []
        self._outputs: List[ITensor] = []
        self._shapes_known = False
        self._lowering: Optional[int] = None
        self._shape_tensor_cache: Optional[Set[int]] = None

    # --- what scripts read -------------------------------------------------------------------------------------------

    name = kept("_name", str)
    has_implicit_batch_dimension = has_explicit_precision = False
    error_recorder: Any = None

    @property
    def flags(self) -> int:
        return self._flags

    def get_flag(self, flag: NetworkDefinitionCreationFlag) -> bool:
        return bool(self._flags >> int(flag) & 1)

    @property
    def num_layers(self) -> int:
        return len(self._layers)

    def get_layer(self, index: int) -> Optional[ILayer]:
        return self._layers[index] if 0 <= index < len(self._layers) else None

    def __len__(self) -> int:
        return len(self._layers)

    def __getitem__(self, index: int) -> ILayer:
        return self._layers[index]

    def __iter__(self) -> Iterator[ILayer]:
        return iter(list(self._layers))

    def __bool__(self) -> bool:
        return True

    # --- outputs and tensors -----------------------------------------------------------------------------------------

    def _own(self, tensor: Any) -> ITensor:
        if not isinstance(tensor, ITensor):
            raise TypeError(f"expected an ITensor (layer.get_output(i)), got {tensor!r}")
        if tensor._network is not self:
            raise ValueError(f"the tensor '{tensor.name}' belongs to another network")
        return tensor

    def mark_output(self, tensor: ITensor) -> None:
        if not self._own(tensor).is_network_output:
            self._outputs.append(tensor)

    def unmark_output(self, tensor: ITensor) -> None:
        self._outputs = [output for output in self._outputs if output is not self._own(tensor)]

    def mark_debug(self, tensor: ITensor) -> bool:
        return True

    def unmark_debug(self, tensor: ITensor) -> bool:
        return True

    def mark_output_for_shapes(self, tensor: ITensor) -> bool:
        self.mark_output(tensor)
        return True

    def remove_tensor(self, tensor: ITensor) -> None:
        """A network input that nothing reads, or a mark as an output."""
        self.unmark_output(tensor)
        self._inputs = [entry for entry in self._inputs if entry is not tensor]

    def _rename_tensor(self, tensor: ITensor, name: str) -> None:
        if name != tensor._name and any(other._name == name for other in self._tensors):
            raise ValueError(f"cannot name the tensor '{tensor._name}' '{name}': another tensor has that name")
        tensor._name = name

    def _changed(self, shapes: bool = False) -> None:
        if shapes:
            self._shapes_known = False
            self._shape_tensor_cache = None

    def _new_tensor(self, name: str, dtype: Optional[DataType], shape: Optional[Sequence[int]]) -> ITensor:
        tensor = ITensor(self, len(self._tensors), name, dtype, None if shape is None else tuple(shape))
        self._tensors.append(tensor)
        return tensor

    def add_input(self, name: str, dtype: DataType, shape: Sequence[int]) -> ITensor:
        type_name(dtype)
        if any(tensor._name == name for tensor in self._tensors):
            raise ValueError(f"the network has a tensor named '{name}' already")
        tensor = self._new_tensor(str(name), dtype, tuple(int(dim) for dim in shape))
        self._inputs.append(tensor)
        return tensor

    # --- layers ------------------------------------------------------------------------------------------------------

    def _add(self, kind: Any, inputs: Sequence[Optional[ITensor]], outputs: int = 1, **attributes: Any) -> Any:
        for tensor in inputs:
            if tensor is not None:
                self._own(tensor)
        name = f"(Unnamed Layer* {len(self._layers)}) [{kind._LABEL}]"
        layer = kind(self, name, inputs)
        for index in range(outputs):
            suffix = "_output" if outputs == 1 else f"_output_{index + 1}"
            output = self._new_tensor(name + suffix, None, None)
            output._producer = layer
            layer._outputs.append(output)
        layer._output_types = [None] * outputs
        for key, value in attributes.items():
            object.__setattr__(layer, key, value)
        self._layers.append(layer)
        self._changed(shapes=True)
        return layer

    def add_constant(self, shape: Sequence[int], weights: Any) -> Any:
        array = weights_array(weights)
        if array is None:
            raise ValueError("add_constant: expected weights, got no elements")
        array = array.reshape(tuple(int(dim) for dim in shape))
        layer = self._add(layers.IConstantLayer, [], _weights=array)
        layer._outputs[0]._dtype = type_of_array(array)
        layer._outputs[0]._shape = Dims(array.shape)
        return layer

    add_identity = _adder(layers.IIdentityLayer, "input")
    add_activation = _adder(layers.IActivationLayer, "input", type=("_kind", ActivationType))
    add_unary = _adder(layers.IUnaryLayer, "input", op=("_op", UnaryOperation))
    add_elementwise = _adder(layers.IElementWiseLayer, "input1 input2", op=("_op", ElementWiseOperation))
    add_select = _adder(layers.ISelectLayer, "condition then_input else_input")
    add_shape = _adder(layers.IShapeLayer, "input")
    add_non_zero = _adder(layers.INonZeroLayer, "input")
    add_parametric_relu = _adder(layers.IParametricReLULayer, "input slopes")
    add_softmax = _adder(layers.ISoftMaxLayer, "input")
    add_shuffle = _adder(windows.IShuffleLayer, "input")
    add_reduce = _adder(windows.IReduceLayer, "input", op=ReduceOperation, axes=int, keep_dims=bool)
    add_slice = _adder(windows.ISliceLayer, "input", start=tuple, shape=tuple, stride=tuple)
    add_gather = _adder(windows.IGatherLayer, "input indices", axis=int)
    add_gather_v2 = _adder(windows.IGatherLayer, "input indices", mode=GatherMode)
    add_scatter = _adder(windows.IScatterLayer, "data indices updates", mode=ScatterMode)
    add_topk = _adder(windows.ITopKLayer, "input", 2, op=TopKOperation, k=int, axes=int)
    add_resize = _adder(windows.IResizeLayer, "input")
    add_padding_nd = _adder(
        windows.IPaddingLayer, "input", pre_padding=("pre_padding_nd", tuple), post_padding=("post_padding_nd", tuple)
    )
    add_lrn = _adder(windows.ILRNLayer, "input", window=("window_size", int), alpha=float, beta=float, k=float)
    add_one_hot = _adder(windows.IOneHotLayer, "indices values depth", axis=int)
    add_normalization = _adder(windows.INormalizationLayer, "input scale bias", axesMask=("axes", int))
    add_squeeze = _adder(windows.ISqueezeLayer, "input axes")
    add_unsqueeze = _adder(windows.IUnsqueezeLayer, "input axes")
    add_padding = add_padding_nd

    def add_cast(self, input: ITensor, to_type: DataType) -> Any:
        type_name(to_type)
        return self._add(layers.ICastLayer, [input], to_type=to_type)

    def add_matrix_multiply(self, input0: ITensor, op0: MatrixOperation, input1: ITensor, op1: MatrixOperation) -> Any:
        return self._add(layers.IMatrixMultiplyLayer, [input0, input1], op0=MatrixOperation(op0), op1=MatrixOperation(op1))

    def add_concatenation(self, inputs: Sequence[ITensor]) -> Any:
        layer = self._add(layers.IConcatenationLayer, list(inputs))
        object.__setattr__(layer, "axis", max(0, len(inputs[0].shape) - 3))
        return layer

    def add_einsum(self, inputs: Sequence[ITensor], equation: str) -> Any:
        return self._add(layers.IEinsumLayer, list(inputs), equation=str(equation))

    def _add_convolution(self, kind: Any, input: ITensor, num_output_maps: int, kernel_shape: Any, kernel: Any, bias: Any) -> Any:
        window = tuple(windows.spread(kernel_shape, 2))
        return self._add(
            kind, [input], num_output_maps=int(num_output_maps), _window=window, _kernel=weights_array(kernel), _bias=weights_array(bias)
        )

    def add_convolution_nd(self, input: ITensor, num_output_maps: int, kernel_shape: Any, kernel: Any, bias: Any = None) -> Any:
        return self._add_convolution(windows.IConvolutionLayer, input, num_output_maps, kernel_shape, kernel, bias)

    add_convolution = add_convolution_nd

    def add_deconvolution_nd(self, input: ITensor, num_output_maps: int, kernel_shape: Any, kernel: Any, bias: Any = None) -> Any:
        return self._add_convolution(windows.IDeconvolutionLayer, input, num_output_maps, kernel_shape, kernel, bias)

    add_deconvolution = add_deconvolution_nd

    def add_pooling_nd(self, input: ITensor, type: PoolingType, window_size: Any) -> Any:
        return self._add(windows.IPoolingLayer, [input], _kind=PoolingType(type), _window=tuple(windows.spread(window_size, 2)))

    add_pooling = add_pooling_nd

    def add_scale_nd(self, input: ITensor, mode: ScaleMode, shift: Any = None, scale: Any = None, power: Any = None, channel_axis: int = 1) -> Any:
        arrays: Dict[str, Any] = {"_shift": weights_array(shift), "_scale": weights_array(scale), "_power": weights_array(power)}
        return self._add(windows.IScaleLayer, [input], mode=ScaleMode(mode), channel_axis=int(channel_axis), **arrays)

    add_scale = add_scale_nd

    def add_quantize(self, input: ITensor, scale: ITensor, output_type: DataType = DataType.INT8) -> Any:
        return self._add(windows.IQuantizeLayer, [input, scale], to_type=DataType(output_type))

    def add_dequantize(self, input: ITensor, scale: ITensor, output_type: DataType = DataType.FLOAT) -> Any:
        layer = self._add(windows.IDequantizeLayer, [input, scale])
        if output_type != DataType.FLOAT:
            layer.set_output_type(0, output_type)
        return layer

    def add_fully_connected(self, input: ITensor, num_outputs: int, kernel: Any, bias: Any = None) -> Any:
        arrays: Dict[str, Any] = {"_kernel": weights_array(kernel), "_bias": weights_array(bias)}
        return self._add(windows.IFullyConnectedLayer, [input], num_output_channels=int(num_outputs), **arrays)

    # --- to and from the program -------------------------------------------------------------------------------------

    def _load(self, description: Dict[str, Any]) -> None:
        """Becomes the network that the program describes. The network must be empty."""
        self._handle = description["handle"]
        self._name = description["name"] or self._name
        self._opset = max(13, description["opset"]) if description["opset"] else _HAND_BUILT_OPSET
        for index, (name, dtype, shape, has_value) in enumerate(description["tensors"]):
            self._new_tensor(name, type_from_name(dtype), shape)
            if has_value:
                self._base_values.add(index)
        self._base_tensors = len(self._tensors)
        self._inputs = [self._tensors[index] for index in description["inputs"]]
        self._outputs = [self._tensors[index] for index in description["outputs"]]
        self._layers += [self._described_layer(entry) for entry in description["layers"]]

    def _described_layer(self, entry: Dict[str, Any]) -> ILayer:
        kind = layers.IConstantLayer if entry["type"] == "CONSTANT" else ILayer
        inputs = [None if index is None else self._tensors[index] for index in entry["inputs"]]
        layer = kind(self, entry["name"], inputs)
        layer._base = entry["id"]
        layer._layer_type = LayerType[entry["type"]]
        layer._onnx_op, layer._onnx_domain = entry["op"], entry["domain"]
        layer._metadata = "".join(f"[ONNX Layer: {node}]" for node in entry["nodes"])
        for index in entry["outputs"]:
            output = self._tensors[index] if index is not None else self._new_tensor("", None, None)
            output._producer = layer
            layer._outputs.append(output)
        layer._precision = type_from_name(entry["precision"])
        layer._output_types = [type_from_name(name) for name in entry["output_types"]]
        layer._output_types += [None] * (len(layer._outputs) - len(layer._output_types))
        layer._original = self._state_of(layer)
        return layer

    @staticmethod
    def _state_of(layer: ILayer) -> Tuple[Any, ...]:
        inputs = tuple(None if tensor is None else tensor._index for tensor in layer._inputs)
        return layer._name, layer._precision, tuple(layer._output_types), inputs

    def _constant_value(self, layer: ILayer) -> np.ndarray:
        if layer._base is None:
            raise ValueError(f"the constant '{layer._name}' has no weights")
        value: np.ndarray = bridge.ask("constant", {"handle": self._handle, "tensor": layer._outputs[0]._index})
        return value

    def _describe(self, limit: Optional[int] = None, for_shapes: bool = False) -> Dict[str, Any]:
        """The changes, for the program; of the first `limit` layers only, and without large constants, for shapes."""
        new_tensors: List[Dict[str, Any]] = [self._described_tensor(tensor) for tensor in self._tensors[self._base_tensors :]]
        changed_tensors = [
            {"id": tensor._index, "name": tensor._name, "dtype": None if tensor._set_dtype is None else type_name(tensor._set_dtype)}
            for tensor in self._tensors[: self._base_tensors]
            if tensor._name != tensor._original_name or tensor._set_dtype is not None
        ]
        changed, added = [], []
        for number, layer in enumerate(self._layers[:limit]):
            if layer._base is None:
                added.append(self._lowered(number, layer, new_tensors))
            elif self._state_of(layer) != layer._original:
                changed.append({"id": layer._base, **self._requests(layer), "inputs": list(self._state_of(layer)[3])})
        if for_shapes:
            _leave_out_large_values(new_tensors, added)
        outputs = [] if for_shapes else [tensor._index for tensor in self._outputs]
        return {
            "handle": self._handle,
            "opset": self._opset,
            "name": self._name,
            "strongly_typed": self.get_flag(NetworkDefinitionCreationFlag.STRONGLY_TYPED),
            "new_tensors": new_tensors,
            "changed_tensors": changed_tensors,
            "changed_layers": changed,
            "added_layers": added,
            "inputs": [tensor._index for tensor in self._inputs],
            "outputs": outputs,
        }

    def _described_tensor(self, tensor: ITensor) -> Dict[str, Any]:
        entry: Dict[str, Any] = {"name": tensor._name}
        if tensor.is_network_input:
            entry["dtype"], entry["shape"] = type_name(tensor.dtype), list(tensor.shape)
        elif tensor._set_dtype is not None:
            entry["dtype"] = type_name(tensor._set_dtype)
        return entry

    def _requests(self, layer: ILayer) -> Dict[str, Any]:
        return {
            "name": layer._name,
            "precision": None if layer._precision is None else type_name(layer._precision),
            "output_types": [None if dtype is None else type_name(dtype) for dtype in layer._output_types],
        }

    def _lowered(self, number: int, layer: ILayer, new_tensors: List[Dict[str, Any]]) -> Dict[str, Any]:
        emit = Emitter(new_tensors, self._base_tensors, self._opset, layer)
        outer, self._lowering = self._lowering, number
        try:
            layer._lower(emit)
        finally:
            self._lowering = outer
        return {**self._requests(layer), "operators": emit.layers}

    def _infer(self) -> None:
        """Asks the program for the types and shapes that are not known yet."""
        if self._shapes_known and self._lowering is None:
            return
        limit = self._lowering
        if not self._layers[:limit]:
            return
        description = self._describe(limit, for_shapes=True)
        known = bridge.ask("infer", {"network": description})
        for tensor, (dtype, shape) in zip(self._tensors, known):
            if tensor.is_network_input:
                continue
            tensor._dtype = type_from_name(dtype) or tensor._dtype
            if shape is not None:
                tensor._shape = Dims(shape)
        if limit is None:
            self._shapes_known = True

    def _shape_tensors(self) -> Set[int]:
        """Indices of tensors whose values are shapes: computed from Shape layers and constants alone, in integers."""
        if self._shape_tensor_cache is None:
            constant: Set[int] = set(self._base_values)
            found: Set[int] = set()
            for layer in self._layers:
                inputs = [tensor._index for tensor in layer._inputs if tensor is not None]
                if layer._layer_type == LayerType.SHAPE:
                    found.update(tensor._index for tensor in layer._outputs)
                elif all(index in constant for index in inputs):
                    constant.update(tensor._index for tensor in layer._outputs)
                elif inputs and all(index in constant or index in found for index in inputs):
                    found.update(tensor._index for tensor in layer._outputs)
            integers = (DataType.INT32, DataType.INT64, DataType.BOOL)
            self._shape_tensor_cache = {index for index in found if self._tensors[index].dtype in integers}
        return self._shape_tensor_cache


def _leave_out_large_values(new_tensors: List[Dict[str, Any]], added: List[Dict[str, Any]]) -> None:
    def stand_in(holder: Dict[str, Any]) -> None:
        value = holder.get("value")
        if isinstance(value, np.ndarray) and value.size > _PLACEHOLDER_ELEMENTS:
            holder["value"] = None
            holder["dtype"], holder["shape"] = type_name(type_of_array(value)), list(value.shape)

    for tensor in new_tensors:
        stand_in(tensor)
    for layer in added:
        for operator in layer["operators"]:
            if operator["op"] == "Constant":
                stand_in(operator["attributes"])
