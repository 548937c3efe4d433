"""ILayer, and the layers that ``INetworkDefinition.add_*`` makes; each says which ONNX operators it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from ._base import kept
from ._enums import ActivationType, DataType, ElementWiseOperation, LayerType, MatrixOperation, UnaryOperation, type_name
from ._tensor import InputsAndOutputs, ITensor, weights_array

if TYPE_CHECKING:
    from ._network import INetworkDefinition

Input = Union[ITensor, np.ndarray, int, None]


def axes_of_mask(mask: int) -> List[int]:
    """The dimensions in a bit mask."""
    return [axis for axis in range(32) if int(mask) >> axis & 1]


class Emitter:
    """Collects the ONNX operators that one layer stands for."""

    def __init__(self, tensors: List[Dict[str, Any]], first_new: int, opset: int, layer: "ILayer") -> None:
        self.opset = opset
        self.layers: List[Dict[str, Any]] = []
        self._tensors = tensors
        self._first_new = first_new
        self._layer = layer

    def _new_tensor(self, **fields: Any) -> int:
        self._tensors.append(fields)
        return self._first_new + len(self._tensors) - 1

    def _reference(self, value: Input) -> Optional[int]:
        if value is None:
            return None
        if isinstance(value, ITensor):
            return value._index
        if isinstance(value, np.ndarray):
            return self._new_tensor(name="", value=value)
        return int(value)

    def _emit(self, op: str, inputs: Sequence[Input], outputs: List[int], attributes: Dict[str, Any]) -> None:
        self.layers.append(
            {
                "op": op,
                "inputs": [self._reference(value) for value in inputs],
                "outputs": outputs,
                "attributes": {key: value for key, value in attributes.items() if value is not None},
            }
        )

    def node(self, op: str, inputs: Sequence[Input], **attributes: Any) -> int:
        """An operator inside of the layer; returns its output."""
        output = self._new_tensor(name="")
        self._emit(op, inputs, [output], attributes)
        return output

    def last(self, op: str, inputs: Sequence[Input], **attributes: Any) -> None:
        """The operator that computes the layer's outputs."""
        self._emit(op, inputs, [tensor._index for tensor in self._layer._outputs], attributes)

    def chain(self, value: Input, steps: Sequence[Tuple[str, Sequence[Input], Dict[str, Any]]]) -> None:
        """Operators one behind the other, the last one as `last`: each with its further inputs and its attributes."""
        for op, more, attributes in steps[:-1]:
            value = self.node(op, [value, *more], **attributes)
        op, more, attributes = steps[-1] if steps else ("Identity", [], {})
        self.last(op, [value, *more], **attributes)

    def with_axes(self, op: str, value: Input, axes: List[int], axes_are_input_since: int, final: bool, **attributes: Any) -> int:
        """ReduceX, Squeeze, Unsqueeze: axes are an attribute in older opsets, an input in newer ones."""
        inputs: List[Input] = [value]
        if self.opset >= axes_are_input_since:
            inputs.append(np.asarray(axes, np.int64))
        else:
            attributes["axes"] = axes
        if final:
            self.last(op, inputs, **attributes)
            return -1
        return self.node(op, inputs, **attributes)


