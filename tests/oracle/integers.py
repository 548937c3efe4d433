"""Products of integers as QuantizeLinear and DequantizeLinear in front of them say (docs/numerics.md, "int8")."""

from __future__ import annotations

import typing

import numpy as np

from . import operators_products as products
from .assign import Assignment
from .model import Node
from .rounding import round_to
from .specialize import Specialization
from .values import T, Unsupported, Value, corners, result

if typing.TYPE_CHECKING:
    from .grouping import Grouping

SMALLEST_SCALE, LARGEST_SCALE = 2.0**-100, float(np.finfo(np.float32).max) / 127
_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
#: Whose outputs have elements of their first input alone.
_MOVES = {
    "Compress", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape",
    "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip


class Integers:
    """Which layers read integers in the file, and what they compute."""

    def __init__(self, spec: Specialization, assignment: Assignment, base: str):
        self.spec, self.assignment = spec, assignment
        self.stored = {"fp32", "fp32" if base == "tf32" else base}
        any_pairs = any(node.op == "DequantizeLinear" for node in spec.graph.nodes)
        self._products = {i for i in range(len(spec.graph.nodes)) if any_pairs and self._is_product(i)}

    # Which ---------------------------------------------------------------------------------------------------------

    def _plain(self, name: str) -> Node | None:
        """The DequantizeLinear behind a float32 value: constant scales, 8-bit integers, no zero point."""
        spec, producer = self.spec, self.spec.producer.get(name)
        node = None if producer is None else spec.graph.nodes[producer]
        if node is None or node.op != "DequantizeLinear" or spec.types[name] != T.FLOAT or node.get("block_size", 0):
            return None
        scales = spec.constants.get(node.inputs[1])
        if scales is None or scales.type != T.FLOAT or spec.types[node.inputs[0]] not in (T.INT8, T.UINT8):
            return None
        if scales.v.size == 0 or np.any(scales.v < SMALLEST_SCALE) or np.any(scales.v > LARGEST_SCALE):
            return None
        if node.reads(2) and (node.inputs[2] not in spec.constants or np.any(spec.constants[node.inputs[2]].v)):
            return None
        return node

    def _behind(self, name: str) -> tuple[Node | None, list[int]]:
        """The _plain() layer whose numbers a value has, perhaps moved; per dimension of the value that of the layer's
        output, empty where something else than Transpose moved them."""
        spec = self.spec
        axes = list(range(len(spec.shapes[name] or ())))
        while (node := self._plain(name)) is None:
            producer = spec.producer.get(name)
            above = None if producer is None else spec.graph.nodes[producer]
            if above is None or above.op not in _MOVES or above.domain:
                return None, []
            order = above.get("perm", range(len(axes))[::-1]) if above.op == "Transpose" else None
            axes = [] if order is None else [order[axis] for axis in axes]
            name = above.inputs[0]
        return node, axes

    def activation(self, name: str) -> Node | None:
        node = None if name in self.spec.constants else self._behind(name)[0]
        return node if node is not None and self.spec.constants[node.inputs[1]].v.size == 1 else None

    def weights(self, name: str, axis: int, channels: int) -> Node | None:
        node, axes = self._behind(name) if name in self.spec.constants else (None, [])
        if node is None or self.spec.types[node.inputs[0]] != T.INT8:
            return None
        size = self.spec.constants[node.inputs[1]].v.size
        own = node.get("axis", 1)
        own = own + len(self.spec.shapes[node.outputs[0]] or ()) if own < 0 else own
        return node if size == 1 or (axis < len(axes) and own == axes[axis] and size == channels) else None

    def _channels(self, node: Node) -> tuple[int, int]:
        """The dimension of the weights that counts output channels, and their number."""
        shape = self.spec.shapes[node.inputs[1]] or ()
        axis = {"Conv": 0, "ConvTranspose": 1}.get(node.op)
        if axis is None:
            axis = len(shape) - (2 if node.op == "Gemm" and node.get("transB", 0) else 1)
        return axis, shape[axis] * (node.get("group", 1) if node.op == "ConvTranspose" else 1)

    def _is_product(self, i: int) -> bool:
        spec, node = self.spec, self.spec.graph.nodes[i]
        if node.op not in _PRODUCTS or node.domain or not spec.numeric[i] or spec.types[node.outputs[0]] == T.DOUBLE:
            return False
        shapes = [spec.shapes[name] for name in node.inputs[:2]]
        if any(shape is None for shape in shapes) or self.activation(node.inputs[0]) is None:
            return False
        if node.op in ("Conv", "ConvTranspose"):
            if len(shapes[0]) not in (3, 4) or any(n not in spec.constants for n in node.inputs[1:] if n):
                return False
        elif any(not 2 <= len(shape) <= 6 for shape in shapes):
            return False
        if node.inputs[1] not in spec.constants:
            return self.activation(node.inputs[1]) is not None
        return self.weights(node.inputs[1], *self._channels(node)) is not None

    def is_integer(self, i: int) -> bool:
        return i in self._products

    def stands_alone(self, i: int) -> bool:
        """Add and Mul of dequantized values."""
        spec, node = self.spec, self.spec.graph.nodes[i]
        if node.op not in ("Add", "Mul") or node.domain or len(node.inputs) != 2:
            return False
        if not any(self.activation(name) for name in node.inputs) or self._bias_of(i) is not None:
            return False
        if not all(map(self._plain, node.inputs)):
            return False
        for name in node.inputs:
            if name not in spec.constants:
                if self.activation(name) is None:
                    return False
                continue
            value = spec.constants[name].v
            powers = value.size == 0 or np.all(np.frexp(value)[0] == np.frexp(value.reshape(-1)[0])[0])
            if self.weights(name, 0, 1) is None or value.size == 1 or (node.op == "Mul" and powers):
                return False
        square = node.op == "Mul" and node.inputs[0] == node.inputs[1]
        readers = [spec.graph.nodes[r].op for r in spec.readers.get(node.outputs[0], [])]
        return not (square and any(op in ("ReduceMean", "ReduceSum") for op in readers))

    def _bias_of(self, i: int) -> int | None:
        """The product whose only reader adds a constant vector along the output channels: this layer."""
        spec, node = self.spec, self.spec.graph.nodes[i]
        if node.op != "Add" or node.domain or len(node.inputs) != 2:
            return None
        for name, other in (node.inputs, node.inputs[::-1]):
            product = spec.producer.get(name)
            if product is None or name in spec.constants or other not in spec.constants:
                continue
            made_by, shape = spec.graph.nodes[product], spec.shapes[name]
            if made_by.op not in _PRODUCTS or not shape or shape != spec.shapes[node.outputs[0]]:
                continue
            channel = 1 if made_by.op.startswith("Conv") else len(shape) - 1
            wanted = [1] * len(shape)
            wanted[channel] = shape[channel]
            own = spec.constants[other].shape
            fits = (
                0 < len(own) <= len(shape)
                and len(shape) - len(own) <= channel
                and spec.types[other] == spec.types[name]
            )
            alone = name not in spec.outputs and spec.readers.get(name) == [i]
            if fits and alone and list(own) == wanted[len(shape) - len(own) :]:
                return product
        return None

    def product_to_follow(self, i: int, grouping: Grouping) -> int | None:
        """The product of integers that this layer belongs to at every level, as its bias or the Cast to what it stores."""
        spec, node = self.spec, self.spec.graph.nodes[i]
        product = self._bias_of(i)
        if product is not None and self.is_integer(product):
            stays = grouping.stays_inside(spec.graph.nodes[product].outputs[0])
            return product if stays and self.assignment.stored_by(i) in self.stored else None
        if node.op != "Cast" or node.domain or spec.types[node.outputs[0]] not in (T.FLOAT16, T.BFLOAT16):
            return None
        name = node.inputs[0]
        before = spec.producer.get(name)
        if before is None or spec.types[name] != T.FLOAT or name in spec.outputs or spec.readers.get(name) != [i]:
            return None
        product = before if self.is_integer(before) else self._bias_of(before)
        if product is None or not self.is_integer(product) or self.assignment.precision[product] != "fp32":
            return None
        same = grouping.group_of[before] is grouping.group_of[product]
        return product if same and grouping.stays_inside(name) else None

    # What ----------------------------------------------------------------------------------------------------------

    def compute(self, i: int, stored: dict[str, Value]) -> Value:
        """The exact sum, its nearest float32, times float32(scale * scale), plus the bias."""
        spec, node = self.spec, self.spec.graph.nodes[i]
        shape = spec.shapes[node.outputs[0]]
        if shape is None:
            raise Unsupported("a product of integers with a bias whose shape is known at run time only")
        operands, scale, rank = [], np.float64(1), len(shape)
        channels = self._channels(node)[1]
        for at, name in enumerate(node.inputs[:2]):
            dequantize = self._behind(name)[0]
            assert dequantize is not None
            own = spec.constants[dequantize.inputs[1]].v
            if name == dequantize.outputs[0]:
                source = spec.constants.get(dequantize.inputs[0]) or stored[dequantize.inputs[0]]
            else:
                source = _elements(spec.constants.get(name) or stored[name], own, self._channels(node)[0])
            operands.append(Value(source.v.astype(np.float64), T.DOUBLE, source.e))
            if own.size > 1:
                along = [1] * rank
                along[1 if node.op.startswith("Conv") else rank - 1] = channels
                own = own.reshape(along)
            else:
                own = own.reshape(())
            scale = round_to(scale * own, "fp32") if at else own
        plain = node._replace(inputs=node.inputs[:2], attributes={**node.attributes, "alpha": 1.0})
        if node.op == "Gemm":
            total = products.gemm(plain, operands)
        else:
            total = products.matmul(plain, operands) if node.op == "MatMul" else products.convolution(plain, operands)
        total = Value(round_to(total.v, "fp32"), T.FLOAT, _known(total, operands))
        alpha, beta = (float(np.float32(node.get(a, 1.0))) if node.op == "Gemm" else 1.0 for a in ("alpha", "beta"))
        y = _times(_times(total, scale), alpha)
        if node.reads(2) and beta != 0:
            bias = spec.constants.get(node.inputs[2]) or stored[node.inputs[2]]
            if node.op.startswith("Conv"):
                bias = bias.moved(lambda b: b.reshape((-1,) + (1,) * (rank - 2)))
            bias = _times(bias, beta)
            y = result(y.v + bias.v, T.FLOAT, corners(np.add, [y, bias]))
        return y


def _elements(moved: Value, scales: np.ndarray, axis: int) -> Value:
    """The integers that numbers were made of, which roundings to 16 bits leave nearest."""
    along = [1] * moved.v.ndim
    if scales.size > 1:
        along[axis] = scales.size
    steps = scales.astype(np.float64).reshape(along) if scales.size > 1 else float(scales.reshape(-1)[0])
    return Value(np.rint(moved.v / steps), T.DOUBLE, None if moved.e is None else np.ceil(moved.e / steps))


def _known(total: Value, operands: list[Value]) -> np.ndarray | None:
    """Sums of integers are exact; only integers that may be others move them."""
    return None if all(o.e is None for o in operands) else total.e


def _times(x: Value, factor: typing.Any) -> Value:
    if np.ndim(factor) == 0 and factor == 1:
        return x
    return result(x.v * factor, T.FLOAT, None if x.e is None else x.e * np.abs(factor))
