"""Models for tests of `ulpscope convert`, and what is asserted of every conversion."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cli_support import needs_constraints


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