class ILayer(InputsAndOutputs):
    """A layer of a network. ``precision`` and the output types are requests, as in the real module."""

    _TYPE = LayerType.PLUGIN
    _LABEL = "Layer"
    name = kept("_name", str)
    metadata = kept("_metadata", str)

    def __init__(self, network: "INetworkDefinition", name: str, inputs: Sequence[Optional[ITensor]]) -> None:
        self._network = network
        self._base: Optional[int] = None  # its id in the program's network; None for a layer added by the script
        self._name = name
        self._layer_type = self._TYPE
        self._onnx_op = ""
        self._onnx_domain = ""
        self._inputs: List[Any] = list(inputs)  # tensors; None: absent
        self._outputs: List[ITensor] = []
        self._precision: Optional[DataType] = None
        self._output_types: List[Optional[DataType]] = []
        self._metadata = ""
        self._original: Any = None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if not name.startswith("_"):
            self._network._changed(shapes=True)

    @property
    def type(self) -> Any:
        return self._layer_type

    @property
    def precision(self) -> DataType:
        return DataType.FLOAT if self._precision is None else self._precision

    @precision.setter
    def precision(self, value: DataType) -> None:
        type_name(value)
        self._precision = value

    @property
    def precision_is_set(self) -> bool:
        return self._precision is not None

    def reset_precision(self) -> None:
        self._precision = None

    def set_input(self, index: int, tensor: ITensor) -> None:
        if not isinstance(tensor, ITensor):
            raise TypeError(f"expected an ITensor, got {tensor!r}")
        if index < 0 or (self._base is not None and index >= len(self._inputs)):
            raise IndexError(f"layer '{self._name}' has {len(self._inputs)} inputs; there is no input {index}")
        while len(self._inputs) <= index:
            self._inputs.append(None)
        self._inputs[index] = tensor
        self._network._changed(shapes=True)

    def _output_index(self, index: int) -> int:
        if not 0 <= index < len(self._outputs):
            raise IndexError(f"layer '{self._name}' has {len(self._outputs)} outputs; there is no output {index}")
        return index

    def set_output_type(self, index: int, dtype: DataType) -> None:
        type_name(dtype)
        self._output_types[self._output_index(index)] = dtype

    def get_output_type(self, index: int) -> DataType:
        requested = self._output_types[self._output_index(index)]
        return self._outputs[index].dtype if requested is None else requested

    def output_type_is_set(self, index: int) -> bool:
        return self._output_types[self._output_index(index)] is not None

    def reset_output_type(self, index: int) -> None:
        self._output_types[self._output_index(index)] = None

    def _one_axis(self, kind: str, mask: int) -> int:
        axes = axes_of_mask(mask)
        if len(axes) != 1:
            raise ValueError(f"the {kind} layer '{self._name}' needs axes with one bit set, got {mask:#b}")
        return axes[0]

    def _lower(self, emit: Emitter) -> None:
        raise NotImplementedError(f"a layer of type {self._layer_type} cannot be added by a script")

    def __repr__(self) -> str:
        return f"<tensorrt.{type(self).__name__} '{self._name}'>"


def _rank(tensor: ITensor) -> int:
    return len(tensor.shape)


class IConstantLayer(ILayer):
    _TYPE, _LABEL = LayerType.CONSTANT, "Constant"
    _weights: Optional[np.ndarray] = None

    @property
    def weights(self) -> np.ndarray:
        if self._weights is None:
            self._weights = self._network._constant_value(self)
        return self._weights

    @weights.setter
    def weights(self, value: Any) -> None:
        array = weights_array(value)
        if array is None:
            raise ValueError(f"the weights of '{self._name}' are empty")
        if self._base is not None:
            raise RuntimeError("the weights of a constant of the model cannot be replaced here; add a constant and set_input")
        self._weights = array.reshape(self.shape) if self._base is None else array

    @property
    def shape(self) -> Tuple[int, ...]:
        return self._outputs[0].shape

    @shape.setter
    def shape(self, value: Sequence[int]) -> None:
        self._weights = self.weights.reshape(tuple(value))

    def _lower(self, emit: Emitter) -> None:
        emit.last("Constant", [], value=self._weights)


class IIdentityLayer(ILayer):
    _TYPE, _LABEL = LayerType.IDENTITY, "Identity"

    def _lower(self, emit: Emitter) -> None:
        requested = self._output_types[0] if self._output_types else None
        source = self._inputs[0]
        if requested is not None and _is_conversion(source.dtype, requested):
            emit.last("Cast", [source], to=_ONNX_TYPES[type_name(requested)])
        else:
            emit.last("Identity", [source])


_FLOATS = (DataType.FLOAT, DataType.HALF, DataType.BF16, DataType.FP8, DataType.DOUBLE)
# TensorProto.DataType of the ONNX specification
_ONNX_TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11,
    "uint32": 12, "uint64": 13, "bfloat16": 16, "fp8": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20,
    "uint4": 21, "int4": 22, "float4_e2m1fn": 23, "float8_e8m0fnu": 24, "uint2": 25, "int2": 26, "float6_e2m3fn": 27, "float6_e3m2fn": 28,
}  # fmt: skip


def _is_conversion(source: DataType, target: DataType) -> bool:
    """True when an identity layer with that output type changes values rather than their precision."""
    return source != target and not (source in _FLOATS and target in _FLOATS)


class ICastLayer(ILayer):
    _TYPE, _LABEL = LayerType.CAST, "Cast"
    to_type: DataType = DataType.FLOAT

    def _lower(self, emit: Emitter) -> None:
        emit.last("Cast", self._inputs, to=_ONNX_TYPES[type_name(self.to_type)])


_MADE_OF_OTHERS = (ActivationType.SCALED_TANH, ActivationType.GELU_ERF, ActivationType.GELU_TANH)
_ACTIVATIONS = {kind: kind.name.title().replace("_", "") for kind in ActivationType if kind not in _MADE_OF_OTHERS}


