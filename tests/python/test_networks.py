"""Small networks, each once computed wrongly, against ONNX Runtime at every fusion level, or against a written rule."""

from __future__ import annotations

import threading

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import ulpscope

LEVELS = ("none", "pointwise", "full")
node = helper.make_node
ort.set_default_logger_severity(4)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    return np.abs(random(*shape, seed=seed)) + np.float32(0.5)


def model_of(nodes, feed, weights=(), opset=17, outputs=("z",), dynamic=()) -> bytes:
    def info(name: str, array: np.ndarray):
        shape = [f"{name}{d}" if name in dynamic else size for d, size in enumerate(array.shape)]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)

    graph = helper.make_graph(
        nodes,
        "graph",
        [info(name, np.asarray(array)) for name, array in feed.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(weights).items()],
    )
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=9).SerializeToString()


def reference(model: bytes, feed) -> np.ndarray:
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)[0]


def run(model: bytes, feed, **options) -> np.ndarray:
    return next(iter(ulpscope.Engine(model, **options).run(feed).values()))


def agrees(model: bytes, feed, levels=LEVELS) -> None:
    expected = reference(model, feed)
    for fusion in levels:
        actual = run(model, feed, fusion=fusion, threads=1)
        assert actual.shape == expected.shape, fusion
        tolerance = 1e-5 * max(1.0, float(np.nanmax(np.abs(expected), initial=0)))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance, err_msg=f"fusion {fusion}")


def half(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16).astype(np.float32)


LAST, HALF = {"a": np.array([-1])}, np.array(0.5, np.float32)

