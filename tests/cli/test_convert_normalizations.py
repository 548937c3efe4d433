"""`ulpscope convert` of a BatchNormalization behind a convolution: in the file it is where the engine has it."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convert_support import assert_converted, info, model, save, values
from plain_onnxruntime import plain_session
from search_support import outputs_of

node = helper.make_node


def normalization(x, y, channels, tag=""):
    """A BatchNormalization, and its parameters."""
    random = np.random.default_rng(1)
    arrays = {
        name: random.uniform(0.5, 2, channels) if name in "sv" else random.standard_normal(channels) for name in "sbmv"
    }
    weights = [numpy_helper.from_array(array.astype(np.float32), f"{name}{tag}") for name, array in arrays.items()]
    return node("BatchNormalization", [x, *(f"{name}{tag}" for name in "sbmv")], [y], name=f"norm{tag}"), weights


@pytest.mark.parametrize("fusion", ["none", "pointwise", "full"])
@pytest.mark.parametrize("cin,cout,group", [(4, 6, 1), (4, 4, 4), (1, 4, 1)])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_behind_convolutions_of_every_rank(run, tmp_path, op, rank, cin, cout, group, fusion):
    shape = [cin, cout // group] if op == "ConvTranspose" else [cout, cin // group]
    weights = np.random.default_rng(0).standard_normal([*shape, *[3] * rank]).astype(np.float32)
    norm, parameters = normalization("c", "y", cout)
    size = 8 if op == "ConvTranspose" else 4
    save(
        tmp_path,
        model(
            [node(op, ["x", "w"], ["c"], name="conv", group=group), norm],
            [info("x", [1, cin, *[6] * rank])],
            [info("y", [1, cout, *[size] * rank])],
            [numpy_helper.from_array(weights, "w"), *parameters],
        ),
    )
    for precision in ("--fp16", "--bf16"):
        assert_converted(run("convert", "m.onnx", precision, "-o", "t.onnx", "--fusion", fusion))
        kept = any(each.op_type == "BatchNormalization" for each in onnx.load(tmp_path / "t.onnx").graph.node)
        assert kept == (fusion == "none")


def quantized(x, scale, values=None, axis=None):
    """QuantizeLinear and DequantizeLinear; of constants `values` per channel if there is an axis."""
    shape = () if axis is None else values.shape[axis]
    constants = [
        numpy_helper.from_array(np.full(shape, scale, np.float32), f"{x}_s"),
        numpy_helper.from_array(np.zeros(shape, np.int8), f"{x}_z"),
    ]
    if values is not None:
        constants.append(numpy_helper.from_array(values, x))
    axis = {} if axis is None else {"axis": axis}
    return [node("QuantizeLinear", [x, f"{x}_s", f"{x}_z"], [f"{x}_q"], **axis),
            node("DequantizeLinear", [f"{x}_q", f"{x}_s", f"{x}_z"], [f"{x}_d"], **axis)], constants


@pytest.mark.parametrize("precision", ["--fp16", "--bf16"])
@pytest.mark.parametrize("quantized_weights,quantized_input", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("seed", [0, 1])
def test_behind_convolutions_with_weights_that_are_quantized(
    run, tmp_path, seed, quantized_weights, quantized_input, precision
):
    """As networks that were trained for int8 are exported. Integers in the file stay what they are; float weights, and
    those that only pass through integers, take the factors in."""
    random = np.random.default_rng(seed)
    nodes, constants, x = [], [], "x"
    for block in range(2):
        weights = random.standard_normal((8, 8, 3, 3)).astype(np.float32)
        name = f"w{block}"
        if quantized_input:
            added, more = quantized(x, 0.02)
            nodes, constants, x = [*nodes, *added], [*constants, *more], f"{x}_d"
        if quantized_weights:
            added, more = quantized(name, 0.03, weights, axis=0)
            nodes, constants = [*nodes, *added], [*constants, *more]
        else:
            constants.append(numpy_helper.from_array(weights, name))
        nodes.append(
            node(
                "Conv",
                [x, f"{name}_d" if quantized_weights else name],
                [f"c{block}"],
                name=f"conv{block}",
                pads=[1] * 4,
            )
        )
        norm, parameters = normalization(f"c{block}", f"n{block}", 8, str(block))
        nodes.append(norm)
        constants += parameters
        x = f"n{block}"
    nodes.append(node("Relu", [x], ["y"], name="relu"))
    save(
        tmp_path, model(nodes, [info("x", [2, 8, 6, 6])], [info("y", [2, 8, 6, 6])], constants, opset=19, ir_version=9)
    )
    assert_converted(run("convert", "m.onnx", precision, "-o", "t.onnx"))
    kept = sum(each.op_type == "BatchNormalization" for each in onnx.load(tmp_path / "t.onnx").graph.node)
    assert kept == (2 if quantized_weights and quantized_input else 0)


@pytest.mark.parametrize(
    "name,value", [("s", np.nan), ("s", np.inf), ("b", -np.inf), ("m", np.nan), ("v", np.inf), ("v", -1.0), ("v", 0.0)]
)
def test_parameters_that_are_no_numbers(run, tmp_path, name, value):
    """What they make is what they make in float32: the file has the same bits, and nothing is repaired."""
    norm, parameters = normalization("c", "y", 4)
    broken = next(each for each in parameters if each.name == name)
    array = numpy_helper.to_array(broken).copy()
    array[2] = value
    broken.CopyFrom(numpy_helper.from_array(array, name))
    weights = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32)
    save(
        tmp_path,
        model(
            [node("Conv", ["x", "w"], ["c"], name="conv"), norm],
            [info("x", [1, 4, 6, 6])],
            [info("y", [1, 4, 4, 4])],
            [numpy_helper.from_array(weights, "w"), *parameters],
        ),
    )
    for fusion in ("none", "full"):
        outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx", "--fusion", fusion)
        assert outcome.code in (0, 4) and "equal in every bit" in outcome.text, outcome
        assert (tmp_path / "t.onnx").exists() and TensorProto.FLOAT16 in {
            each.data_type for each in onnx.load(tmp_path / "t.onnx").graph.initializer
        }


def rows_of(op):
    """A norm of rows whose mean and inverse deviation other layers read, beside a product and what follows it."""
    outputs = ["n", "mean", "inverse"]
    skip = op == "SkipLayerNormalization"
    layer = node(op, ["c", "skip", "g", "b"] if skip else ["c", "g", "b"], outputs, name="norm",
                 domain="com.microsoft" if skip else "")  # fmt: skip
    nodes = [
        node("MatMul", ["x", "w"], ["c"], name="product"),
        layer,
        node("Mul", ["n", "n"], ["y"], name="square"),
        node("Sub", ["y", "mean"], ["less"], name="less"),
        node("Mul", ["less", "inverse"], ["z"], name="scaled"),
    ]
    inputs = [info("x", [3, 8]), *([info("skip", [3, 8])] if skip else [])]
    weights = [values("w", 8, 8), values("g", 8), values("b", 8)]
    return model(nodes, inputs, [info("y", [3, 8]), info("z", [3, 8]), info("mean", [3, 1])], weights,
                 extra_opsets=[helper.make_opsetid("com.microsoft", 1)] if skip else [])  # fmt: skip


@pytest.mark.parametrize("fusion", ["none", "full"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("op", ["LayerNormalization", "SkipLayerNormalization"])
def test_norms_whose_means_are_read_are_lowered(run, tmp_path, op, precision, fusion):
    """Mean and InvStdDev have the type of stash_type, whatever x has: they stay in float32."""
    made = rows_of(op)
    onnx.save(made, tmp_path / "m.onnx")
    outcome = run("convert", "m.onnx", f"--{precision}", "-o", "t.onnx", "--fusion", fusion,
                  "--save-postprocess-script", "post.py")  # fmt: skip
    assert_converted(outcome)
    assert "stay in higher precision" not in outcome.text, outcome.text
    typed = onnx.load(tmp_path / "t.onnx")
    onnx.checker.check_model(typed, full_check=True)
    reads = {cast.output[0]: cast.input[0] for cast in typed.graph.node if cast.op_type == "Cast"}
    norm = next(each for each in typed.graph.node if each.op_type == op)
    assert norm.input[0] not in reads, "the product hands its values on as they are"
    assert norm.output[1] == "mean", "a network output in float32, as it is"
    assert any(source == norm.output[2] for source in reads.values()), "what computes with the inverse rounds it"
    if precision == "fp16" and op == "LayerNormalization":
        plain_session(tmp_path / "t.onnx").run(None, {"x": np.ones((3, 8), np.float32)})
    words = ["--trt", f"--{precision}", "--assume-lowest", "--fusion", fusion, "--save-outputs"]
    assert run("run", "t.onnx", "--trt", "--strongly-typed", "--fusion", fusion, "--save-outputs", "t.json").code == 0
    assert run("run", "m.onnx", *words, "w.json").code == 0
    assert run("run", "m.onnx", *words, "s.json", "--trt-network-postprocess-script", "post.py",
               "--precision-constraints", "obey").code == 0  # fmt: skip
    typed_bits, *others = (outputs_of(tmp_path / name)[0] for name in ("t.json", "w.json", "s.json"))
    for other in others:
        assert all(np.array_equal(typed_bits[name], other[name]) for name in typed_bits)
    mean = typed_bits["mean"]
    assert (mean.astype(np.float16) != mean).any() or (mean == 0).all(), "nothing rounds it"


def test_a_search_lowers_norms_whose_means_are_read(run, tmp_path):
    save(tmp_path, rows_of("LayerNormalization"))
    outcome = run(
        "precision", "search", "m.onnx", "--fp16", "--save-answer", "a.json", "--rtol", "0.1", "--atol", "0.1"
    )
    assert outcome.code == 0, outcome
    assert_converted(run("convert", "m.onnx", "--answer", "a.json", "-o", "t.onnx"))
    typed = onnx.load(tmp_path / "t.onnx")
    norm = next(each for each in typed.graph.node if each.op_type == "LayerNormalization")
    inferred = onnx.shape_inference.infer_shapes(typed).graph.value_info
    types = {value.name: value.type.tensor_type.elem_type for value in inferred}
    assert types[norm.output[0]] == TensorProto.FLOAT16 and types[norm.output[2]] == TensorProto.FLOAT
