"""Layers over windows and axes: convolution, pooling, resizing, reduction, slicing and the like."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from ._base import kept
from ._enums import (
    DataType, GatherMode, InterpolationMode, LayerType, PaddingMode, PoolingType, ReduceOperation,
    ResizeCoordinateTransformation, ResizeRoundMode, SampleMode, ScaleMode, ScatterMode, TopKOperation,
)  # fmt: skip
from ._layers import Emitter, ILayer, _OperatorLayer, axes_of_mask
from ._tensor import Dims, weights_array


def spread(value: Any, count: int) -> List[int]:
    """One number per spatial dimension."""
    return [int(value)] * count if isinstance(value, (int, np.integer)) else [int(item) for item in value]


class _WindowLayer(ILayer):
    """Stride, dilation and padding, under their old and new names."""

    _window: Tuple[int, ...] = ()
    _stride: Optional[Sequence[int]] = None
    _dilation: Optional[Sequence[int]] = None
    _pre: Optional[Sequence[int]] = None
    _post: Optional[Sequence[int]] = None
    padding_mode: PaddingMode = PaddingMode.EXPLICIT_ROUND_DOWN

    def _get(self, name: str, default: int) -> Dims:
        value = getattr(self, name)
        return Dims([default] * len(self._window) if value is None else value)

    def _set(self, name: str, value: Any) -> None:
        setattr(self, name, spread(value, len(self._window)))

    stride_nd = stride = property(lambda self: self._get("_stride", 1), lambda self, value: self._set("_stride", value))
    dilation_nd = dilation = property(lambda self: self._get("_dilation", 1), lambda self, value: self._set("_dilation", value))
    pre_padding = property(lambda self: self._get("_pre", 0), lambda self, value: self._set("_pre", value))
    post_padding = property(lambda self: self._get("_post", 0), lambda self, value: self._set("_post", value))

    def _set_padding(self, value: Any) -> None:
        self._set("_pre", value)
        self._set("_post", value)

    padding_nd = padding = property(lambda self: self._get("_pre", 0), _set_padding)

    def _attributes(self) -> Dict[str, Any]:
        result: Dict[str, Any] = {"kernel_shape": list(self._window), "strides": list(self.stride_nd)}
        if self._dilation is not None:
            result["dilations"] = list(self.dilation_nd)
        if self.padding_mode in (PaddingMode.SAME_UPPER, PaddingMode.SAME_LOWER):
            result["auto_pad"] = self.padding_mode.name
        else:
            result["pads"] = list(self.pre_padding) + list(self.post_padding)
        return result


class _KernelLayer(ILayer):
    """Weights that the layer holds itself."""

    _kernel: Optional[np.ndarray] = None
    _bias: Optional[np.ndarray] = None
    kernel = kept("_kernel", weights_array)
    bias = kept("_bias", weights_array)

    def _kernel_as(self, *shape: int) -> np.ndarray:
        if self._kernel is None:
            raise ValueError(f"layer '{self._name}' has no kernel weights")
        return self._kernel.reshape(shape)


class IConvolutionLayer(_WindowLayer, _KernelLayer):
    _TYPE, _LABEL, _OPERATOR = LayerType.CONVOLUTION, "Convolution", "Conv"
    num_output_maps: int = 0
    num_groups: int = 1

    kernel_size_nd = kernel_size = property(lambda self: Dims(self._window))

    def _kernel_shape(self) -> Tuple[int, ...]:
        return (self.num_output_maps, -1, *self._window)

    def _weights(self) -> List[Any]:
        given = (self._inputs[1:3] + [None, None])[:2]
        if given[0] is None:
            given[0] = self._kernel_as(*self._kernel_shape())
        if given[1] is None and self._bias is not None:
            given[1] = self._bias.reshape(-1)
        return given if given[1] is not None else given[:1]

    def _lower(self, emit: Emitter) -> None:
        if self.padding_mode == PaddingMode.EXPLICIT_ROUND_UP:
            raise ValueError(f"layer '{self._name}' rounds sizes up, as only pooling does in ONNX; try post_padding")
        emit.last(self._OPERATOR, [self._inputs[0], *self._weights()], group=int(self.num_groups), **self._attributes())


class IDeconvolutionLayer(IConvolutionLayer):
    _TYPE, _LABEL, _OPERATOR = LayerType.DECONVOLUTION, "Deconvolution", "ConvTranspose"

    def _kernel_shape(self) -> Tuple[int, ...]:
        return (-1, self.num_output_maps // int(self.num_groups), *self._window)


class IPoolingLayer(_WindowLayer):
    _TYPE, _LABEL = LayerType.POOLING, "Pooling"
    _kind = PoolingType.MAX
    average_count_excludes_padding: bool = True
    blend_factor: float = 0.0
    type = kept("_kind", PoolingType)

    window_size_nd = window_size = property(
        lambda self: Dims(self._window), lambda self, value: self._set("_window", value)
    )

    def _lower(self, emit: Emitter) -> None:
        attributes = self._attributes()
        if self.padding_mode == PaddingMode.EXPLICIT_ROUND_UP:
            attributes["ceil_mode"] = 1
        of_average = {"count_include_pad": int(not self.average_count_excludes_padding), **attributes}
        if self._kind == PoolingType.MAX:
            emit.last("MaxPool", self._inputs, **attributes)
        elif self._kind == PoolingType.AVERAGE:
            emit.last("AveragePool", self._inputs, **of_average)
        else:
            largest = emit.node("Mul", [emit.node("MaxPool", self._inputs, **attributes), np.asarray(1 - self.blend_factor, np.float32)])
            average = emit.node("AveragePool", self._inputs, **of_average)
            emit.last("Add", [largest, emit.node("Mul", [average, np.asarray(self.blend_factor, np.float32)])])


class IShuffleLayer(ILayer):
    _TYPE, _LABEL = LayerType.SHUFFLE, "Shuffle"
    first_transpose: Optional[Sequence[int]] = None
    second_transpose: Optional[Sequence[int]] = None
    zero_is_placeholder: bool = True
    _reshape: Optional[Dims] = None
    reshape_dims = kept("_reshape", lambda value: Dims(tuple(value)))

    def _lower(self, emit: Emitter) -> None:
        steps: List[Any] = []
        if self.first_transpose is not None:
            steps.append(("Transpose", [], {"perm": [int(axis) for axis in self.first_transpose]}))
        target: Any = self._inputs[1] if len(self._inputs) > 1 else None
        if target is None and self._reshape is not None:
            target = np.asarray(self._reshape, np.int64)
        if target is not None:
            steps.append(("Reshape", [target], {} if self.zero_is_placeholder else {"allowzero": 1}))
        if self.second_transpose is not None:
            steps.append(("Transpose", [], {"perm": [int(axis) for axis in self.second_transpose]}))
        emit.chain(self._inputs[0], steps)


class IReduceLayer(ILayer):
    _TYPE, _LABEL = LayerType.REDUCE, "Reduce"
    op: ReduceOperation = ReduceOperation.SUM
    axes: int = 0
    keep_dims: bool = False

    def _lower(self, emit: Emitter) -> None:
        names = {"SUM": "ReduceSum", "PROD": "ReduceProd", "MAX": "ReduceMax", "MIN": "ReduceMin", "AVG": "ReduceMean"}
        name = names[ReduceOperation(self.op).name]
        since = 13 if name == "ReduceSum" else 18
        emit.with_axes(name, self._inputs[0], axes_of_mask(self.axes), since, True, keepdims=int(bool(self.keep_dims)))


class ISliceLayer(ILayer):
    _TYPE, _LABEL = LayerType.SLICE, "Slice"
    start: Sequence[int] = ()
    shape: Sequence[int] = ()
    stride: Sequence[int] = ()
    mode: SampleMode = SampleMode.STRICT_BOUNDS

    def _lower(self, emit: Emitter) -> None:
        if self.mode not in (SampleMode.STRICT_BOUNDS, SampleMode.CLAMP) or any(tensor is not None for tensor in self._inputs[1:3]):
            raise ValueError(f"the slice layer '{self._name}' needs a start and a size known beforehand, and strict bounds")
        ends = []
        for start, size, step in zip(self.start, self.shape, self.stride):
            end = int(start) + int(size) * int(step)
            ends.append(end if end >= 0 else -(1 << 31))  # a negative step that runs past the first element
        axes = np.arange(len(ends), dtype=np.int64)
        numbers = [np.asarray(list(value), np.int64) for value in (self.start, ends)]
        emit.last("Slice", [self._inputs[0], *numbers, axes, np.asarray(list(self.stride), np.int64)])


class IGatherLayer(ILayer):
    _TYPE, _LABEL = LayerType.GATHER, "Gather"
    axis: int = 0
    num_elementwise_dims: int = 0
    mode: GatherMode = GatherMode.DEFAULT

    def _lower(self, emit: Emitter) -> None:
        if self.mode == GatherMode.ND:
            emit.last("GatherND", self._inputs, batch_dims=int(self.num_elementwise_dims))
        else:
            emit.last("GatherElements" if self.mode == GatherMode.ELEMENT else "Gather", self._inputs, axis=int(self.axis))


class IScatterLayer(ILayer):
    _TYPE, _LABEL = LayerType.SCATTER, "Scatter"
    axis: int = 0
    mode: ScatterMode = ScatterMode.ELEMENT

    def _lower(self, emit: Emitter) -> None:
        op, axis = ("ScatterND", None) if self.mode == ScatterMode.ND else ("ScatterElements", int(self.axis))
        emit.last(op, self._inputs, axis=axis)


class ITopKLayer(ILayer):
    _TYPE, _LABEL = LayerType.TOPK, "TopK"
    op: TopKOperation = TopKOperation.MAX
    k: int = 1
    axes: int = 0

    def _lower(self, emit: Emitter) -> None:
        k: Any = self._inputs[1] if len(self._inputs) > 1 else np.asarray([self.k], np.int64)
        axis = self._one_axis("topk", self.axes)
        emit.last("TopK", [self._inputs[0], k], axis=axis, largest=int(self.op == TopKOperation.MAX))


class IScaleLayer(ILayer):
    """(x * scale + shift) ** power"""

    _TYPE, _LABEL = LayerType.SCALE, "Scale"
    mode: ScaleMode = ScaleMode.UNIFORM
    channel_axis: int = 1
    _shift: Optional[np.ndarray] = None
    _scale: Optional[np.ndarray] = None
    _power: Optional[np.ndarray] = None
    shift = kept("_shift", weights_array)
    scale = kept("_scale", weights_array)
    power = kept("_power", weights_array)

    def _shaped(self, array: np.ndarray) -> np.ndarray:
        shape = self._inputs[0].shape
        if self.mode == ScaleMode.UNIFORM:
            return array.reshape(())
        if self.mode == ScaleMode.CHANNEL:
            return array.reshape([-1] + [1] * (len(shape) - 1 - self.channel_axis))
        return array.reshape([-1, *shape[2:]])

    def _lower(self, emit: Emitter) -> None:
        arrays = {"Mul": self._scale, "Add": self._shift, "Pow": self._power}
        emit.chain(self._inputs[0], [(op, [self._shaped(each)], {}) for op, each in arrays.items() if each is not None])


class IResizeLayer(ILayer):
    _TYPE, _LABEL = LayerType.RESIZE, "Resize"
    _shape: Optional[Sequence[int]] = None
    _scales: Optional[Sequence[float]] = None
    resize_mode: InterpolationMode = InterpolationMode.NEAREST
    coordinate_transformation: ResizeCoordinateTransformation = ResizeCoordinateTransformation.ASYMMETRIC
    nearest_rounding: ResizeRoundMode = ResizeRoundMode.FLOOR
    cubic_coeff: float = -0.75
    shape = kept("_shape", lambda value: [int(dim) for dim in value])
    scales = kept("_scales", lambda value: [float(factor) for factor in value])

    def _lower(self, emit: Emitter) -> None:
        roundings = {"HALF_UP": "round_prefer_ceil", "HALF_DOWN": "round_prefer_floor", "FLOOR": "floor", "CEIL": "ceil"}
        attributes: Dict[str, Any] = {
            "mode": self.resize_mode.name.lower(),
            "coordinate_transformation_mode": self.coordinate_transformation.name.lower(),
            "nearest_mode": roundings[self.nearest_rounding.name],
            "cubic_coeff_a": float(self.cubic_coeff),
        }
        sizes: Any = self._inputs[1] if len(self._inputs) > 1 else None
        if sizes is None and self._shape is not None:
            sizes = np.asarray(self._shape, np.int64)
        if sizes is not None:
            emit.last("Resize", [self._inputs[0], None, None, sizes], **attributes)
        elif self._scales is not None:
            emit.last("Resize", [self._inputs[0], None, np.asarray(self._scales, np.float32)], **attributes)
        else:
            raise ValueError(f"the resize layer '{self._name}' needs a shape or scales")


class IPaddingLayer(ILayer):
    _TYPE, _LABEL = LayerType.PADDING, "Padding"
    pre_padding_nd: Sequence[int] = (0, 0)
    post_padding_nd: Sequence[int] = (0, 0)

    def _lower(self, emit: Emitter) -> None:
        rank = len(self._inputs[0].shape)
        pads = [[0] * (rank - len(side)) + [int(value) for value in side] for side in (self.pre_padding_nd, self.post_padding_nd)]
        emit.last("Pad", [self._inputs[0], np.asarray(pads[0] + pads[1], np.int64)])


class ILRNLayer(ILayer):
    _TYPE, _LABEL = LayerType.LRN, "LRN"
    window_size: int = 1
    alpha: float = 0.0
    beta: float = 0.0
    k: float = 1.0

    def _lower(self, emit: Emitter) -> None:
        emit.last("LRN", self._inputs, size=int(self.window_size), alpha=float(self.alpha), beta=float(self.beta), bias=float(self.k))


class IOneHotLayer(ILayer):
    _TYPE, _LABEL = LayerType.ONE_HOT, "OneHot"
    axis: int = -1

    def _lower(self, emit: Emitter) -> None:
        indices, values, depth = self._inputs
        emit.last("OneHot", [indices, depth, values], axis=int(self.axis))


class _QuantizerLayer(ILayer):
    _OPERATOR = ""
    axis: int = -1

    def _elements(self) -> DataType:
        raise NotImplementedError

    def _lower(self, emit: Emitter) -> None:
        zeros = {DataType.INT8: np.dtype(np.int8), DataType.FP8: np.dtype(np.uint8, metadata={"ulpscope": "fp8"})}
        kind = self._elements()
        if kind not in zeros:
            raise ValueError(f"the layer '{self._name}' has elements of type {kind}; it may have INT8 or FP8")
        zero_point = np.zeros(tuple(self._inputs[1].shape), zeros[kind])
        emit.last(self._OPERATOR, [*self._inputs, zero_point], axis=int(self.axis) if self.axis >= 0 else None)


class IQuantizeLayer(_QuantizerLayer):
    _TYPE, _LABEL, _OPERATOR = LayerType.QUANTIZE, "Quantize", "QuantizeLinear"
    to_type: DataType = DataType.INT8

    def _elements(self) -> DataType:
        return self.to_type


class IDequantizeLayer(_QuantizerLayer):
    _TYPE, _LABEL, _OPERATOR = LayerType.DEQUANTIZE, "Dequantize", "DequantizeLinear"

    def _elements(self) -> DataType:
        return DataType(self._inputs[0].dtype)


class INormalizationLayer(ILayer):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes."""

    _TYPE, _LABEL = LayerType.NORMALIZATION, "Normalization"
    axes: int = 0
    epsilon: float = 1e-5
    num_groups: int = 1
    compute_precision: Any = None

    def _lower(self, emit: Emitter) -> None:
        if int(self.num_groups) != 1:
            raise ValueError(f"the normalization layer '{self._name}' has {self.num_groups} groups; reshape the groups to a dimension of their own")
        x, scale, bias = self._inputs
        axes = axes_of_mask(self.axes)
        mean = emit.with_axes("ReduceMean", x, axes, 18, False, keepdims=1)
        centered = emit.node("Sub", [x, mean])
        variance = emit.with_axes("ReduceMean", emit.node("Mul", [centered, centered]), axes, 18, False, keepdims=1)
        deviation = emit.node("Sqrt", [emit.node("Add", [variance, np.asarray(self.epsilon, np.float32)])])
        emit.last("Add", [emit.node("Mul", [emit.node("Div", [centered, deviation]), scale]), bias])


