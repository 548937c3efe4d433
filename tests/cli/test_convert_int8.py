"""`ulpscope convert` with int8 layers: pairs of quantize and dequantize, scales, biases."""

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convert_support import MADE, SHAPES, assert_converted, info, model, save, values
from plain_onnxruntime import plain_session
from search_support import save_inputs


def kinds_of_products():
    """Every layer with weights, and each axis of their channels; two readers of one tensor and of one weight."""
    nodes = [helper.make_node("Conv", ["image", "conv.w", "conv.b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
             helper.make_node("Relu", ["c"], ["r"], name="relu"),
             helper.make_node("ConvTranspose", ["r", "up.w"], ["u"], name="up", strides=[2, 2]),
             helper.make_node("GlobalAveragePool", ["u"], ["pooled"], name="pool"),
             helper.make_node("Flatten", ["pooled"], ["flat"], name="flatten"),
             helper.make_node("Gemm", ["flat", "a.w", "a.b"], ["a"], name="plain"),
             helper.make_node("Gemm", ["flat", "t.w"], ["t"], name="transposed", transB=1),
             helper.make_node("MatMul", ["flat", "m.w"], ["m"], name="matmul"),
             helper.make_node("Add", ["m", "m.b"], ["mb"], name="bias"),
             helper.make_node("Erf", ["mb"], ["e"], name="erf"),
             helper.make_node("MatMul", ["a", "m2.w"], ["m2"], name="again"),
             helper.make_node("Add", ["e", "m2"], ["s"], name="residual"),
             helper.make_node("MatMul", ["t", "m2.w"], ["m3"], name="shared"),
             helper.make_node("Mul", ["s", "m3"], ["y"], name="gate")]
    weights = [values("conv.w", 6, 3, 3, 3), values("conv.b", 6), values("up.w", 6, 4, 2, 2), values("a.w", 4, 5),
               values("a.b", 5), values("t.w", 5, 4), values("m.w", 4, 7), values("m.b", 7), values("m2.w", 5, 7)]
    return model(nodes, [info("image", ["n", 3, 8, 8])], [info("y", ["n", 7]), info("a", ["n", 5])], weights)


@pytest.mark.parametrize("fusion", ["none", "full"])
@pytest.mark.parametrize("types", [["--int8"], ["--int8", "--fp16"], ["--int8", "--bf16"]])
@pytest.mark.parametrize("name", ["kinds_of_products", "resnet_like", "shared_initializer", "own_casts", "with_if", "unnamed_nodes"])
def test_int8(run, tmp_path, name, types, fusion):
    source = save(tmp_path, {**MADE, "kinds_of_products": kinds_of_products}[name]())
    shapes = ["--input-shapes", "image:[2,3,8,8]"] if name == "kinds_of_products" else SHAPES.get(name, [])
    outcome = run("convert", source, *types, "-o", "t.onnx", "--fusion", fusion, *shapes)
    assert_converted(outcome)
    assert re.search(r"[0-9] activations? quantized, ", outcome.text), outcome
    if "--bf16" not in types:
        assert "ONNX Runtime" in outcome.text, outcome


@pytest.mark.parametrize("types", [["--int8"], ["--int8", "--fp16"]])
def test_int8_ahead_of_a_product_whose_length_is_computed(run, tmp_path, types):
    nodes = [
        helper.make_node("Slice", ["x", "zero", "length", "zero"], ["s"], name="cut"),
        helper.make_node("Mul", ["s", "b"], ["m"], name="scale"),
        helper.make_node("MatMul", ["m", "w"], ["y"], name="product"),
    ]
    inputs = [info("x", [6, 5]), info("b", [5]), info("length", [1], TensorProto.INT64), info("w", [5, 7])]
    save(tmp_path, model(nodes, inputs, [info("y", ["n", 7])], [numpy_helper.from_array(np.array([0]), "zero")]))
    random = np.random.default_rng(1)
    sample = {
        name: random.standard_normal(shape).astype(np.float32)
        for name, shape in (("x", (6, 5)), ("b", 5), ("w", (5, 7)))
    }
    save_inputs(tmp_path / "i.json", [{**sample, "length": np.array([4])}])
    assert_converted(run("convert", "m.onnx", *types, "--lower", "scale", "-o", "t.onnx", "--load-inputs", "i.json"))


def test_int8_weights_have_scales_on_the_right_axis(run, tmp_path):
    save(tmp_path, kinds_of_products())
    assert_converted(run("convert", "m.onnx", "--int8", "-o", "t.onnx", "--input-shapes", "image:[2,3,8,8]",
                         "--calibration-cache", "c.cache"))
    typed = onnx.load(tmp_path / "t.onnx").graph
    constants = {i.name: numpy_helper.to_array(i) for i in typed.initializer}
    producers = {o: node for node in typed.node for o in node.output}
    axes = {"conv": 0, "up": 1, "plain": 1, "transposed": 0, "matmul": 1, "again": 1, "shared": 1}
    source = {i.name: numpy_helper.to_array(i) for i in kinds_of_products().graph.initializer}
    for node in typed.node:
        if node.name not in axes:
            continue
        weights, activation = producers[node.input[1]], producers[node.input[0]]
        assert [weights.op_type, activation.op_type] == ["DequantizeLinear"] * 2
        axis = next(a.i for a in weights.attribute if a.name == "axis")
        integers, scales = constants[weights.input[0]], constants[weights.input[1]]
        original = source[weights.input[0].removesuffix("_int8")]
        assert axis == axes[node.name] and integers.dtype == np.int8 and scales.shape == (original.shape[axis],)
        other = tuple(d for d in range(original.ndim) if d != axis)
        np.testing.assert_allclose(scales, np.abs(original).max(other) / 127, rtol=1e-6)
        shape = [-1 if d == axis else 1 for d in range(original.ndim)]
        assert np.max(np.abs(integers * scales.reshape(shape) - original)) <= scales.max() / 2 * 1.001
        quantize = producers[activation.input[0]]
        assert quantize.op_type == "QuantizeLinear" and constants[quantize.input[1]].shape == ()
        assert constants[quantize.input[2]].dtype == np.int8
    # One pair for all readers of a tensor, one copy of a weight, no scale lost, biases in float.
    assert sum(n.op_type == "QuantizeLinear" and n.input[0] == "flat" for n in typed.node) == 1
    assert sum(n.op_type == "DequantizeLinear" and n.input[0] == "m2.w_int8" for n in typed.node) == 1
    assert constants["conv.b"].dtype == np.float32 and "conv.w" not in constants
    quantized = {n.input[0] for n in typed.node if n.op_type == "QuantizeLinear"}
    assert quantized == {"image", "r", "u", "flat", "a", "t", "e", "m2", "s", "m3"}
    # The same file from the cache alone.
    first = (tmp_path / "t.onnx").read_bytes()
    assert_converted(run("convert", "m.onnx", "--int8", "-o", "t.onnx", "--input-shapes", "image:[2,3,8,8]",
                         "--calibration-cache", "c.cache"))
    assert (tmp_path / "t.onnx").read_bytes() == first


@pytest.mark.parametrize("fusion", ["none", "pointwise", "full"])
@pytest.mark.parametrize("types", [["--int8"], ["--int8", "--fp16"], ["--int8", "--bf16"]])
def test_int8_products_one_behind_the_other(run, tmp_path, types, fusion):
    """What reaches the output through QuantizeLinear alone is computed like everything else."""
    nodes, weights, x = [], [], "x"
    for i in range(4):
        nodes += [helper.make_node("MatMul", [x, f"w{i}"], [f"p{i}"], name=f"product{i}"),
                  helper.make_node("Add", [f"p{i}", f"b{i}"], [f"s{i}"], name=f"bias{i}"),
                  helper.make_node("Tanh", [f"s{i}"], [f"t{i}"], name=f"tanh{i}")]
        weights += [values(f"w{i}", 48, 48), values(f"b{i}", 48)]
        x = f"t{i}"
    save(tmp_path, model(nodes, [info("x", [64, 48])], [info(x, [64, 48])], weights))
    assert_converted(run("convert", "m.onnx", *types, "-o", "t.onnx", "--fusion", fusion))
    report = run("run", "t.onnx", "--trt", "--strongly-typed", "-v", "--fusion", fusion)
    for i in range(4):
        assert any(f"bias{i} [" in line and f"group: product{i} + " in line for line in report.text.splitlines()), report


@pytest.mark.parametrize("fusion", ["none", "pointwise", "full"])
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", ["MatMul", "Conv"])
def test_int8_with_a_bias_of_another_type(run, tmp_path, op, kind, fusion):
    """The sum with the bias is stored in the type of the bias, also where a single layer reads it in another one."""
    if op == "MatMul":
        nodes, x, bias = [helper.make_node("MatMul", ["x", "w"], ["p"], name="product")], [64, 24], values("b", 24)
        weights = [values("w", 24, 24)]
    else:
        nodes, x, bias = [helper.make_node("Conv", ["x", "w"], ["p"], name="product")], [1, 6, 12, 12], values("b", 6, 1, 1)
        weights = [values("w", 6, 6, 1, 1)]
    nodes += [helper.make_node("Add", ["p", "b"], ["s"], name="bias"),
              helper.make_node("HardSwish", ["s"], ["h"], name="swish"),
              helper.make_node("Tanh", ["h"], ["y"], name="tanh")]
    save(tmp_path, model(nodes, [info("x", x)], [info("y", x)], [*weights, bias]))
    both = ["--bf16"] if kind == "bfloat16" else []
    assert_converted(run("convert", "m.onnx", "--int8", "--fp16", *both, "--layer-precisions", f"bias:{kind}", "-o", "t.onnx", "--fusion", fusion))


def test_int8_of_channels_that_are_off(run, tmp_path):
    """All zeros, or next to: what a BatchNormalization with a tiny factor leaves of a channel."""
    weights = numpy_helper.to_array(values("w", 8, 6)).copy()
    weights[:, 2] *= 1e-36
    weights[:, 4] = 0
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="product"), helper.make_node("Relu", ["p"], ["y"], name="relu")]
    save(tmp_path, model(nodes, [info("x", [3, 8])], [info("y", [3, 6])], [numpy_helper.from_array(weights, "w")]))
    outcome = run("convert", "m.onnx", "--int8", "-o", "t.onnx")
    assert_converted(outcome)
    assert "stay in higher precision" not in outcome.text, outcome
    constants = {i.name: numpy_helper.to_array(i) for i in onnx.load(tmp_path / "t.onnx").graph.initializer}
    assert list(constants["w_scale"][[2, 4]]) == [1, 1] and not constants["w_int8"][:, [2, 4]].any()


