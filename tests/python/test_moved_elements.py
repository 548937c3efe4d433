"""Elements of the file that layers move between DequantizeLinear and a product: the bits of the product that reads them
where they are."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from ulpscope import Engine

K, N = 48, 20
ELEMENTS = {"int8": (TensorProto.INT8, np.int8), "fp8": (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn)}


def product(kind, b, between, dtype, scale, axis, backend):
    """x @ b, where b [2, K, N] (in the file, or an input that is quantized) goes through `between` behind its
    DequantizeLinear; of a constant with scales along `axis`."""
    element, stored = ELEMENTS[kind]
    random = np.random.default_rng(5)
    x = random.standard_normal((2, 7, K)).astype(dtype)
    float_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    initializers = [
        numpy_helper.from_array(np.asarray(0.02, dtype), "x_scale"),
        numpy_helper.from_array(np.asarray(scale, dtype), "scale"),
        helper.make_tensor("zero", element, [], b"\0", raw=True),
    ]
    feeds = {"x": x}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_scale", "zero"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "x_scale"], ["xd"]),
    ]
    if axis is None:
        feeds["b"] = (b * scale).astype(dtype)
        nodes.append(helper.make_node("QuantizeLinear", ["b", "scale", "zero"], ["bq"]))
        nodes.append(helper.make_node("DequantizeLinear", ["bq", "scale"], ["b0"]))
    else:
        initializers.append(helper.make_tensor("bq", element, b.shape, b.astype(stored).tobytes(), raw=True))
        nodes.append(helper.make_node("DequantizeLinear", ["bq", "scale"], ["b0"], axis=axis))
    for i, (op, attributes) in enumerate(between):
        names = [f"b{i}"]
        if op == "Reshape":
            initializers.append(numpy_helper.from_array(np.array(attributes["shape"]), f"shape{i}"))
            names, attributes = [f"b{i}", f"shape{i}"], {}
        nodes.append(helper.make_node(op, names, [f"b{i + 1}"], **attributes))
    nodes.append(helper.make_node("MatMul", ["xd", f"b{len(between)}"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, float_type, value.shape) for name, value in feeds.items()],
        [helper.make_tensor_value_info("y", float_type, [2, 7, N])],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return Engine(model, backend=backend).run(feeds)["y"]


#: What lies in the file of b [2, K, N], the layers that make b of it, and the axis of b's columns there.
MOVES = {
    "transposed": (lambda b: b.transpose(0, 2, 1), [("Transpose", {"perm": [0, 2, 1]})], 1),
    "twice": (
        lambda b: b.transpose(2, 0, 1),
        [("Transpose", {"perm": [2, 1, 0]}), ("Transpose", {"perm": [1, 0, 2]})],
        0,
    ),
    "reshaped": (lambda b: b.reshape(2 * K, N), [("Reshape", {"shape": [2, K, N]})], None),
}
SCALES = ("computed", "tensor", "channel")


@pytest.mark.parametrize("backend", ["cpu", "plain"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("kind", ELEMENTS)
@pytest.mark.parametrize("move,scales", [(m, s) for m in MOVES for s in SCALES if s != "channel" or m != "reshaped"])
def test_the_bits_of_elements_where_they_are(move, kind, scales, dtype, backend):
    moved, layers, columns = MOVES[move]
    random = np.random.default_rng(3)
    b = np.rint(random.standard_normal((2, K, N)) * 40).astype(ELEMENTS[kind][1]).astype(np.float32)
    scale = 0.003 if scales != "channel" else 0.001 + random.random(N) / 500
    axes = {"computed": (None, None), "tensor": (0, 0), "channel": (2, columns)}[scales]
    expected = product(kind, b, [], dtype, scale, axes[0], backend)
    np.testing.assert_array_equal(product(kind, moved(b), layers, dtype, scale, axes[1], backend), expected)
