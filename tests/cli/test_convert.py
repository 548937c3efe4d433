"""`ulpscope convert`: every kind of file converts, passes onnx.checker, runs in ONNX Runtime, and keeps its bits."""
import json
import os
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cli_support import encode_array, needs_constraints

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def info(name, shape, element=FLOAT):
    return helper.make_tensor_value_info(name, element, shape)


def values(name, *shape, seed=0, scale=0.3):
    random = np.random.RandomState(seed + sum(map(ord, name)))
    return numpy_helper.from_array((random.standard_normal(shape) * scale).astype(np.float32), name)


def model(nodes, inputs, outputs, initializers=(), opset=17, functions=(), ir_version=8, extra_opsets=()):
    graph = helper.make_graph(nodes, "graph", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *extra_opsets],
                             functions=list(functions), ir_version=ir_version)


def resnet_like():
    """Two residual blocks with BatchNormalization, whose variances float16 cannot hold, pooling and a classifier."""
    nodes, weights, x = [], [], "image"
    for block in range(2):
        entry = x
        for half in range(2):
            name = f"b{block}.{half}"
            weights += [values(f"{name}.w", 8, 3 if x == "image" else 8, 3, 3), values(f"{name}.scale", 8),
                        values(f"{name}.shift", 8), values(f"{name}.mean", 8),
                        numpy_helper.from_array(np.full(8, 1e7 if half else 2.0, np.float32), f"{name}.var")]
            nodes.append(helper.make_node("Conv", [x, f"{name}.w"], [f"{name}.c"], name=f"{name}/conv", pads=[1, 1, 1, 1]))
            nodes.append(helper.make_node("BatchNormalization", [f"{name}.c"] + [f"{name}.{p}" for p in ("scale", "shift", "mean", "var")],
                                          [f"{name}.n"], name=f"{name}/norm"))
            x = f"{name}.n"
            if half == 0:
                nodes.append(helper.make_node("Relu", [x], [f"{name}.r"], name=f"{name}/relu"))
                x = f"{name}.r"
        if block:
            nodes.append(helper.make_node("Add", [x, entry], [f"b{block}.sum"], name=f"b{block}/add"))
            x = f"b{block}.sum"
    nodes += [helper.make_node("GlobalAveragePool", [x], ["pooled"], name="pool"),
              helper.make_node("Flatten", ["pooled"], ["flat"], name="flatten"),
              helper.make_node("Gemm", ["flat", "fc.w", "fc.b"], ["scores"], name="fc")]
    weights += [values("fc.w", 8, 5), values("fc.b", 5)]
    return model(nodes, [info("image", ["batch", 3, 12, 12])], [info("scores", ["batch", 5])], weights)


def lstm():
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], name="lstm", hidden_size=6),
             helper.make_node("Squeeze", ["y", "axis"], ["s"], name="squeeze"),
             helper.make_node("MatMul", ["s", "proj"], ["out"], name="project")]
    weights = [values("w", 1, 24, 4), values("r", 1, 24, 6), values("b", 1, 48), values("proj", 6, 3),
               numpy_helper.from_array(np.array([1], np.int64), "axis")]
    return model(nodes, [info("x", [5, 2, 4])], [info("out", [5, 2, 3]), info("h", [1, 2, 6])], weights)


def with_if():
    """Branches that read values from around them: a weight that is lowered outside, and a lowered sum."""
    branch = [helper.make_graph([helper.make_node(op, ["sum", "w"], [f"{op}_out"], name=f"in/{op}")], op, [],
                                [info(f"{op}_out", [2, 4])]) for op in ("MatMul", "Add")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["product"], name="product"),
             helper.make_node("Add", ["product", "b"], ["sum"], name="sum"),
             helper.make_node("ReduceMax", ["x"], ["top"], name="top", keepdims=0),
             helper.make_node("Greater", ["top", "zero"], ["choice"], name="choice"),
             helper.make_node("If", ["choice"], ["chosen"], name="if", then_branch=branch[0], else_branch=branch[1]),
             helper.make_node("Tanh", ["chosen"], ["y"], name="tanh")]
    weights = [values("w", 4, 4), values("b", 4), numpy_helper.from_array(np.float32(0), "zero")]
    graph = model(nodes, [info("x", [2, 4])], [info("y", [2, 4])], weights)
    for attribute in graph.graph.node[4].attribute:  # the other branch adds a row
        if attribute.name == "else_branch":
            attribute.g.node[0].input[1] = "b"
    return graph


def shared_initializer():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], name="low"),
             helper.make_node("MatMul", ["a", "w"], ["y"], name="high")]
    return model(nodes, [info("x", [3, 4])], [info("y", [3, 4])], [values("w", 4, 4)])


def unnamed_nodes():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("Softmax", ["b"], ["y"])]
    return model(nodes, [info("x", [3, 4])], [info("y", [3, 4])], [values("w", 4, 4)])


def output_read_inside():
    """`sum` is handed out and read by a layer of its precision: nothing may stay unrounded there."""
    nodes = [helper.make_node("Mul", ["x", "k"], ["scaled"], name="mul"), helper.make_node("Add", ["scaled", "c"], ["sum"], name="add"),
             helper.make_node("Sub", ["sum", "c"], ["y"], name="sub")]
    weights = [numpy_helper.from_array(np.float32(1.2345), "k"), numpy_helper.from_array(np.float32(1000), "c")]
    return model(nodes, [info("x", [3, 4])], [info("sum", [3, 4]), info("y", [3, 4])], weights)