@pytest.mark.parametrize("types,fusion", [(["--int8"], "none"), (["--int8", "--fp16"], "full")])
@pytest.mark.parametrize("name,size", [("minilm", 0.652), ("minilm_planted", 0.652), ("ocr_det", 0.40)])
def test_real_models_in_int8(run, models, tmp_path, name, size, types, fusion):
    path = models / f"{name}.onnx"
    outcome = run("convert", path, *types, "-o", "t.onnx", "--calib-base-cls", "IInt8MinMaxCalibrator",
                  "--load-inputs", models / f"{name}.search.json", "--fusion", fusion)
    assert_converted(outcome)
    assert "ONNX Runtime" in outcome.text, outcome
    assert (tmp_path / "t.onnx").stat().st_size <= size * path.stat().st_size
    # What is lowered takes at most 0.30 of its bytes, its scales included.
    graph = onnx.load(tmp_path / "t.onnx").graph
    constants = {i.name: i for i in graph.initializer}
    large = [n for n in graph.node if n.op_type == "DequantizeLinear" and n.input[0] in constants]
    assert len(large) >= 30
    after = sum(len(constants[i].raw_data) for n in large for i in n.input[:2])
    assert after <= 0.30 * sum(4 * np.prod(constants[n.input[0]].dims) for n in large)
    for node in large:
        axis = next((a.i for a in node.attribute if a.name == "axis"), None)
        scale = constants[node.input[1]]
        assert list(scale.dims) == ([] if axis is None else [constants[node.input[0]].dims[axis]])
        assert node.input[0].removesuffix("_int8") not in constants


