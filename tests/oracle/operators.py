"""One layer in float32: what it makes of operands as it reads them. Bodies are the interpreter's."""

from __future__ import annotations

from . import operators_movement as movement
from . import operators_opaque as opaque
from . import operators_pointwise as elementwise
from . import operators_products as products
from . import operators_quantized as quantized
from . import operators_recurrent as recurrent
from . import operators_resize as resize
from . import operators_rows as rows
from .model import Node
from .values import Unsupported, Value

#: Operators without float arithmetic: they have no precision.
FIXED = {
    *movement.FIXED,
    *quantized.QUANTIZATION,
    *quantized.OF_BYTES,
    *opaque.FIXED,
    recurrent.DYNAMIC_LSTM,
    "IsNaN",
    "IsInf",
    "Not",
    "If",
    "Loop",
    "Scan",
    *elementwise.BITS,
}
MOVEMENT = set(movement.MOVEMENT)
CONTROL = {"If", "Loop", "Scan"}


def is_product(node: Node) -> bool:
    return node.domain == "" and node.op in products.PRODUCTS


def exponentials(node: Node, scores: Value) -> tuple[Value, Value]:
    """What a Softmax normalizes: exp(score - largest of the row), and its sum over the row."""
    return rows.exponentials(node, scores)


def compute(node: Node, x: list[Value | None], loose: bool = False) -> list[Value]:
    """The outputs. `loose`: the layer rides on a product (see operators_pointwise.pointwise)."""
    op = node.op
    if (node.domain, op) in elementwise.POINTWISE:
        return [elementwise.pointwise(node, x, loose)]
    if op in rows.NORMALIZATIONS:
        return rows.normalization(node, x)
    if op in quantized.OF_BYTES:
        return quantized.OF_BYTES[op](node, x)
    if op == recurrent.DYNAMIC_LSTM:
        return recurrent.dynamic_lstm(node, x)
    if node.domain != "":
        raise Unsupported(f"{node.domain}.{op}")
    if op in movement.MOVEMENT:
        return movement.MOVEMENT[op](node, x)
    if op in movement.FIXED:
        return movement.FIXED[op](node, x)
    if op in quantized.QUANTIZATION:
        return quantized.QUANTIZATION[op](node, x)
    if op in elementwise.COMPARISONS:
        return [elementwise.compare(node, x)]
    if op in elementwise.LOGIC or op in elementwise.BITS:
        return [elementwise.logic(node, x)]
    if op in ("IsNaN", "IsInf"):
        return [elementwise.classify(node, x)]
    if op in rows.REDUCTIONS:
        return [rows.reduction(node, x)]
    if op in ("Softmax", "LogSoftmax"):
        return [rows.softmax(node, x)]
    if op == "LRN":
        return [rows.local_response(node, x)]
    if op == "Hardmax":
        return [rows.hardmax(node, x)]
    if op == "CumSum":
        return [rows.cumulative_sum(node, x)]
    if op == "BatchNormalization":
        if node.get("training_mode", 0) or any(node.outputs[1:]):
            raise Unsupported("BatchNormalization in training")
        return [rows.batch_normalization(node, x)]
    if op == "MatMul":
        return [products.matmul(node, x)]
    if op == "Gemm":
        return [products.gemm(node, x)]
    if op == "Einsum":
        return [products.einsum(node, x)]
    if op in ("Conv", "ConvTranspose"):
        return [products.convolution(node, x)]
    if op in products.POOLS:
        return products.pool(node, x)
    if op in ("Resize", "Upsample"):
        return [resize.resize(node, x)]
    if op in opaque.OPAQUE:
        return opaque.opaque(node, x)
    raise Unsupported(op)
