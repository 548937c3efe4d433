"""`ulpscope convert` of models with QuantizeLinear and DequantizeLinear: products of integers stay products of integers."""
import ml_dtypes
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


@pytest.mark.parametrize("activation", ["x", "d"])
def test_int8_leaves_products_of_fp8_alone(run, tmp_path, activation):
    """Its activations would be integers beside the E4M3 weights of the file."""
    fp8 = [
        node("QuantizeLinear", ["x", "s", "fp8_zero"], ["q"], name="q"),
        node("DequantizeLinear", ["q", "s"], ["d"], name="dq"),
        node("Cast", ["W"], ["wf"], to=TensorProto.FLOAT8E4M3FN),
        node("DequantizeLinear", ["wf", "ws"], ["dw"], name="dw", axis=1),
        node("MatMul", [activation, "dw"], ["p"], name="mm"),
        node("Relu", ["p"], ["z"], name="relu"),
    ]
    if activation == "x":
        del fp8[:2]
    save(tmp_path / "m.onnx", fp8, 19)
    model = onnx.load(tmp_path / "m.onnx")
    model.graph.initializer.append(helper.make_tensor("fp8_zero", TensorProto.FLOAT8E4M3FN, [], b"\0", raw=True))
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=X)
    flags = ("m.onnx", "--int8", "--calibration-inputs", "x.npz", "--load-inputs", "x.npz", "-o", "t.onnx")
    outcome = run("convert", *flags)
    assert outcome.code == 1 and "layer 'mm' (MatMul) has no int8, since the file has input" in outcome.text, outcome
    outcome = run("convert", *flags, "--fp16")
    assert outcome.code == 0 and "equal in every bit" in outcome.text, outcome


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


def stored_in(kind):
    """Codes, scales and the attributes of DequantizeLinear for a constant of [64, 48]."""
    if kind == "int8 per channel":
        return DICE.integers(-127, 128, (64, 48)).astype(np.int8), DICE.uniform(0.01, 0.02, 48), {"axis": 1}
    if kind == "uint8 with zero points":
        return DICE.integers(0, 256, (64, 48)).astype(np.uint8), DICE.uniform(0.01, 0.02, 48), {"axis": 1}
    codes = {"int4 in blocks": ml_dtypes.int4, "fp8": ml_dtypes.float8_e4m3fn, "fp4 in blocks": ml_dtypes.float4_e2m1fn}
    values = DICE.integers(-6, 7, (64, 48)).astype(np.float32).astype(codes[kind])
    if kind == "fp8":
        return values, np.float32(0.125), {}
    return values, DICE.uniform(0.01, 0.02, (4, 48)), {"axis": 0, "block_size": 16}


KINDS = ["int8 per channel", "uint8 with zero points", "int4 in blocks", "fp8", "fp4 in blocks"]


def with_stored_weights(kind, moved, inside=False):
    """A product with weights behind DequantizeLinear, perhaps transposed or in branches; a plain one behind it."""
    codes, scales, attributes = stored_in(kind)
    stored = [
        numpy_helper.from_array(codes, "codes"),
        numpy_helper.from_array(np.asarray(scales, np.float32), "scales"),
    ]
    if codes.dtype == np.uint8:
        stored.append(numpy_helper.from_array(DICE.integers(100, 150, 48).astype(np.uint8), "zeros"))
    nodes = [node("DequantizeLinear", [each.name for each in stored], ["w"], name="dq", **attributes)]
    if moved:
        nodes += [
            node("Transpose", ["w"], ["t"], name="turn"),
            node("Gemm", ["x", "t"], ["y"], name="product", transB=1),
        ]
    else:
        nodes += [node("MatMul", ["x", "w"], ["y"], name="product")]
    floats = helper.make_tensor_value_info
    outputs = [floats("z", TensorProto.FLOAT, [3, 5])]
    if inside:
        branches = {
            f"{name}_branch": helper.make_graph(
                [*nodes, node("Identity", ["y"], [f"{name}_y"])], name, [],
                [floats(f"{name}_y", TensorProto.FLOAT, [3, 48])], stored,
            )
            for name in ("then", "else")
        }  # fmt: skip
        nodes = [node("If", ["yes"], ["y"], name="if", **branches)]
        stored = [numpy_helper.from_array(np.array(True), "yes")]
    nodes.append(node("MatMul", ["y", "plain"], ["z"], name="last"))
    stored.append(numpy_helper.from_array(DICE.standard_normal((48, 5)).astype(np.float32), "plain"))
    graph = helper.make_graph(nodes, "graph", [floats("x", TensorProto.FLOAT, [3, 64])], outputs, stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    onnx.checker.check_model(made, full_check=True)
    return made


def initializers(graph):
    """Of a graph and its bodies, by name."""
    inner = [initializers(a.g) for each in graph.node for a in each.attribute if a.HasField("g")]
    return [each.SerializeToString() for each in graph.initializer if each.name in ("codes", "scales", "zeros")] + sum(
        inner, []
    )


@pytest.mark.parametrize("flags", [["--fp16"], ["--bf16"], ["--fp16", "--keep", "last"]], ids=" ".join)
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_stored_weights_stay_byte_for_byte(run, tmp_path, kind, moved, flags):
    """convert proves the bits of the outputs: a Cast of the weights in float32 is what layers read before."""
    source = with_stored_weights(kind, moved)
    onnx.save(source, tmp_path / "m.onnx")
    outcome = run("convert", "m.onnx", *flags, "-o", "t.onnx")
    assert outcome.code == 0, outcome.err
    typed = onnx.load(tmp_path / "t.onnx")
    assert initializers(typed.graph) == initializers(source.graph) != []
    casts = [each for each in typed.graph.node if each.op_type == "Cast" and each.input[0] in ("w", "t")]
    assert len(casts) == 1
    assert "1 constant(s) behind DequantizeLinear stay as the file stores them" in outcome.text
    assert (tmp_path / "t.onnx").stat().st_size < (tmp_path / "m.onnx").stat().st_size + 1500


@pytest.mark.parametrize("kind", ["int8 per channel", "int4 in blocks"])
def test_stored_weights_of_branches_stay(run, tmp_path, kind):
    source = with_stored_weights(kind, moved=False, inside=True)
    onnx.save(source, tmp_path / "m.onnx")
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx")
    assert outcome.code == 0, outcome.err
    typed = onnx.load(tmp_path / "t.onnx")
    assert len(initializers(typed.graph)) == 4 and initializers(typed.graph) == initializers(source.graph)