def own_casts():
    """Casts from integers and bools, between floats, and to a narrow type and back."""
    nodes = [helper.make_node("Cast", ["ids"], ["ids_f"], name="from_int", to=FLOAT),
             helper.make_node("Sub", ["one", "ids_f"], ["mask"], name="invert"),
             helper.make_node("Cast", ["x"], ["x_f"], name="same", to=FLOAT),
             helper.make_node("MatMul", ["x_f", "w"], ["a"], name="product"),
             helper.make_node("Cast", ["a"], ["a_h"], name="down", to=HALF),
             helper.make_node("Cast", ["a_h"], ["a_f"], name="up", to=FLOAT),
             helper.make_node("Mul", ["a_f", "mask"], ["y"], name="mask")]
    weights = [values("w", 4, 4), numpy_helper.from_array(np.float32(1), "one")]
    return model(nodes, [info("x", [3, 4]), info("ids", [3, 1], TensorProto.INT64)], [info("y", [3, 4])], weights)


def with_function():
    body = [helper.make_node("Mul", ["v", "v"], ["square"], name="square"), helper.make_node("Add", ["square", "v"], ["out"], name="plus")]
    function = helper.make_function("local", "SquarePlus", ["v"], ["out"], body, [helper.make_opsetid("", 17)])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], name="before"),
             helper.make_node("SquarePlus", ["a"], ["b"], name="call", domain="local"),
             helper.make_node("MatMul", ["b", "w"], ["y"], name="after")]
    return model(nodes, [info("x", [3, 4])], [info("y", [3, 4])], [values("w", 4, 4)], functions=[function],
                 extra_opsets=[helper.make_opsetid("local", 1)])


def nested_functions():
    """Functions that call each other, twice, with attributes, a constant, and in the body of an If."""
    inner = helper.make_function("local", "Scaled", ["v"], ["o"],
                                 [helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.float32(0.75))),
                                  helper.make_node("Mul", ["v", "k"], ["m"]), helper.make_node("LeakyRelu", ["m"], ["o"])],
                                 [helper.make_opsetid("", 17)], ["alpha"])
    reference = inner.node[2].attribute.add(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    assert reference.ref_attr_name == "alpha"
    outer = helper.make_function("local", "Twice", ["v", "unused"], ["o"],
                                 [helper.make_node("Scaled", ["v"], ["a"], domain="local", alpha=0.25),
                                  helper.make_node("Scaled", ["a"], ["o"], domain="local", alpha=0.5)],
                                 [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)])
    branches = [helper.make_graph([helper.make_node("Scaled", ["b"], [f"{n}_out"], domain="local", alpha=0.1),], n, [], [info(f"{n}_out", [3, 4])])
                for n in ("then", "else")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], name="before"),
             helper.make_node("Twice", ["a"], ["b"], name="first", domain="local"),
             helper.make_node("Twice", ["b"], ["c"], name="second", domain="local"),
             helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0), helper.make_node("Greater", ["top", "zero"], ["choice"]),
             helper.make_node("If", ["choice"], ["chosen"], then_branch=branches[0], else_branch=branches[1]),
             helper.make_node("Add", ["c", "chosen"], ["y"], name="after")]
    return model(nodes, [info("x", [3, 4])], [info("y", [3, 4])], [values("w", 4, 4), numpy_helper.from_array(np.float32(0), "zero")],
                 functions=[inner, outer], extra_opsets=[helper.make_opsetid("local", 1)])


