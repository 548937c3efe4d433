"""Models with If, Loop and Scan whose bodies compute, for tests of what is lowered and kept there."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from convert_support import info, model, values

INT, BOOL = TensorProto.INT64, TensorProto.BOOL


def body(name, nodes, inputs, outputs, initializers=()):
    return helper.make_graph(nodes, name, inputs, outputs, list(initializers))


def branches():
    """Both branches read a sum and a weight from around them; one has a constant of its own, one passes its input."""
    then = body("then", [helper.make_node("MatMul", ["sum", "w"], ["t1"], name="then/product"),
                         helper.make_node("Add", ["t1", "own"], ["t2"], name="then/add")],
                [], [info("t2", [2, 4])], [values("own", 4)])
    other = body(
        "else",
        [
            helper.make_node("Constant", [], ["two"], name="two", value=numpy_helper.from_array(np.float32(2))),
            helper.make_node("MatMul", ["sum", "w"], ["e1"], name="else/product"),
            helper.make_node("Mul", ["e1", "two"], ["e2"], name="else/mul"),
        ],
        [],
        [info("e2", [2, 4])],
    )
    nodes = [helper.make_node("MatMul", ["x", "w"], ["product"], name="product"),
             helper.make_node("Add", ["product", "b"], ["sum"], name="sum"),
             helper.make_node("If", ["choice"], ["chosen"], name="if", then_branch=then, else_branch=other),
             helper.make_node("Tanh", ["chosen"], ["y"], name="tanh")]
    return model(
        nodes, [info("x", [2, 4]), info("choice", [], BOOL)], [info("y", [2, 4])], [values("w", 4, 4), values("b", 4)]
    )


def loop(trips=3):
    """A recurrence: a state that goes from trip to trip, a weight and a value from outside, and a scan output."""
    inner = body("body", [helper.make_node("MatMul", ["h", "w"], ["hw"], name="loop/product"),
                          helper.make_node("Add", ["hw", "gain"], ["sum"], name="loop/add"),
                          helper.make_node("Tanh", ["sum"], ["h_next"], name="loop/tanh"),
                          helper.make_node("ReduceSum", ["h_next"], ["total"], name="loop/total", keepdims=0),
                          helper.make_node("Identity", ["going"], ["going_on"], name="loop/going")],
                 [info("i", [], INT), info("going", [], BOOL), info("h", [2, 4])],
                 [info("going_on", [], BOOL), info("h_next", [2, 4]), info("total", [])])
    nodes = [helper.make_node("Mul", ["x", "two"], ["gain"], name="gain"),
             helper.make_node("Loop", ["trips", "", "x"], ["last", "totals"], name="loop", body=inner),
             helper.make_node("Softmax", ["last"], ["y"], name="softmax")]
    weights = [
        values("w", 4, 4, scale=1.0),
        numpy_helper.from_array(np.float32(2), "two"),
        numpy_helper.from_array(np.int64(trips), "trips"),
    ]
    return model(nodes, [info("x", [2, 4])], [info("y", [2, 4]), info("totals", [None])], weights)


def scan():
    """Two states, one of them in the type of the sums, and outputs along the first axis."""
    inner = body("body", [helper.make_node("Mul", ["e", "scale"], ["scaled"], name="scan/mul"),
                          helper.make_node("Add", ["s", "scaled"], ["s_next"], name="scan/add"),
                          helper.make_node("Max", ["m", "s_next"], ["m_next"], name="scan/max"),
                          helper.make_node("Exp", ["m_next"], ["out"], name="scan/exp")],
                 [info("s", [4]), info("m", [4]), info("e", [4])],
                 [info("s_next", [4]), info("m_next", [4]), info("out", [4])])
    nodes = [
        helper.make_node(
            "Scan", ["zero", "zero", "x"], ["sum", "top", "all"], name="scan", body=inner, num_scan_inputs=1
        ),
        helper.make_node("MatMul", ["all", "w"], ["y"], name="product"),
    ]
    weights = [
        numpy_helper.from_array(np.zeros(4, np.float32), "zero"),
        numpy_helper.from_array(np.float32(0.37), "scale"),
        values("w", 4, 4),
    ]
    return model(nodes, [info("x", [5, 4])], [info("sum", [4]), info("top", [4]), info("y", [5, 4])], weights)


def nested():
    """An If in a Loop; both capture from the outermost graph."""
    branch = [
        body(
            name,
            [
                helper.make_node("MatMul", ["h", "w"], [f"{name}_p"], name=f"{name}/product"),
                helper.make_node(op, [f"{name}_p", "x"], [f"{name}_o"], name=f"{name}/{op}"),
            ],
            [],
            [info(f"{name}_o", [2, 4])],
        )
        for name, op in (("first", "Add"), ("later", "Sub"))
    ]
    inner = body(
        "body",
        [
            helper.make_node("Equal", ["i", "zero"], ["is_first"], name="is_first"),
            helper.make_node("If", ["is_first"], ["mixed"], name="inner", then_branch=branch[0], else_branch=branch[1]),
            helper.make_node("Sigmoid", ["mixed"], ["h_next"], name="sigmoid"),
            helper.make_node("Identity", ["going"], ["going_on"]),
        ],
        [info("i", [], INT), info("going", [], BOOL), info("h", [2, 4])],
        [info("going_on", [], BOOL), info("h_next", [2, 4])],
    )
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y"], name="outer", body=inner)]
    weights = [
        values("w", 4, 4, scale=1.0),
        numpy_helper.from_array(np.int64(3), "trips"),
        numpy_helper.from_array(np.int64(0), "zero"),
    ]
    return model(nodes, [info("x", [2, 4])], [info("y", [2, 4])], weights)


def image_branch():
    """A convolution with a BatchNormalization that goes into it, and movement, in a body."""
    then = body(
        "then",
        [
            helper.make_node("Conv", ["x", "k"], ["c"], name="conv", pads=[1, 1, 1, 1]),
            helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"], name="norm"),
            helper.make_node("Relu", ["n"], ["r"], name="relu"),
            helper.make_node("Transpose", ["r"], ["t"], name="turn", perm=[0, 1, 3, 2]),
        ],
        [],
        [info("t", [1, 3, 6, 6])],
    )
    other = body("else", [helper.make_node("Abs", ["x"], ["a"], name="abs")], [], [info("a", [1, 3, 6, 6])])
    nodes = [helper.make_node("If", ["choice"], ["y"], name="if", then_branch=then, else_branch=other)]
    weights = [
        values("k", 3, 3, 3, 3),
        values("scale", 3),
        values("shift", 3),
        values("mean", 3),
        numpy_helper.from_array(np.full(3, 2, np.float32), "var"),
    ]
    return model(nodes, [info("x", [1, 3, 6, 6]), info("choice", [], BOOL)], [info("y", [1, 3, 6, 6])], weights)


def growing():
    """A state that is longer after each trip."""
    inner = body(
        "body",
        [
            helper.make_node("Mul", ["g", "half"], ["scaled"], name="grow/mul"),
            helper.make_node("Concat", ["scaled", "x"], ["longer"], name="grow/concat", axis=0),
            helper.make_node("Identity", ["going"], ["going_on"]),
        ],
        [info("i", [], INT), info("going", [], BOOL), info("g", None)],
        [info("going_on", [], BOOL), info("longer", None)],
    )
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["last"], name="grow", body=inner),
             helper.make_node("ReduceSum", ["last"], ["y"], name="total", keepdims=0)]
    weights = [numpy_helper.from_array(np.float32(0.51), "half"), numpy_helper.from_array(np.int64(3), "trips")]
    return model(nodes, [info("x", [2, 4])], [info("y", [])], weights)


def decided_inside():
    """A Loop that ends where a norm is small: the comparison reads what a lowered layer computes."""
    inner = body(
        "body",
        [
            helper.make_node("MatMul", ["h", "w"], ["h_next"], name="loop/product"),
            helper.make_node("ReduceL2", ["h_next"], ["norm"], name="loop/norm", keepdims=0),
            helper.make_node("Greater", ["norm", "least"], ["going_on"], name="loop/greater"),
        ],
        [info("i", [], INT), info("going", [], BOOL), info("h", [2, 4])],
        [info("going_on", [], BOOL), info("h_next", [2, 4])],
    )
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y"], name="loop", body=inner)]
    weights = [
        values("w", 4, 4),
        numpy_helper.from_array(np.int64(10), "trips"),
        numpy_helper.from_array(np.float32(0.2), "least"),
    ]
    return model(nodes, [info("x", [2, 4])], [info("y", [2, 4])], weights)


def cancels_inside():
    """Right in float32, wrong where the sum inside of the Loop is stored as float16."""
    inner = body(
        "body",
        [
            helper.make_node("MatMul", ["h", "w"], ["p"], name="loop/product"),
            helper.make_node("Add", ["p", "large"], ["a"], name="loop/add"),
            helper.make_node("MatMul", ["a", "w"], ["turned"], name="loop/again"),
            helper.make_node("Sub", ["turned", "large"], ["h_next"], name="loop/sub"),
            helper.make_node("Identity", ["going"], ["going_on"]),
        ],
        [info("i", [], INT), info("going", [], BOOL), info("h", [2, 4])],
        [info("going_on", [], BOOL), info("h_next", [2, 4])],
    )
    nodes = [helper.make_node("MatMul", ["x", "w"], ["start"], name="start"),
             helper.make_node("Loop", ["trips", "", "start"], ["last"], name="loop", body=inner),
             helper.make_node("MatMul", ["last", "w"], ["y"], name="end")]
    weights = [
        numpy_helper.from_array(np.rot90(np.eye(4, dtype=np.float32)).copy(), "w"),
        numpy_helper.from_array(np.float32(4096), "large"),
        numpy_helper.from_array(np.int64(2), "trips"),
    ]
    return model(nodes, [info("x", [2, 4])], [info("y", [2, 4])], weights)


MODELS = {each.__name__: each for each in (branches, loop, scan, nested, image_branch, growing, decided_inside)}
MODELS["no_trip"] = lambda: loop(0)