class IFullyConnectedLayer(_KernelLayer):
    """x as a matrix over its last three dimensions, times the transposed kernel, plus bias (TensorRT 8 and earlier)."""

    _TYPE, _LABEL = LayerType.FULLY_CONNECTED, "Fully Connected"
    num_output_channels: int = 0

    def _lower(self, emit: Emitter) -> None:
        kernel = np.ascontiguousarray(self._kernel_as(int(self.num_output_channels), -1).T)
        rank = len(self._inputs[0].shape)
        if rank < 3:
            raise ValueError(f"the fully connected layer '{self._name}' needs an input of at least 3 dimensions, got {rank}")
        leading = [0] * (rank - 3)
        flat = emit.node("Reshape", [self._inputs[0], np.asarray([*leading, kernel.shape[0]], np.int64)])
        product = emit.node("MatMul", [flat, kernel])
        if self._bias is not None:
            product = emit.node("Add", [product, self._bias.reshape(-1)])
        emit.last("Reshape", [product, np.asarray([*leading, int(self.num_output_channels), 1, 1], np.int64)])


class ISqueezeLayer(_OperatorLayer):
    _TYPE, _LABEL, _OPERATOR = LayerType.SQUEEZE, "Squeeze", "Squeeze"


class IUnsqueezeLayer(_OperatorLayer):
    _TYPE, _LABEL, _OPERATOR = LayerType.UNSQUEEZE, "Unsqueeze", "Unsqueeze"


__all__ = [name for name in dir() if name.startswith("I") and name.endswith("Layer") and name != "ILayer"]