# name: nodes, inputs, weights, opset
NETWORKS = {
    "a bound of Clip that is an input": (
        [node("MatMul", ["x", "w"], ["y"]), node("Clip", ["y", "", "hi"], ["z"])],
        {"x": random(4, 8), "hi": HALF},
        {"w": random(8, 8)},
        17,
    ),
    "a bound of Clip that is computed, behind a convolution": (
        [
            node("Conv", ["x", "w"], ["y"]),
            node("ReduceMean", ["x"], ["m"], keepdims=0),
            node("Clip", ["y", "m"], ["c"]),
            node("Tanh", ["c"], ["z"]),
        ],
        {"x": random(1, 3, 5, 5)},
        {"w": random(4, 3, 3, 3)},
        17,
    ),
    "a sum without keepdims that broadcasts along columns": (
        [node("ReduceSum", ["x", "a"], ["s"], keepdims=0), node("Mul", ["x", "s"], ["z"])],
        {"x": random(4, 4)},
        LAST,
        17,
    ),
    "the same with a batch of one": (
        [node("ReduceSum", ["x", "a"], ["s"], keepdims=0), node("Mul", ["x", "s"], ["z"])],
        {"x": random(1, 4, 4)},
        LAST,
        17,
    ),
    "the mean of two axes without keepdims": (
        [node("ReduceMean", ["x"], ["s"], axes=[2, 3], keepdims=0), node("Max", ["x", "s"], ["z"])],
        {"x": random(1, 2, 8, 2)},
        {},
        17,
    ),
    "a sum of everything without keepdims": (
        [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Mul", ["x", "s"], ["z"])],
        {"x": random(2, 3)},
        {},
        17,
    ),
    "a maximum without keepdims in front of attention": (
        [
            node("ReduceL2", ["x"], ["s"], axes=[2, 3], keepdims=0),
            node("Max", ["x", "s"], ["q"]),
            node("MatMul", ["q", "k"], ["y"]),
            node("Softmax", ["y"], ["p"]),
            node("MatMul", ["p", "v"], ["z"]),
        ],
        {"x": random(4, 1, 4, 4)},
        {"k": random(4, 4), "v": random(4, 4, seed=1)},
        17,
    ),
    "one tensor as row operand and scale of channels": (
        [node("Add", ["x", "t"], ["y"]), node("InstanceNormalization", ["y", "t", "b"], ["z"])],
        {"x": random(2, 5, 5), "t": random(5), "b": random(5, seed=1)},
        {},
        17,
    ),
    "one tensor as scale of channels and row operand": (
        [node("InstanceNormalization", ["x", "t", "t"], ["y"]), node("Add", ["y", "t"], ["z"])],
        {"x": random(2, 5, 5), "t": random(5)},
        {},
        17,
    ),
    "BatchNormalization per element": (
        [node("BatchNormalization", ["x", *"abcd"], ["z"], spatial=0)],
        {"x": random(2, 3, 4)},
        {name: positive(3, 4, seed=i) for i, name in enumerate("abcd")},
        7,
    ),
    "BatchNormalization per element behind a convolution": (
        [node("Conv", ["x", "w"], ["y"]), node("BatchNormalization", ["y", *"abcd"], ["z"], spatial=0)],
        {"x": random(2, 3, 6)},
        {"w": random(3, 3, 3)} | {name: positive(3, 4, seed=i) for i, name in enumerate("abcd")},
        8,
    ),
    "BatchNormalization of one value per row": (
        [node("ReduceMin", ["x"], ["t"], axes=[1]), node("BatchNormalization", ["t", *"abcd"], ["z"])],
        {"x": random(10, 2)},
        {name: positive(1, seed=i) for i, name in enumerate("abcd")},
        17,
    ),
    "BatchNormalization of one value per channel": (
        [node("ReduceMax", ["x"], ["t"], axes=[2, 3]), node("BatchNormalization", ["t", *"abcd"], ["z"])],
        {"x": random(2, 3, 4, 5)},
        {name: positive(3, seed=i) for i, name in enumerate("abcd")},
        17,
    ),
    "a Slice that starts before the first element and goes backwards": (
        [node("Slice", ["x", "s", "e", "a", "t"], ["z"])],
        {"x": random(5)},
        {"s": np.array([-6]), "e": np.array([-(2**31)]), "a": np.array([0]), "t": np.array([-1])},
        17,
    ),
}
for op, domain, second, attributes in (
    ("BiasGelu", "com.microsoft", ["b"], {}),
    ("FastGelu", "com.microsoft", ["b"], {}),
    ("FastGelu", "com.microsoft", [], {}),
    ("QuickGelu", "com.microsoft", [], {}),
    ("Mod", "", ["b"], {"fmod": 1}),
    ("Shrink", "", [], {"lambd": 0.3, "bias": 0.1}),
):
    NETWORKS[f"{op} of {1 + len(second)} behind a product"] = (
        [
            node("MatMul", ["x", "w"], ["y"]),
            node(op, ["y", *second], ["g"], domain=domain, **attributes),
            node("Neg", ["g"], ["z"]),
        ],
        {"x": random(4, 8)},
        {"w": random(8, 8), **({"b": random(8)} if second else {})},
        17,
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_agrees_with_onnx_runtime(name: str) -> None:
    nodes, feed, weights, opset = NETWORKS[name]
    agrees(model_of(nodes, feed, weights, opset), feed)


EMPTY = {"ReduceSum": 0, "ReduceL1": 0, "ReduceL2": 0, "ReduceSumSquare": 0, "ReduceMean": np.nan, "ReduceMax": -np.inf}


@pytest.mark.parametrize("op", [*EMPTY, "ReduceMin"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions_of_nothing(op: str, keepdims: int) -> None:
    model = model_of([node(op, ["x", "a"], ["z"], keepdims=keepdims)], {"x": np.zeros((3, 0), np.float32)}, LAST, opset=18)
    for fusion in LEVELS:
        actual = run(model, {"x": np.zeros((3, 0), np.float32)}, fusion=fusion)
        assert actual.shape == ((3, 1) if keepdims else (3,))
        np.testing.assert_array_equal(actual, np.full_like(actual, EMPTY.get(op, np.inf)))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("channels", [(240, 128), (256, 128), (512, 64)])
@pytest.mark.parametrize("kernel, stride, pad", [(4, 2, 1), (4, 4, 0), (6, 2, 2), (3, 2, 1), (2, 2, 0), (3, 1, 1)])
def test_transposed_convolutions_add_their_bias_once(batch, channels, kernel, stride, pad) -> None:
    x, w, b = random(batch, channels[0], 8, 8), random(*channels, kernel, kernel), random(channels[1]) * 100
    convolution = node("ConvTranspose", ["x", "w", "b"], ["z"], strides=[stride] * 2, pads=[pad] * 4)
    agrees(model_of([convolution], {"x": x}, {"w": w, "b": b}), {"x": x}, levels=["full"])


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_normalization_goes_into_the_weights_of_a_convolution(dims: int, bias: bool) -> None:
    x, w = random(1, 3, *[5] * dims), random(4, 3, *[3] * dims)
    own = random(4) if bias else np.zeros(4, np.float32)
    p = {name: positive(4, seed=i) for i, name in enumerate("abcd")}
    scale = p["a"].astype(float) / np.sqrt(p["d"].astype(float) + 1e-5)
    column = (4,) + (1,) * (dims + 1)
    folded = {
        "w": half(w * scale.astype(np.float32).reshape(column)),
        "own": half(((own - p["c"]) * scale + p["b"]).astype(np.float32)),
    }
    expected = reference(model_of([node("Conv", ["x", "w", "own"], ["z"])], {"x": x}, folded), {"x": half(x)})
    nodes = [
        node("Conv", ["x", "w", "own"] if bias else ["x", "w"], ["y"]),
        node("BatchNormalization", ["y", *"abcd"], ["z"]),
    ]
    model = model_of(nodes, {"x": x}, {"w": w, **p, **({"own": own} if bias else {})})
    actual = run(model, {"x": x}, precision="fp16")
    # To one unit in the last place: sums in another order meet a tie.
    np.testing.assert_allclose(actual, half(expected), rtol=2**-10, atol=1e-4)
    assert (actual != half(expected)).mean() < 0.02


AFTER = {"Relu": ([], "", {}), "FastGelu": ([], "com.microsoft", {}), "Shrink": ([], "", {}), "Mod": (["k"], "", {"fmod": 1})}


@pytest.mark.parametrize("op", AFTER)
@pytest.mark.parametrize("product", [False, True])
def test_values_are_unrounded_inside_of_their_group(op: str, product: bool) -> None:
    """(x + 32752) - 32752 in fp16 is 20 where the sum is not rounded, else 16; another layer reads the sum, too."""
    second, domain, attributes = AFTER[op]
    eye, x = np.eye(4, dtype=np.float32), np.full((4, 4), 20, np.float32)
    nodes = [
        *([node("MatMul", ["x", "w"], ["p"])] if product else []),
        node("Add", ["p" if product else "x", "big"], ["a"]),
        node(op, ["a", *second], ["t"], domain=domain, **attributes),
        node("Sub", ["a", "big"], ["s"]),
        node("Max", ["s", "low"], ["z"]),
        node("Min", ["t", "low"], ["o"]),
        node("MatMul", ["a", "w"], ["outside"]),
    ]
    weights = {
        "big": np.full(1, 32752, np.float32),
        "low": np.full(1, -1, np.float32),
        "k": np.full(1, 100, np.float32),
        "w": eye,
    }
    model = model_of(nodes, {"x": x}, weights, outputs=("z", "o", "outside"))
    for fusion in ("pointwise", "full"):
        outputs = ulpscope.Engine(model, precision="fp16", fusion=fusion).run({"x": x})
        assert (outputs["z"] == 20).all(), fusion
        assert (outputs["outside"] == 32768).all(), fusion



def test_folded_constants_have_no_say_in_what_is_moved() -> None:
    """A Concat of an fp16 value and a constant is stored in fp16, also when the constant is computed from others."""
    c, x = np.full((1, 1), 0.5444286, np.float32), np.full((1, 1), 0.1, np.float32)
    for op, inputs, attributes in (("Concat", ["s", "k"], {"axis": 0}), ("ScatterElements", ["s", "i", "k"], {})):
        for maker in ("Identity", "Neg"):
            nodes = [
                node("Add", ["x", "x"], ["s"]),
                node(maker, ["c"], ["k"]),
                node(op, inputs, ["z"], **attributes),
            ]
            model = model_of(nodes, {"x": x}, {"c": c, "i": np.array([[0]])})
            actual = run(model, {"x": x}, precision="fp16", fusion="none")
            np.testing.assert_array_equal(actual, half(actual), err_msg=op)


@pytest.mark.parametrize("op", ["LayerNormalization", "Clip", "InstanceNormalization", "GRU"])
def test_computed_parameters_are_operands(op: str) -> None:
    """What a layer computes with is no computation of shapes: its makers are lowered."""
    x, y = random(2, 4, 4), random(4)
    feed, weights, nodes = {"x": x, "y": y}, {}, [node("Exp", ["y"], ["b"])]
    if op == "LayerNormalization":
        nodes += [node(op, ["x", "b"], ["z"])]
    elif op == "Clip":
        nodes += [node("ReduceMax", ["b"], ["m"], keepdims=0), node(op, ["x", "", "m"], ["z"])]
    elif op == "InstanceNormalization":
        nodes += [node(op, ["x", "b", "b"], ["z"])]
    else:
        weights = {"shape": np.array([1, 1, 4]), "reps": np.array([1, 12, 1]), "r": random(1, 12, 4)}
        nodes += [
            node("Reshape", ["b", "shape"], ["row"]),
            node("Tile", ["row", "reps"], ["w"]),
            node("GRU", ["x", "w", "r"], ["z"], hidden_size=4),
        ]
    engine = ulpscope.Engine(model_of(nodes, feed, weights), precision="fp16")
    assert {layer.op: layer.precision for layer in engine.layers}["Exp"] == "fp16"


@pytest.mark.parametrize("shape", [False, True])
def test_a_shape_that_is_known_reads_nothing(shape: bool) -> None:
    """An exporter's Shape of the scores leaves attention in one group: its bits are those without the Shape."""
    q, k, v = random(2, 8, 16), random(2, 16, 8), random(2, 8, 16, seed=1)
    weights = {"c": np.array(4, np.float32), "zero": np.array([0]), "rest": np.array([-1]), "two": np.array([2])}
    nodes = [
        node("MatMul", ["q", "k"], ["s"]),
        node("Mul", ["s", "c"], ["t"]),
        *([node("Shape", ["t"], ["sh"]), node("Gather", ["sh", "zero"], ["two"])] if shape else []),
        node("Softmax", ["t"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["u"]),
        node("Concat", ["two", "rest"], ["r"], axis=0),
        node("Reshape", ["u", "r"], ["z"]),
    ]
    if shape:
        del weights["two"]
    feed = {"q": q, "k": k, "v": v}
    engine = ulpscope.Engine(model_of(nodes, feed, weights), precision="fp16")
    actual = engine.run(feed)["z"]
    scores = np.matmul(half(q).astype(float), half(k)) * 4
    weighted = np.exp(scores - scores.max(-1, keepdims=True))
    weighted = half((weighted / weighted.sum(-1, keepdims=True)).astype(np.float32))
    expected = half(np.matmul(weighted.astype(float), half(v)).astype(np.float32)).reshape(2, -1)
    assert (actual != expected).mean() < 0.05  # Ties, and probabilities next to one.


def test_the_bias_of_integers_is_not_rounded() -> None:
    x, bias = random(4, 8), random(10)
    wq = np.random.default_rng(0).integers(-100, 100, (8, 10)).astype(np.int8)
    sx, sw = np.array(0.03, np.float32), np.random.default_rng(1).uniform(0.01, 0.02, 10).astype(np.float32)
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zero"], ["xq"]),
        node("DequantizeLinear", ["xq", "sx", "zero"], ["xd"]),
        node("DequantizeLinear", ["wq", "sw"], ["w"], axis=1),
        node("Gemm", ["xd", "w", "bias"], ["z"]),
    ]
    weights = {"sx": sx, "zero": np.array(0, np.int8), "wq": wq, "sw": sw, "bias": bias}
    integers = np.clip(np.rint(x / sx), -128, 127).astype(np.int64) @ wq.astype(np.int64)
    expected = half(integers.astype(np.float32) * (sx * sw) + bias)
    for fusion in LEVELS:
        actual = run(model_of(nodes, {"x": x}, weights), {"x": x}, precision="fp16", fusion=fusion)
        np.testing.assert_array_equal(actual, expected)


WIDE_CONVOLUTION = (
    [node("Conv", ["x", "w"], ["z"], group=16, pads=[64, 64])],
    {"x": random(1, 64, 100)},
    {"w": random(64, 4, 128)},
)


def test_runs_in_other_threads_than_the_first() -> None:
    nodes, feed, weights = WIDE_CONVOLUTION
    engine, outputs = ulpscope.Engine(model_of(nodes, feed, weights), threads=1), []
    outputs.append(engine.run(feed)["z"])
    thread = threading.Thread(target=lambda: outputs.append(engine.run(feed)["z"]))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(*outputs)


def test_bodies_are_made_by_several_threads_at_once() -> None:
    def body(name: str):
        nodes = [node("MatMul", ["x", "w"], ["a" + name]), node("Relu", ["a" + name], ["b" + name])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info("b" + name, TensorProto.FLOAT, None)])

    feeds = [{"x": random(n, 16), "c": np.array(True)} for n in range(1, 5)]
    nodes = [node("If", ["c"], ["y"], then_branch=body("t"), else_branch=body("e")), node("Tanh", ["y"], ["z"])]
    w = random(16, 16)
    model = model_of(nodes, feeds[0], {"w": w}, dynamic=["x"])
    for _ in range(200):
        engine, gate, outputs = ulpscope.Engine(model, threads=1), threading.Barrier(len(feeds)), {}

        def work(i: int, engine=engine, gate=gate, outputs=outputs) -> None:
            gate.wait()
            outputs[i] = engine.run(feeds[i])["z"]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(feeds))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i, feed in enumerate(feeds):
            np.testing.assert_allclose(outputs[i], np.tanh(np.maximum(feed["x"] @ w, 0)), atol=1e-5)


def convolution(op: str, x: tuple[int, ...], w: tuple[int, ...], **attributes):
    return [node(op, ["x", "w"], ["z"], **attributes)], {"x": random(*x)}, {"w": random(*w)}


THREADED = {
    "Gemm of a transposed vector": (
        [node("Gemm", ["x", "w"], ["z"], transA=1, transB=1)],
        {"x": random(2401, 1)},
        {"w": random(7, 2401)},
    ),
    "Gemm of a transposed matrix": (
        [node("Gemm", ["x", "w"], ["z"], transA=1)],
        {"x": random(4096, 15)},
        {"w": random(4096, 128)},
    ),
    "Conv of few rows": convolution("Conv", (1, 257, 5, 5), (16, 257, 5, 5), pads=[0, 3, 0, 2], strides=[2, 2]),
    "Conv of a row": convolution("Conv", (1, 24, 4), (1, 24, 2), pads=[1, 0]),
    "Conv of a long row": convolution("Conv", (1, 32, 350), (96, 32, 25), strides=[3], pads=[22, 0]),
    "ConvTranspose to one channel": convolution("ConvTranspose", (1, 33, 1, 3), (33, 1, 1, 3)),
    "ConvTranspose of a row": convolution("ConvTranspose", (1, 7, 7), (7, 3, 3)),
    "ConvTranspose of a padded row": convolution("ConvTranspose", (1, 8, 14), (8, 8, 4), pads=[0, 1]),
    "ConvTranspose of a batch": convolution("ConvTranspose", (2, 6, 2), (6, 24, 2)),
    "ConvTranspose with strides": convolution(
        "ConvTranspose", (1, 240, 9, 9), (240, 1, 4, 4), pads=[1, 1, 1, 1], strides=[2, 2]
    ),
    "ConvTranspose of two groups": convolution(
        "ConvTranspose", (3, 8, 12, 29), (8, 12, 2, 4), pads=[1, 2, 1, 2], strides=[3, 1], group=2
    ),
}


@pytest.mark.parametrize("name", THREADED)
def test_bits_do_not_depend_on_threads(name: str) -> None:
    nodes, feed, weights = THREADED[name]
    model = model_of(nodes, feed, weights)
    expected = run(model, feed, threads=1)
    agrees(model, feed, levels=["full"])
    for threads in (2, 3, 4, 8):
        np.testing.assert_array_equal(run(model, feed, threads=threads), expected)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("seed", range(30))
def test_convolutions_of_any_shape(op: str, seed: int) -> None:
    """Every fast kernel against ONNX Runtime, and the same bits for every number of threads."""
    dice = np.random.default_rng(seed)
    dims, groups = int(dice.integers(1, 3)), int(dice.choice([1, 1, 1, 2, 4]))
    c_in, c_out = (groups * int(c) for c in dice.choice([1, 2, 3, 7, 8, 16, 17, 31, 32, 64, 96], 2))
    kernel, size = dice.integers(1, 6, dims), dice.integers(6, 30, dims)
    attributes = {
        "strides": [int(s) for s in dice.integers(1, 4, dims)],
        "pads": [int(p) for p in dice.integers(0, np.concatenate([kernel, kernel]))],
        "group": groups,
    }
    if op == "Conv":
        attributes["dilations"] = [int(d) for d in dice.integers(1, 3, dims)]
        size += 8
    shape = (c_out, c_in // groups, *kernel) if op == "Conv" else (c_in, c_out // groups, *kernel)
    feed, weights = {"x": random(int(dice.integers(1, 4)), c_in, *size)}, {"w": random(*shape), "b": random(c_out)}
    model = model_of([node(op, ["x", "w", "b"], ["z"], **attributes)], feed, weights)
    agrees(model, feed, levels=["full"])
    expected = run(model, feed, threads=1)
    for threads in (2, 3):
        np.testing.assert_array_equal(run(model, feed, threads=threads), expected, err_msg=f"{op} {shape} {attributes}")