def constants_and_shapes():
    """Constant nodes, arithmetic on shapes in float, a folded constant, ConstantOfShape, Resize with scales."""
    nodes = [helper.make_node("Constant", [], ["two"], name="two", value=numpy_helper.from_array(np.float32(2))),
             helper.make_node("Sqrt", ["two"], ["root"], name="root"),
             helper.make_node("Mul", ["image", "root"], ["scaled"], name="scale"),
             helper.make_node("Resize", ["scaled", "", "scales"], ["large"], name="resize", mode="nearest",
                              coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
             helper.make_node("Shape", ["large"], ["shape"], name="shape"),
             helper.make_node("ConstantOfShape", ["shape"], ["fill"], name="fill",
                              value=numpy_helper.from_array(np.array([0.1], np.float32))),
             helper.make_node("Add", ["large", "fill"], ["sum"], name="sum"),
             helper.make_node("ArgMax", ["sum"], ["index"], name="argmax", axis=1),
             helper.make_node("Concat", ["sum", "large"], ["y"], name="concat", axis=1)]
    weights = [numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")]
    return model(nodes, [info("image", ["n", 3, "h", "w"])],
                 [info("y", ["n", 6, "h2", "w2"]), info("index", ["n", 1, "h2", "w2"], TensorProto.INT64)], weights)


MADE = {f.__name__: f for f in (needs_constraints, resnet_like, lstm, with_if, shared_initializer, unnamed_nodes,
                                output_read_inside, own_casts, with_function, nested_functions,
                                constants_and_shapes)}
SHAPES = {"resnet_like": ["--input-shapes", "image:[2,3,12,12]"], "constants_and_shapes": ["--input-shapes", "image:[1,3,4,5]"]}


def save(tmp_path, made, name="m.onnx"):
    onnx.checker.check_model(made, full_check=True)
    onnx.save(made, tmp_path / name)
    return name


def casts(path):
    return sum(node.op_type == "Cast" for node in onnx.load(path, load_external_data=False).graph.node)


def assert_converted(outcome):
    assert outcome.code == 0, outcome
    assert "equal in every bit" in outcome.text and "onnx.checker" in outcome.text, outcome


@pytest.mark.parametrize("fusion", ["none", "full"])
@pytest.mark.parametrize("name", MADE)
def test_made_models(run, tmp_path, name, fusion):
    source = save(tmp_path, MADE[name]())
    outcome = run("convert", source, "--fp16", "-o", "t.onnx", "--fusion", fusion, *SHAPES.get(name, []))
    assert_converted(outcome)
    assert "ONNX Runtime" in outcome.text, outcome
    before, after = onnx.load(tmp_path / source), onnx.load(tmp_path / "t.onnx")
    assert [(o.name, o.type.tensor_type.elem_type) for o in before.graph.output] == \
        [(o.name, o.type.tensor_type.elem_type) for o in after.graph.output]
    # No cast undoes another one, and none reads a weight.
    producers = {o: node for node in after.graph.node for o in node.output}
    constants = {i.name for i in after.graph.initializer}
    for node in after.graph.node:
        if node.op_type != "Cast" or name == "own_casts":
            continue
        assert node.input[0] not in constants
        assert producers.get(node.input[0]) is None or producers[node.input[0]].op_type != "Cast"


@pytest.mark.parametrize("keep", [["--keep", "MatMul_1"], ["--keep", "Add", "Sub"], ["--lower", "MatMul*"]])
def test_the_typed_model_gives_what_precisions_give(run, tmp_path, keep):
    """The file run strongly typed, against the weakly typed network, by the program itself."""
    source = save(tmp_path, needs_constraints())
    assert_converted(run("convert", source, "--fp16", *keep, "-o", "t.onnx", "--save-layer-precisions", "p.txt"))
    words = (tmp_path / "p.txt").read_text().split()
    assert len(words) == 4
    weak = run("run", source, "--trt", "--fp16", "--assume-lowest", "--precision-constraints", "obey",
               "--layer-precisions", *words, "--save-outputs", "weak.json")
    assert weak.code == 0, weak
    typed = run("run", "t.onnx", "--trt", "--strongly-typed", "--load-outputs", "weak.json", "--atol", "0", "--rtol", "0")
    assert typed.code == 0, typed


@pytest.mark.parametrize("fusion", ["none", "full"])
@pytest.mark.parametrize("name,most,size", [("minilm", 4, 0.51), ("minilm_planted", 4, 0.51), ("ocr_det", 4, 0.56), ("ocr_cls", 4, 0.62), ("needs_constraints", 2, 0.6)])
def test_real_models(run, models, tmp_path, name, most, size, fusion):
    path = models / f"{name}.onnx"
    outcome = run("convert", path, "--fp16", "-o", "t.onnx", "--load-inputs", models / f"{name}.search.json",
                  "--fusion", fusion, timeout=400)
    assert_converted(outcome)
    assert casts(tmp_path / "t.onnx") - casts(path) <= most
    assert (tmp_path / "t.onnx").stat().st_size <= size * path.stat().st_size


@pytest.mark.parametrize("name", ["minilm", "ocr_det", "ocr_cls"])
def test_real_models_in_bfloat16(run, models, tmp_path, name):
    path = models / f"{name}.onnx"
    outcome = run("convert", path, "--bf16", "-o", "t.onnx", "--load-inputs", models / f"{name}.search.json", timeout=400)
    assert_converted(outcome)
    assert "higher precision" not in outcome.text, outcome
    assert casts(tmp_path / "t.onnx") - casts(path) <= 4


def test_one_kept_layer_of_minilm_costs_few_casts(run, models, tmp_path):
    path = models / "minilm.onnx"
    assert_converted(run("convert", path, "--fp16", "--keep", "/Mul", "-o", "t.onnx", timeout=400))
    assert casts(tmp_path / "t.onnx") - casts(path) <= 6


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
    source = save(tmp_path, globals()[name]())
    shapes = ["--input-shapes", "image:[2,3,8,8]"] if name == "kinds_of_products" else SHAPES.get(name, [])
    outcome = run("convert", source, *types, "-o", "t.onnx", "--fusion", fusion, *shapes)
    assert_converted(outcome)
    assert "activation(s) quantized" in outcome.text, outcome
    if "--bf16" not in types:
        assert "ONNX Runtime" in outcome.text, outcome


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
                  "--load-inputs", models / f"{name}.search.json", "--fusion", fusion, timeout=400)
    assert_converted(outcome)
    assert "ONNX Runtime" in outcome.text, outcome
    assert (tmp_path / "t.onnx").stat().st_size <= size * path.stat().st_size
    # What is lowered takes at most 0.30 of its bytes, its scales included.
    before = {i.name: i for i in onnx.load(path).graph.initializer}
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


def test_bfloat16_raises_the_opset_where_that_is_safe(run, tmp_path):
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"), helper.make_node("Relu", ["c"], ["y"], name="relu")]
    save(tmp_path, model(nodes, [info("x", [1, 3, 6, 6])], [info("y", [1, 4, 4, 4])], [values("w", 4, 3, 3, 3)]))
    outcome = run("convert", "m.onnx", "--bf16", "-o", "t.onnx")
    assert_converted(outcome)
    assert "from 17 to 22" in outcome.text and "no CPU kernels for bfloat16" in outcome.text, outcome
    typed = onnx.load(tmp_path / "t.onnx")
    assert typed.opset_import[0].version == 22
    assert typed.graph.initializer[0].data_type == TensorProto.BFLOAT16


def test_what_the_opset_cannot_say_stays_in_float32(run, tmp_path):
    """Up to opset 12 this Softmax works over the last three axes at once."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
             helper.make_node("Softmax", ["c"], ["r"], name="softmax"),
             helper.make_node("Add", ["c", "r"], ["y"], name="add")]
    made = model(nodes, [info("x", [1, 3, 6, 6])], [info("y", [1, 4, 4, 4])], [values("w", 4, 3, 3, 3)], opset=11)
    save(tmp_path, made)
    outcome = run("convert", "m.onnx", "--bf16", "-o", "t.onnx")
    assert outcome.code == 1 and "Softmax 'softmax' (its axis 1 is not the last one of 4)" in outcome.text, outcome
    assert "try exporting the model with opset 13" in outcome.text, outcome


RAISED = {
    "softmax": [helper.make_node("Softmax", ["p"], ["y"], axis=2)],
    "squeeze": [helper.make_node("Unsqueeze", ["p"], ["u"], axes=[1]), helper.make_node("Tanh", ["u"], ["v"]),
                helper.make_node("Squeeze", ["v"], ["y"], axes=[1])],
    "reductions": [helper.make_node("ReduceSum", ["p"], ["s"], axes=[2]), helper.make_node("ReduceMean", ["p"], ["m"], axes=[-1]),
                   helper.make_node("ReduceL2", ["p"], ["l"], axes=[2]), helper.make_node("Sub", ["p", "m"], ["c"]),
                   helper.make_node("Mul", ["c", "s"], ["d"]), helper.make_node("Div", ["d", "l"], ["y"])],
    "split": [helper.make_node("Split", ["p"], ["s1", "s2"], axis=1), helper.make_node("Split", ["s1"], ["a", "b"], axis=1, split=[1, 1]),
              helper.make_node("Concat", ["b", "a", "s2"], ["y"], axis=1)],
}


@pytest.mark.parametrize("name", RAISED)
def test_attributes_that_newer_opsets_have_as_inputs(run, tmp_path, name):
    """Written for opset 11, raised as far as bfloat16 needs it: to 13, with a convolution to 22."""
    for last, opset in (("MatMul", 13), ("Conv", 22)):
        nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="first")] + \
            [helper.make_node(last, ["x", "k" if last == "Conv" else "w"], ["z"], name="last")] + RAISED[name]
        made = model(nodes, [info("x", [2, 4, 6])], [info("y", [2, 4, 6]), info("z", [2, 3, 6] if last == "Conv" else [2, 4, 6])],
                     [values("w", 6, 6), values("k", 3, 4, 1)], opset=11)
        save(tmp_path, made)
        outcome = run("convert", "m.onnx", "--bf16", "-o", "t.onnx")
        assert_converted(outcome)
        assert f"from 11 to {opset}" in outcome.text and "higher precision" not in outcome.text, outcome
        # In float16 it runs in ONNX Runtime; int8 asks for opset 13.
        both = run("convert", "m.onnx", "--fp16", "--int8", "-o", "u.onnx")
        assert_converted(both)
        assert "ONNX Runtime" in both.text and onnx.load(tmp_path / "u.onnx").opset_import[0].version == 13, both


def test_shared_initializer_is_stored_twice_only_if_it_must(run, tmp_path):
    save(tmp_path, shared_initializer())
    assert_converted(run("convert", "m.onnx", "--fp16", "--keep", "high", "-o", "two.onnx"))
    assert sorted(i.data_type for i in onnx.load(tmp_path / "two.onnx").graph.initializer) == [FLOAT, HALF]
    assert_converted(run("convert", "m.onnx", "--fp16", "-o", "one.onnx"))
    assert [(i.name, i.data_type) for i in onnx.load(tmp_path / "one.onnx").graph.initializer] == [("w", HALF)]


def test_everything_else_stays(run, tmp_path):
    """Texts, metadata, names of dimensions, opsets, training information; and what nobody reads."""
    made = model([helper.make_node("MatMul", ["x", "w"], ["a"], name="product", doc_string="a node"),
                  helper.make_node("Relu", ["x"], ["unread"], name="dead"),
                  helper.make_node("Softmax", ["a"], ["y"], name="softmax", axis=-1)],
                 [info("x", ["batch", 4])], [info("y", ["batch", 4])], [values("w", 4, 4), values("nobody", 3)],
                 extra_opsets=[helper.make_opsetid("com.example", 3)])
    made.doc_string, made.producer_name, made.graph.doc_string = "a model", "me", "a graph"
    made.graph.initializer[0].doc_string = "a weight"
    made.graph.value_info.append(info("a", ["batch", 4]))
    entry = made.metadata_props.add()
    entry.key, entry.value = "author", "me"
    save(tmp_path, made)
    assert_converted(run("convert", "m.onnx", "--fp16", "-o", "t.onnx", "--input-shapes", "x:[3,4]"))
    typed = onnx.load(tmp_path / "t.onnx")
    assert (typed.doc_string, typed.producer_name, typed.graph.doc_string) == ("a model", "me", "a graph")
    assert {p.key: p.value for p in typed.metadata_props}["author"] == "me"
    assert [(o.domain, o.version) for o in typed.opset_import] == [("", 17), ("com.example", 3)]
    assert [n.name for n in typed.graph.node if n.op_type != "Cast"] == ["product", "dead", "softmax"]
    assert typed.graph.input[0] == made.graph.input[0] and typed.graph.output[0] == made.graph.output[0]
    assert [n.doc_string for n in typed.graph.node if n.name == "product"] == ["a node"]
    weights = {i.name: (i.data_type, i.doc_string) for i in typed.graph.initializer}
    assert weights == {"w": (HALF, "a weight"), "nobody": (FLOAT, "")}
    assert {v.name: v.type.tensor_type.elem_type for v in typed.graph.value_info}["a"] == HALF
    # Converting twice changes nothing but is told.
    again = run("convert", "t.onnx", "--fp16", "-o", "u.onnx")
    assert again.code == 1 and "already" in again.text, again


def test_initializers_that_are_inputs_too(run, tmp_path):
    """Files of IR version 3, and those that were exported like them."""
    for version in (3, 8):
        made = shared_initializer()
        made.ir_version = version
        made.graph.input.append(info("w", [4, 4]))
        made.opset_import[0].version = 8 if version == 3 else 17
        save(tmp_path, made)
        assert_converted(run("convert", "m.onnx", "--fp16", "--keep", "high", "-o", "t.onnx"))
        typed = onnx.load(tmp_path / "t.onnx").graph
        names = [i.name for i in typed.input]
        assert names[:2] == ["x", "w"] and len(names) == (3 if version == 3 else 2)


@pytest.mark.parametrize("fusion", ["none", "full"])
def test_functions_are_lowered(run, tmp_path, fusion):
    save(tmp_path, nested_functions())
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx", "--fusion", fusion)
    assert_converted(outcome)
    assert "ONNX Runtime" in outcome.text and "2 call(s) of model-local functions are written as their bodies" in outcome.text, outcome
    typed = onnx.load(tmp_path / "t.onnx")
    assert not typed.functions and [o.domain for o in typed.opset_import] == [""]
    names = [n.name for n in typed.graph.node]
    assert "before" in names and sum(n.op_type == "LeakyRelu" for n in typed.graph.node) == 4
    types = {v.name: v.type.tensor_type.elem_type for v in onnx.shape_inference.infer_shapes(typed).graph.value_info}
    assert all(types[n.output[0]] == HALF for n in typed.graph.node if n.op_type in ("LeakyRelu", "Mul"))


def test_functions_of_another_opset_stay(run, tmp_path):
    body = [helper.make_node("Softmax", ["v"], ["out"], axis=0)]
    function = helper.make_function("local", "Old", ["v"], ["out"], body, [helper.make_opsetid("", 11)])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], name="before"), helper.make_node("Old", ["a"], ["y"], name="call", domain="local")]
    made = model(nodes, [info("x", [3, 4])], [info("y", [3, 4])], [values("w", 4, 4)], functions=[function],
                 extra_opsets=[helper.make_opsetid("local", 1)])
    onnx.save(made, tmp_path / "m.onnx")
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx", "--no-python-checks")
    assert outcome.code == 0 and "inside of a model-local function" in outcome.text, outcome
    assert len(onnx.load(tmp_path / "t.onnx").functions) == 1


def test_io_types(run, tmp_path):
    save(tmp_path, output_read_inside())
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx", "--io-types", "x:float16", "y:fp16")
    assert_converted(outcome)
    typed = onnx.load(tmp_path / "t.onnx").graph
    assert [v.type.tensor_type.elem_type for v in [*typed.input, *typed.output]] == [HALF, FLOAT, HALF]


def test_other_forms(run, tmp_path):
    save(tmp_path, needs_constraints())
    outcome = run("convert", "m.onnx", "--fp16", "--keep", "Add", "-o", "t.onnx", "--save-postprocess-script", "p.py",
                  "--save-exclusions", "e.json", "--print-commands")
    assert_converted(outcome)
    assert "trtexec --onnx=t.onnx --stronglyTyped" in outcome.out
    assert json.loads((tmp_path / "e.json").read_text()) == {"node_block_list": ["Add"], "nodes_to_exclude": ["Add"]}
    with_script = run("run", "m.onnx", "--trt", "--fp16", "--assume-lowest", "--precision-constraints", "obey",
                      "--trt-npps", "p.py", "-v")
    assert with_script.code == 0, with_script
    metadata = {p.key: p.value for p in onnx.load(tmp_path / "t.onnx").metadata_props}
    assert metadata["ulpscope.kept_in_fp32"] == "Add" and metadata["ulpscope.precisions"] == "3 fp16, 1 fp32"


def test_the_answer_of_a_search(run, tmp_path):
    save(tmp_path, needs_constraints())
    found = run("precision", "search", "m.onnx", "--fp16", "--val-range", "x:[1,2]", "--iterations", "4",
                "--save-answer", "a.json", "--no-journal")
    assert found.code == 0, found
    kept = [layer["name"] for layer in json.loads((tmp_path / "a.json").read_text())["layers"]]
    assert_converted(run("convert", "m.onnx", "--answer", "a.json", "-o", "t.onnx"))
    metadata = {p.key: p.value for p in onnx.load(tmp_path / "t.onnx").metadata_props}
    assert kept and metadata["ulpscope.kept_in_fp32"].split("\n") == kept
    # What the answer does not hold for is refused; more than it needs may be kept.
    for words, text in ((["--int8"], "--answer and --int8: the answer lowers layers to fp16"),
                        (["--bf16"], "holds for that alone"),
                        (["--layer-precisions", f"{kept[0]}:float16"], "--answer keeps it in float32, but --layer-precisions says float16")):
        refused = run("convert", "m.onnx", "--answer", "a.json", "-o", "v.onnx", *words)
        assert refused.code == 1 and text in refused.text and not (tmp_path / "v.onnx").exists(), refused
    first = needs_constraints().graph.node[0].name
    assert_converted(run("convert", "m.onnx", "--answer", "a.json", "-o", "v.onnx", "--fp16", "--keep", first, *kept))
    # The answer of another model: its first difference is named.
    save(tmp_path, needs_constraints(n=128), "other.onnx")
    other = run("convert", "other.onnx", "--answer", "a.json", "-o", "u.onnx")
    assert other.code == 1 and "another model: it was found for 'm.onnx'" in other.text, other
    save(tmp_path, shared_initializer(), "third.onnx")
    third = run("convert", "third.onnx", "--answer", "a.json", "-o", "u.onnx")
    assert third.code == 1 and f"it keeps the layer '{kept[0]}'" in third.text, third
    (tmp_path / "broken.json").write_text("{}")
    assert run("convert", "m.onnx", "--answer", "broken.json", "-o", "u.onnx").code == 1
    assert not (tmp_path / "u.onnx").exists()


def between_kept_layers():
    """Layers that cost little between two products, and a product of its own."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], name="first"), helper.make_node("Add", ["a", "b"], ["s"], name="bias"),
             helper.make_node("Sigmoid", ["s"], ["g"], name="gate"), helper.make_node("MatMul", ["g", "w"], ["c"], name="second"),
             helper.make_node("MatMul", ["c", "w"], ["y"], name="third")]
    return model(nodes, [info("x", [3, 16])], [info("y", [3, 16])], [values("w", 16, 16), values("b", 16)])