class IActivationLayer(ILayer):
    _TYPE, _LABEL = LayerType.ACTIVATION, "Activation"
    alpha: float = 0.0
    beta: float = 0.0
    _kind: Optional[ActivationType] = None

    @property
    def type(self) -> Any:  # as in the real module, it hides the layer's type
        if self._kind is None:
            by_op = {op: kind for kind, op in _ACTIVATIONS.items()}
            return by_op.get(self._onnx_op, ActivationType.RELU)
        return self._kind

    @type.setter
    def type(self, value: ActivationType) -> None:
        self._kind = ActivationType(value)

    def _lower(self, emit: Emitter) -> None:
        kind, (x,) = self._kind, self._inputs
        alpha, beta = np.float32(self.alpha), np.float32(self.beta)
        if kind == ActivationType.CLIP:
            emit.last("Clip", [x, np.asarray(alpha), np.asarray(beta)])
        elif kind == ActivationType.SOFTPLUS:  # alpha * log(exp(beta * x) + 1)
            if alpha == beta and alpha in (0, 1):
                emit.last("Softplus", [x])
            else:
                emit.last("Mul", [np.asarray(alpha), emit.node("Softplus", [emit.node("Mul", [x, np.asarray(beta)])])])
        elif kind == ActivationType.SCALED_TANH:  # alpha * tanh(beta * x)
            emit.last("Mul", [np.asarray(alpha), emit.node("Tanh", [emit.node("Mul", [x, np.asarray(beta)])])])
        elif kind == ActivationType.HARD_SIGMOID:
            emit.last("HardSigmoid", [x], alpha=float(alpha), beta=float(beta))
        elif kind == ActivationType.SELU:  # beta * (x > 0 ? x : alpha * exp(x) - alpha)
            emit.last("Selu", [x], alpha=float(alpha), gamma=float(beta))
        elif kind in (ActivationType.LEAKY_RELU, ActivationType.ELU, ActivationType.THRESHOLDED_RELU):
            emit.last(_ACTIVATIONS[kind], [x], alpha=float(alpha))
        elif kind in (ActivationType.GELU_ERF, ActivationType.GELU_TANH):
            _lower_gelu(emit, x, kind == ActivationType.GELU_TANH)
        else:
            assert kind is not None
            emit.last(_ACTIVATIONS[kind], [x])


def _lower_gelu(emit: Emitter, x: Input, approximate: bool) -> None:
    """0.5 x (1 + erf(x / sqrt 2)), or with tanh(sqrt(2 / pi) (x + 0.044715 x^3)) for the error function."""

    def constant(value: float) -> np.ndarray:
        return np.asarray(value, np.float32)

    if approximate:
        cubed = emit.node("Mul", [emit.node("Mul", [x, x]), x])
        inner = emit.node("Add", [x, emit.node("Mul", [cubed, constant(0.044715)])])
        bend = emit.node("Tanh", [emit.node("Mul", [inner, constant(0.7978845608028654)])])
    else:
        bend = emit.node("Erf", [emit.node("Mul", [x, constant(0.7071067811865476)])])
    emit.last("Mul", [emit.node("Mul", [x, constant(0.5)]), emit.node("Add", [bend, constant(1.0)])])


_UNARY = dict(zip(UnaryOperation, (
    "Exp Log Sqrt Reciprocal Abs Neg Sin Cos Tan Sinh Cosh Asin Acos Atan Asinh Acosh Atanh Ceil Floor Erf Not Sign "
    "Round IsInf IsNaN"  # In the order of the enumeration.
).split()))  # fmt: skip


class _OperationLayer(ILayer):
    """A layer whose `op` is one of a table; its default is the first there."""

    _OPERATORS: Dict[Any, str] = {}
    _op: Any = None

    @property
    def op(self) -> Any:
        if self._op is not None:
            return self._op
        return next(
            (operation for operation, op in self._OPERATORS.items() if op == self._onnx_op), next(iter(self._OPERATORS))
        )

    @op.setter
    def op(self, value: Any) -> None:
        self._op = type(next(iter(self._OPERATORS)))(value)


class IUnaryLayer(_OperationLayer):
    _TYPE, _LABEL = LayerType.UNARY, "Unary"
    _OPERATORS = _UNARY

    def _lower(self, emit: Emitter) -> None:
        emit.last(_UNARY[self.op], self._inputs)