def test_int8_needs_opset_13(run, tmp_path):
    """Raised where nothing means anything else; else the layers stay float."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="product"), helper.make_node("Relu", ["p"], ["y"], name="relu")]
    save(tmp_path, model(nodes, [info("x", [3, 4])], [info("y", [3, 5])], [values("w", 4, 5)], opset=11))
    outcome = run("convert", "m.onnx", "--int8", "-o", "t.onnx")
    assert_converted(outcome)
    assert "from 11 to 13" in outcome.text and onnx.load(tmp_path / "t.onnx").opset_import[0].version == 13
    nodes[1] = helper.make_node("Softmax", ["p"], ["y"], name="softmax", axis=0)
    save(tmp_path, model(nodes, [info("x", [3, 4])], [info("y", [3, 5])], [values("w", 4, 5)], opset=11))
    outcome = run("convert", "m.onnx", "--int8", "-o", "u.onnx")
    assert outcome.code == 1 and "Softmax 'softmax'" in outcome.text and "opset 11 has no DequantizeLinear" in outcome.text, outcome
    both = run("convert", "m.onnx", "--int8", "--fp16", "-o", "u.onnx")
    assert_converted(both)
    assert not any(n.op_type == "QuantizeLinear" for n in onnx.load(tmp_path / "u.onnx").graph.node)


def test_int8_of_a_transposed_convolution_with_groups_stays_float(run, tmp_path):
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["p"], name="up", group=2), helper.make_node("MatMul", ["p", "m"], ["y"], name="product")]
    save(tmp_path, model(nodes, [info("x", [1, 4, 5, 5])], [info("y", [1, 6, 6, 3])], [values("w", 4, 3, 2, 2), values("m", 6, 3)]))
    outcome = run("convert", "m.onnx", "--int8", "-o", "t.onnx")
    assert_converted(outcome)
    assert "ConvTranspose with groups: up" in outcome.text, outcome


def shifted_product(product):
    """A product whose weights all round the same way: one of each channel is so large that the steps are coarse, and the
    inputs are positive. What int8 loses is a shift per channel."""
    random = np.random.default_rng(3)
    if product == "Conv":
        weights, shape = random.uniform(0.2, 0.4, (8, 6, 3, 3)).astype(np.float32), [1, 6, 10, 10]
        weights[:, 0, 0, 0] = 100
    else:
        weights, shape = random.uniform(0.2, 0.4, (64, 8)).astype(np.float32), [16, 64]
        weights[0] = 100
    values = {"w": weights, "b": random.normal(size=8).astype(np.float32)}
    if product == "MatMul":
        nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="product"), helper.make_node("Add", ["p", "b"], ["y"], name="bias")]
    elif product == "Gemm":
        nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="product", beta=0.5)]
    else:
        nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], name="product")]
    output = {"MatMul": [16, 8], "Gemm": [16, 8], "Conv": [1, 8, 8, 8]}[product]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
                              [numpy_helper.from_array(array, name) for name, array in values.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), shape


@pytest.mark.parametrize("product", ["MatMul", "Gemm", "Conv"])
def test_corrected_biases_take_the_mean_error(product, run, tmp_path):
    """The shift of each channel is gone, on other inputs, too: as ONNX Runtime computes it."""
    model, shape = shifted_product(product)
    onnx.save(model, tmp_path / "m.onnx")
    random = np.random.default_rng(8)
    samples = [{"x": random.uniform(0, 1, shape).astype(np.float32)} for _ in range(16)]
    save_inputs(tmp_path / "in.json", samples[:8])
    words = ["convert", "m.onnx", "--int8", "--calib-base-cls", "max", "--load-inputs", "in.json", "-o"]
    plain, corrected = run(*words, "plain.onnx"), run(*words, "corrected.onnx", "--bias-correction")
    assert plain.code == corrected.code == 0, corrected
    assert "the biases of 1 int8 product(s) take the mean error of their outputs" in corrected.out, corrected
    shift = {}
    for name in ("m", "plain", "corrected"):
        session = plain_session(tmp_path / f"{name}.onnx")
        outputs = np.stack([session.run(None, each)[0] for each in samples[8:]]).astype(np.float64)
        channels = np.moveaxis(outputs, 2, -1) if product == "Conv" else outputs
        shift[name] = channels.reshape(-1, 8).mean(axis=0)
    before, after = np.abs(shift["plain"] - shift["m"]), np.abs(shift["corrected"] - shift["m"])
    assert (before > 0.5).all() and (after < before / 10).all(), (before, after)


def test_bias_correction_has_to_help(run, tmp_path):
    onnx.save(shifted_product("MatMul")[0], tmp_path / "m.onnx")
    refused = run("convert", "m.onnx", "--fp16", "--bias-correction", "-o", "t.onnx")
    assert refused.code == 1 and "--bias-correction: expected layers in int8" in refused.err and not (tmp_path / "t.onnx").exists()
    # Without a bias there is nothing to correct.
    model = shifted_product("MatMul")[0]
    model.graph.node[0].output[0] = "y"
    del model.graph.node[1]
    onnx.save(model, tmp_path / "m.onnx")
    outcome = run("convert", "m.onnx", "--int8", "--bias-correction", "-o", "t.onnx")
    assert outcome.code == 0 and "No bias is corrected" in outcome.out and "1 int8 product(s) have no bias" in outcome.out