KEPT = ["--keep", "first", "second"]


def test_neighbours_are_raised_where_that_saves_casts(run, tmp_path):
    save(tmp_path, between_kept_layers())
    plain = run("convert", "m.onnx", "--fp16", *KEPT, "-o", "plain.onnx")
    assert_converted(plain)
    relaxed = run("convert", "m.onnx", "--fp16", *KEPT, "-o", "t.onnx", "--relax", "--metric", "rel-l2", "--threshold", "0.01")
    assert_converted(relaxed)
    assert "2 layer(s) raised to float32" in relaxed.text and "bias, gate" in relaxed.text and "of the tolerance is used" in relaxed.text, relaxed
    assert casts(tmp_path / "t.onnx") == casts(tmp_path / "plain.onnx") - 2
    metadata = {p.key: p.value for p in onnx.load(tmp_path / "t.onnx").metadata_props}
    assert metadata["ulpscope.raised_to_save_casts"] == "bias\ngate" and metadata["ulpscope.precisions"] == "1 fp16, 4 fp32"
    # A type that was asked for stays.
    asked = run("convert", "m.onnx", "--fp16", *KEPT, "--layer-precisions", "bias:float16", "-o", "u.onnx", "--relax", "--rtol", "0.1")
    assert_converted(asked)
    assert "bias" not in {p.key: p.value for p in onnx.load(tmp_path / "u.onnx").metadata_props}.get("ulpscope.raised_to_save_casts", "")