_ELEMENTWISE = {
    ElementWiseOperation.SUM: "Add", ElementWiseOperation.PROD: "Mul", ElementWiseOperation.MAX: "Max", ElementWiseOperation.MIN: "Min",
    ElementWiseOperation.SUB: "Sub", ElementWiseOperation.DIV: "Div", ElementWiseOperation.POW: "Pow", ElementWiseOperation.AND: "And",
    ElementWiseOperation.OR: "Or", ElementWiseOperation.XOR: "Xor", ElementWiseOperation.EQUAL: "Equal",
    ElementWiseOperation.GREATER: "Greater", ElementWiseOperation.LESS: "Less",
}  # fmt: skip


class IElementWiseLayer(_OperationLayer):
    _TYPE, _LABEL = LayerType.ELEMENTWISE, "ElementWise"
    _OPERATORS = _ELEMENTWISE

    def _lower(self, emit: Emitter) -> None:
        first, second = self._inputs
        if self.op != ElementWiseOperation.FLOOR_DIV:
            emit.last(_ELEMENTWISE[self.op], [first, second])
        elif first.dtype in _FLOATS:
            emit.last("Floor", [emit.node("Div", [first, second])])
        else:  # Div truncates; Mod has the sign of the divisor, so the difference is divisible
            emit.last("Div", [emit.node("Sub", [first, emit.node("Mod", [first, second])]), second])


class IMatrixMultiplyLayer(ILayer):
    _TYPE, _LABEL = LayerType.MATRIX_MULTIPLY, "Matrix Multiply"
    op0: MatrixOperation = MatrixOperation.NONE
    op1: MatrixOperation = MatrixOperation.NONE

    def _operand(self, emit: Emitter, index: int, operation: MatrixOperation) -> Input:
        tensor: ITensor = self._inputs[index]
        rank = _rank(tensor)
        if operation == MatrixOperation.TRANSPOSE:
            order = list(range(rank))
            order[-2:] = reversed(order[-2:])
            return emit.node("Transpose", [tensor], perm=order)
        if operation == MatrixOperation.VECTOR and rank > 1:
            return emit.with_axes("Unsqueeze", tensor, [rank - 1 if index == 0 else rank], 13, False)
        return tensor

    def _lower(self, emit: Emitter) -> None:
        operands = [self._operand(emit, 0, self.op0), self._operand(emit, 1, self.op1)]
        squeezed = []
        for index, operation in enumerate((self.op0, self.op1)):
            if operation == MatrixOperation.VECTOR and _rank(self._inputs[index]) > 1:
                squeezed.append(-2 if index == 0 else -1)
        if squeezed:
            emit.with_axes("Squeeze", emit.node("MatMul", operands), squeezed, 13, True)
        else:
            emit.last("MatMul", operands)


class IConcatenationLayer(ILayer):
    _TYPE, _LABEL = LayerType.CONCATENATION, "Concatenation"
    axis: int = 0

    def _lower(self, emit: Emitter) -> None:
        emit.last("Concat", self._inputs, axis=int(self.axis))


class _OperatorLayer(ILayer):
    """A layer that is one ONNX operator as it is."""

    _OPERATOR = ""

    def _lower(self, emit: Emitter) -> None:
        emit.last(self._OPERATOR, self._inputs)


class ISelectLayer(_OperatorLayer):
    _TYPE, _LABEL, _OPERATOR = LayerType.SELECT, "Select", "Where"


class IShapeLayer(_OperatorLayer):
    _TYPE, _LABEL, _OPERATOR = LayerType.SHAPE, "Shape", "Shape"


class IEinsumLayer(ILayer):
    _TYPE, _LABEL = LayerType.EINSUM, "Einsum"
    equation: str = ""

    def _lower(self, emit: Emitter) -> None:
        emit.last("Einsum", self._inputs, equation=self.equation)


class INonZeroLayer(_OperatorLayer):
    _TYPE, _LABEL, _OPERATOR = LayerType.NON_ZERO, "NonZero", "NonZero"


class IParametricReLULayer(_OperatorLayer):
    _TYPE, _LABEL, _OPERATOR = LayerType.PARAMETRIC_RELU, "Parametric Relu", "PRelu"


class ISoftMaxLayer(ILayer):
    _TYPE, _LABEL = LayerType.SOFTMAX, "SoftMax"
    _axes: Optional[int] = None

    @property
    def axes(self) -> int:
        if self._axes is None:
            return 1 << max(0, _rank(self._inputs[0]) - 3)
        return self._axes

    @axes.setter
    def axes(self, value: int) -> None:
        self._axes = int(value)

    def _lower(self, emit: Emitter) -> None:
        emit.last("Softmax", self._inputs, axis=self._one_axis("softmax", self.axes))


__all__ = [name for name in dir() if name.startswith("I") and name.endswith("Layer")]
