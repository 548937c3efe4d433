"""`ulpscope convert` of models with QuantizeLinear and DequantizeLinear: products of integers stay products of integers."""
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from plain_onnxruntime import plain_session

node = helper.make_node
DICE = np.random.default_rng(5)
X = DICE.standard_normal((4, 4)).astype(np.float32)
WEIGHTS = {
    "s": np.array(0.05, np.float32),
    "zero": np.array(0, np.int8),
    "three": np.array(3, np.int8),
    "wq": DICE.integers(-100, 100, (4, 4)).astype(np.int8),
    "ws": DICE.uniform(0.01, 0.02, 4).astype(np.float32),
    "W": DICE.standard_normal((4, 4)).astype(np.float32),
    "b": DICE.standard_normal(4).astype(np.float32),
    "c": np.array(3, np.float32),
}
ENCODED = [
    node("QuantizeLinear", ["x", "s", "zero"], ["q"], name="q"),
    node("DequantizeLinear", ["q", "s", "zero"], ["d"], name="dq"),
    node("DequantizeLinear", ["wq", "ws"], ["dw"], name="dw", axis=1),
]
PRODUCTS = {
    "alone": [node("MatMul", ["d", "dw"], ["z"], name="mm")],
    "with a bias": [node("MatMul", ["d", "dw"], ["p"], name="mm"), node("Add", ["p", "b"], ["z"], name="add")],
    "with followers": [
        node("MatMul", ["d", "dw"], ["p"], name="mm"),
        node("Mul", ["p", "c"], ["m"], name="mul"),
        node("Tanh", ["m"], ["z"], name="tanh"),
    ],
    "of a Gemm with a bias": [node("Gemm", ["d", "dw", "b"], ["y"], name="mm"), node("Relu", ["y"], ["z"], name="relu")],
    "read twice": [
        node("MatMul", ["d", "dw"], ["p"], name="mm"),
        node("Relu", ["p"], ["r"], name="relu"),
        node("Sub", ["p", "r"], ["z"], name="sub"),
    ],
    "of two computed operands": [node("MatMul", ["d", "d"], ["p"], name="mm"), node("Exp", ["p"], ["z"], name="exp")],
}


def save(path, nodes, opset):
    read = {name for each in nodes for name in each.input}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [4, 4])],
        [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items() if name in read],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)


def converted(run, tmp_path, nodes, opset, *flags):
    save(tmp_path / "m.onnx", nodes, opset)
    outcome = run("convert", "m.onnx", *flags, "-o", "t.onnx")
    assert outcome.code == 0, outcome.err
    onnx.checker.check_model(str(tmp_path / "t.onnx"), full_check=True)
    return onnx.load(tmp_path / "t.onnx")


@pytest.mark.parametrize("flag", ["--fp16", "--bf16"])
@pytest.mark.parametrize("fusion", ["none", "full"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_integers_keep_their_bits(run, tmp_path, name, fusion, flag):
    """convert compares the bits itself, and refuses to write others."""
    typed = converted(run, tmp_path, ENCODED + PRODUCTS[name], 17, flag, "--fusion", fusion)
    makers = {output: each.op_type for each in typed.graph.node for output in each.output}
    product = next(each for each in typed.graph.node if each.op_type in ("MatMul", "Gemm"))
    assert [makers[name] for name in product.input[:2]] == ["DequantizeLinear"] * 2
    if flag == "--fp16":
        expected = plain_session(tmp_path / "m.onnx").run(None, {"x": X})[0]
        actual = plain_session(tmp_path / "t.onnx").run(None, {"x": X})[0]
        np.testing.assert_allclose(actual, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("fusion", ["none", "pointwise", "full"])
@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_sums_of_what_is_dequantized_stand_alone(run, tmp_path, op, fusion):
    nodes = [
        node("Tanh", ["x"], ["t"], name="tanh"),
        node("QuantizeLinear", ["t", "s", "zero"], ["tq"], name="tq"),
        node("DequantizeLinear", ["tq", "s", "zero"], ["td"], name="td"),
        node(op, ["d", "td"], ["a"], name="op"),
        node("Sub", ["a", "x"], ["z"], name="sub"),
    ]
    converted(run, tmp_path, ENCODED[:2] + nodes, 17, "--fp16", "--fusion", fusion)


@pytest.mark.parametrize("opset", [13, 17, 19, 21])
def test_what_is_quantized_has_the_type_of_its_scale(run, tmp_path, opset):
    nodes = [
        node("Tanh", ["x"], ["a"], name="tanh"),
        node("QuantizeLinear", ["a", "s", "three"], ["q"], name="q"),
        node("DequantizeLinear", ["q", "s", "three"], ["d"], name="dq"),
        node("MatMul", ["d", "W"], ["z"], name="mm"),
    ]
    converted(run, tmp_path, nodes, opset, "--fp16")
    ort.InferenceSession(tmp_path / "t.onnx").run(None, {"x": X})