def test_what_is_raised_has_to_meet_the_tolerance(run, tmp_path):
    save(tmp_path, between_kept_layers())
    outcome = run("convert", "m.onnx", "--fp16", *KEPT, "-o", "t.onnx", "--relax", "--metric", "rel-l2", "--threshold", "1e-9")
    assert_converted(outcome)
    assert "they stay as they are" in outcome.text, outcome
    assert "ulpscope.raised_to_save_casts" not in {p.key for p in onnx.load(tmp_path / "t.onnx").metadata_props}


def test_relaxing_an_answer(run, tmp_path):
    save(tmp_path, between_kept_layers())
    assert run("run", "m.onnx", "--trt", "--iterations", "4", "--save-inputs", "i.json", "--save-outputs", "g.json").code == 0
    found = run("precision", "search", "m.onnx", "--fp16", *KEPT, "--load-inputs", "i.json", "--golden", "g.json", "--metric", "rel-l2",
                "--threshold", "0.05", "--save-answer", "a.json", "--no-journal", "--no-hold-out")
    assert found.code == 0, found
    answer = json.loads((tmp_path / "a.json").read_text())
    assert answer["criterion_options"] == ["--metric", "rel-l2", "--threshold", "0.05"]
    assert answer["inputs"] == ["i.json"] and answer["golden"] == "g.json"
    outcome = run("convert", "m.onnx", "--answer", "a.json", "--relax", "-o", "t.onnx", "--save-answer", "b.json")
    assert_converted(outcome)
    assert "rel-l2 <= 0.05, 4 sample(s)" in outcome.text and "Loading golden results from g.json" in outcome.text, outcome
    relaxed = json.loads((tmp_path / "b.json").read_text())
    assert [layer["name"] for layer in relaxed["layers"]] == ["first", "second", "bias", "gate"]
    assert "--relax" in relaxed["layers"][2]["reason"]["text"]
    assert relaxed["message"] == answer["message"] + "; 2 more kept, which saves casts"
    # The new answer says the same without the option, to run as well.
    assert_converted(run("convert", "m.onnx", "--answer", "b.json", "-o", "u.onnx"))
    typed = [onnx.load(tmp_path / name).graph for name in ("t.onnx", "u.onnx")]
    assert typed[0] == typed[1]
    weak = run("run", "m.onnx", *relaxed["run_options"], "--load-inputs", "i.json", "--save-outputs", "weak.json")
    assert weak.code == 0, weak
    strong = run("run", "t.onnx", "--trt", "--strongly-typed", "--load-inputs", "i.json", "--load-outputs", "weak.json", "--atol", "0", "--rtol", "0")
    assert strong.code == 0, strong
    # An answer of an earlier release.
    del answer["criterion_options"]
    (tmp_path / "old.json").write_text(json.dumps(answer))
    old = run("convert", "m.onnx", "--answer", "old.json", "--relax", "-o", "v.onnx")
    assert old.code == 1 and "does not say its tolerance (rel-l2 <= 0.05) as options" in old.text, old


def test_an_engine(run, tmp_path):
    save(tmp_path, needs_constraints())
    assert run("convert", "m.onnx", "--fp16", "--keep", "Add", "-o", "m.plan").code == 0
    assert run("run", "m.plan", "--trt").code == 0


def dynamic_pooling():
    """Does not work with 1 for each dynamic dimension."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], name="conv"), helper.make_node("MaxPool", ["a"], ["b"], name="pool", kernel_shape=[2, 2]),
             helper.make_node("GlobalAveragePool", ["b"], ["y"], name="mean")]
    return model(nodes, [info("x", ["n", 3, "h", "w"])], [info("y", ["n", 4, 1, 1])], [values("w", 4, 3, 1, 1)])


def save_inputs(tmp_path, shape, count=2):
    iterations = [{"x": encode_array(np.random.RandomState(i).rand(*shape).astype(np.float32))} for i in range(count)]
    (tmp_path / "i.json").write_text(json.dumps(iterations))


def test_an_engine_knows_the_shapes_that_it_was_built_for(run, tmp_path):
    save(tmp_path, dynamic_pooling())
    save_inputs(tmp_path, (1, 3, 6, 8))
    made = run("convert", "m.onnx", "--fp16", "--load-inputs", "i.json", "-o", "m.plan")
    assert made.code == 0, made
    shown = run("inspect", "model", "m.plan")
    assert shown.code == 0 and "estimated on the target" in shown.text, shown
    assert run("run", "m.plan", "--trt", "--load-inputs", "i.json").code == 0
    for words in (["--save-exclusions", "e.json"], ["--print-commands"]):
        refused = run("convert", "m.onnx", "--fp16", "--load-inputs", "i.json", "-o", "n.plan", *words)
        assert refused.code == 1 and "expected a typed model to write, got an engine" in refused.text, refused
    assert not (tmp_path / "n.plan").exists()


def test_an_engine_has_the_io_types_asked_for(run, tmp_path):
    save(tmp_path, needs_constraints())
    assert run("convert", "m.onnx", "--fp16", "--io-types", "x:float16", "-o", "m.plan").code == 0
    assert "x [dtype=float16" in run("inspect", "model", "m.plan").text
    refused = run("convert", "m.onnx", "--fp16", "--io-types", "xx:float16", "-o", "n.plan")
    assert refused.code == 1 and "expected an input or output of the network, got 'xx'; did you mean 'x'" in refused.text, refused
    refused = run("convert", "m.onnx", "--fp16", "--io-types", "x:int8", "-o", "n.plan")
    assert refused.code == 1 and "expected a change between float32" in refused.text, refused


def test_an_answer_brings_its_inputs(run, tmp_path):
    save(tmp_path, dynamic_pooling())
    save_inputs(tmp_path, (1, 3, 6, 8))
    found = run("precision", "search", "m.onnx", "--fp16", "--load-inputs", "i.json", "--metric", "rel-l2", "--threshold", "0.9",
                "--save-answer", "a.json", "--no-journal", "--no-hold-out")
    assert found.code == 0, found
    converted = run("convert", "m.onnx", "--answer", "a.json", "-o", "t.onnx")
    assert_converted(converted)
    assert "Loading input data from i.json" in converted.text, converted
    (tmp_path / "i.json").unlink()
    outcome = run("convert", "m.onnx", "--answer", "a.json", "-o", "u.onnx", "--input-shapes", "x:[1,3,6,8]")
    assert_converted(outcome)
    missing = run("convert", "m.onnx", "--answer", "a.json", "-o", "v.onnx")
    assert missing.code == 1 and "'i.json', which the search read inputs from, is not there" in missing.text, missing


def test_a_search_that_keeps_every_layer_writes_no_typed_model(run, tmp_path):
    save(tmp_path, dynamic_pooling())
    save_inputs(tmp_path, (1, 3, 6, 8))
    found = run("precision", "search", "m.onnx", "--fp16", "--load-inputs", "i.json", "--metric", "rel-l2", "--threshold", "1e-12",
                "--save-onnx", "t.onnx", "--save-answer", "a.json", "--no-journal", "--no-hold-out")
    answer = json.loads((tmp_path / "a.json").read_text())
    assert answer["verdict"] == "found" and len(answer["layers"]) == answer["candidates"]
    assert found.code == 0 and "every layer is kept" in found.text, found
    assert not (tmp_path / "t.onnx").exists()


def test_the_script_has_the_types_of_an_int8_choice(run, tmp_path):
    save(tmp_path, between_kept_layers())
    outcome = run("convert", "m.onnx", "--int8", "--fp16", "--layer-precisions", "second:float16", "--keep", "gate", "-o", "t.onnx",
                  "--calibration-cache", "c", "--save-postprocess-script", "p.py")
    assert_converted(outcome)
    script = (tmp_path / "p.py").read_text()
    assert '"second": trt.float16,' in script and '"gate": trt.float32,' in script and '"first"' not in script
    assert "--trt --fp16 --int8 --calibration-cache" in script
    with_script = run("run", "m.onnx", "--trt", "--fp16", "--int8", "--calibration-cache", "c", "--assume-lowest",
                      "--precision-constraints", "obey", "--trt-npps", "p.py", "-v")
    assert with_script.code == 0, with_script
    lines = {name: line for line in with_script.out.splitlines() for name in ("first", "second", "gate") if f"{name} [" in line}
    assert "| fp16" in lines["second"] and "| fp32" in lines["gate"] and "| int8" in lines["first"], lines


def test_external_data_moves_along(run, tmp_path):
    onnx.save(shared_initializer(), tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "out").mkdir()
    assert_converted(run("convert", "m.onnx", "--fp16", "--keep", "high", "-o", "out/t.onnx"))
    assert os.listdir(tmp_path / "out") == ["t.onnx"]


def half_model():
    return model([helper.make_node("Relu", ["x"], ["y"], name="relu")], [info("x", [2], HALF)], [info("y", [2], HALF)])


@pytest.mark.parametrize("words,text", [
    (["--fp16", "--keep", "Ad"], "did you mean"),
    (["--fp16", "--keep", "nothing*"], "expected a layer"),
    (["--fp16", "--keep", "Add", "--lower", "A*"], "--keep and --lower both mean it"),
    (["--fp16", "--keep", "Add", "--layer-precisions", "Add:float16"], "disagree"),
    (["--fp16", "--layer-precisions", "Add:float15"], "expected <layer>:"),
    (["--fp16", "--keep", "*"], "expected layers to lower"),
    ([], "expected a type to lower"),
    (["--fp16", "--calibration-cache", "c"], "expected --int8 too"),
    (["--fp16", "--io-types", "add:float16"], "expected an input or output"),
    (["--fp16", "--io-types", "x:int8"], "expected a change between"),
    (["--fp16", "--relax"], "expected a tolerance that the outputs must stay within"),
    (["--fp16", "--relax", "--rtol", "0.1", "--lower", "Add"], "--relax and --lower contradict"),
    (["--fp16", "--rtol", "0.1"], "expected --relax too"),
    (["--fp16", "--save-answer", "a.json"], "expected --answer too"),
])
def test_mistakes(run, tmp_path, words, text):
    save(tmp_path, needs_constraints())
    outcome = run("convert", "m.onnx", *words, "-o", "t.onnx")
    assert outcome.code == 1 and text in outcome.text, outcome
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_a_model_that_is_narrow_already(run, tmp_path):
    save(tmp_path, half_model())
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx")
    assert outcome.code == 1 and "narrow types in the file already; try the float32 model" in outcome.text, outcome


def test_bfloat16_needs_opset_13(run, tmp_path):
    for axis in (1, 0):
        save(tmp_path, model([helper.make_node("Softmax", ["x"], ["y"], name="softmax", axis=axis)], [info("x", [2, 3])], [info("y", [2, 3])], opset=11))
        outcome = run("convert", "m.onnx", "--bf16", "-o", "t.onnx")
        if axis == 1:
            assert_converted(outcome)
        else:
            assert outcome.code == 1 and "opset 11 has no bfloat16" in outcome.text, outcome


def test_places_that_cannot_be_written(run, tmp_path):
    save(tmp_path, needs_constraints())
    assert run("convert", "m.onnx", "--fp16", "-o", "m.onnx").code == 1
    assert run("convert", "m.onnx", "--fp16", "-o", "/proc/t.onnx").code == 1
    (tmp_path / "file").write_text("")
    outcome = run("convert", "m.onnx", "--fp16", "-o", "file/t.onnx")
    assert outcome.code == 1 and "cannot write there" in outcome.text, outcome
    assert sorted(os.listdir(tmp_path)) == ["file", "m.onnx"]


def test_what_is_no_file_is_not_replaced(run, tmp_path):
    save(tmp_path, needs_constraints())
    os.mkfifo(tmp_path / "pipe")
    for where in ("pipe", "/dev/null"):
        outcome = run("convert", "m.onnx", "--fp16", "-o", where)
        assert outcome.code == 1 and "got a device or pipe" in outcome.text, outcome
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "behind").write_text("before")
    (tmp_path / "link.onnx").symlink_to("behind")
    assert_converted(run("convert", "m.onnx", "--fp16", "-o", "link.onnx"))
    assert (tmp_path / "link.onnx").is_symlink() and len(onnx.load(tmp_path / "behind").graph.node) > 0


def test_a_full_disk_leaves_the_old_file(binary, tmp_path):
    save(tmp_path, needs_constraints())
    (tmp_path / "t.onnx").write_text("before")
    limited = f"ulimit -f 16; exec {binary} convert m.onnx --fp16 -o t.onnx --no-python-checks"
    outcome = subprocess.run(["bash", "-c", f"trap '' XFSZ; {limited}"], cwd=tmp_path, text=True, capture_output=True)
    assert outcome.returncode == 1 and "cannot write it" in outcome.stdout + outcome.stderr, outcome
    assert (tmp_path / "t.onnx").read_text() == "before"
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "t.onnx"]


@pytest.mark.skipif(not os.environ.get("ULPSCOPE_SLOW_TESTS"), reason="needs 8 GB of disk: ULPSCOPE_SLOW_TESTS=1")
def test_more_than_2_gb(run, tmp_path):
    """Weights of 4.3 GB in external data; half of that is still more than a model file can hold."""
    rows, columns = 8192, 16384
    made = model([helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"], name=f"m{i}") for i in range(8)],
                 [info("x0", [1, rows])], [info("x8", [1, rows])])
    with open(tmp_path / "w.bin", "wb") as data:
        for i in range(8):
            shape = (rows, columns) if i % 2 == 0 else (columns, rows)
            tensor = made.graph.initializer.add(name=f"w{i}", data_type=FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
            for key, value in (("location", "w.bin"), ("offset", str(data.tell())), ("length", str(rows * columns * 4))):
                tensor.external_data.add(key=key, value=value)
            row = (np.arange(shape[1], dtype=np.float32) % 7 - 3) / 4096
            for _ in range(0, shape[0], 64):
                data.write(np.tile(row, (64, 1)).tobytes())
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx", "--no-python-checks", timeout=1000)
    assert outcome.code == 0, outcome
    assert (tmp_path / "t.onnx.data").stat().st_size >= rows * columns * 8 * 2
