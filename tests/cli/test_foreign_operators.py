"""Operators that ulpscope does not have run in ONNX Runtime, layer by layer: judged by ONNX Runtime on whole models, and by NumPy."""
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from search_support import answer_of

ort = pytest.importorskip("onnxruntime")
FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
MICROSOFT = {"domain": "com.microsoft"}
N = 24


def save(path, nodes, inputs, outputs, constants=(), types=FLOAT):
    infos = [[helper.make_tensor_value_info(name, types, shape) for name, shape in each.items()] for each in (inputs, outputs)]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", *infos, tensors), opset_imports=opsets, ir_version=8), path)


def distances(path):
    """Distances in the middle, and a sum that float16 does not hold."""
    random = np.random.default_rng(0)
    constants = {f"w{i}": random.normal(0, N ** -0.5, (N, N)).astype(np.float32) for i in range(2)}
    constants |= {"points": random.normal(0, 1, (N, N)).astype(np.float32), "big": np.full(1, 3000, np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["a"], "First"),
             helper.make_node("CDist", ["a", "points"], ["b"], "Distances", metric="euclidean", **MICROSOFT),
             helper.make_node("Add", ["b", "big"], ["c"], "Raise"), helper.make_node("Sub", ["c", "big"], ["d"], "Lower"),
             helper.make_node("MatMul", ["d", "w1"], ["y"], "Second")]
    save(path, nodes, {"x": ["batch", N]}, {"y": ["batch", N]}, constants)
    np.savez(path.parent / "in.npz", x=np.random.default_rng(1).uniform(-1, 1, (6, 4, N)).astype(np.float32))
    return constants


def outputs_of(run, tmp_path, *words):
    """What `run --trt` computes and saves."""
    done = run("run", "m.onnx", "--trt", "--save-outputs", "out.json", *words)
    assert done.code == 0, done
    from polygraphy.comparator import RunResults
    ((_, iterations),) = RunResults.load(str(tmp_path / "out.json"))
    return done, [dict(iteration) for iteration in iterations]


def test_a_layer_in_the_middle(run, tmp_path):
    constants = distances(tmp_path / "m.onnx")
    done, outputs = outputs_of(run, tmp_path, "--load-inputs", "in.npz", "--fusion", "none")
    assert done.out.count("1 layer runs in ONNX Runtime") == 1 and "'Distances' (com.microsoft.CDist)" in done.out, done
    for x, output in zip(np.load(tmp_path / "in.npz")["x"], outputs, strict=True):
        a = x.astype(np.float64) @ constants["w0"]
        exact = np.linalg.norm(a[:, None] - constants["points"][None], axis=-1) @ constants["w1"].astype(np.float64)
        # Around 3000 float32 steps by 2.4e-4, of which N products of size 0.2 make 2e-4.
        np.testing.assert_allclose(output["y"], exact, atol=1e-3)


def test_an_operator_with_an_absent_input_and_constants_of_several_types(run, tmp_path):
    constants = {
        "w": np.arange(48, dtype=np.uint8).reshape(16, 3),
        "s": np.float32(0.25),
        "b": np.arange(3, dtype=np.float32),
    }
    nodes = [helper.make_node("DynamicQuantizeMatMul", ["x", "w", "s", "", "b"], ["y"], "product", **MICROSOFT)]
    save(tmp_path / "m.onnx", nodes, {"x": ["batch", 16]}, {"y": ["batch", 3]}, constants)
    x = np.random.default_rng(0).normal(0, 1, (1, 2, 16)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    done, (output,) = outputs_of(run, tmp_path, "--load-inputs", "in.npz")
    assert "'product' (com.microsoft.DynamicQuantizeMatMul)" in done.out, done
    np.testing.assert_allclose(
        output["y"], ort.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": x[0]})[0], rtol=1e-5, atol=1e-5
    )


def test_search_convert_and_verify(run, tmp_path):
    distances(tmp_path / "m.onnx")
    done = run("precision", "search", "m.onnx", "--fp16", "--load-inputs", "in.npz", "--objective", "smallest", "--fusion",
               "none", "--metric", "rel-l2", "--threshold", "5e-3")
    assert done.code == 0, done
    answer = answer_of(tmp_path, "m.fp16.answer.json")
    assert [layer["name"] for layer in answer["layers"]] == ["Raise", "Lower"] and answer["candidates"] == 4
    done = run("convert", "m.onnx", "--answer", "m.fp16.answer.json", "-o", "typed.onnx", "--load-inputs", "in.npz")
    assert done.code == 0 and "equal in every bit" in done.out, done
    typed, plain = (ort.InferenceSession(str(tmp_path / name)) for name in ("typed.onnx", "m.onnx"))
    # The layer itself reads and writes float32: a Cast is before it and behind it.
    nodes = onnx.load(tmp_path / "typed.onnx").graph.node
    reads = {name for node in nodes if node.op_type == "CDist" for name in node.input}
    casts = {node.output[0]: node.attribute[0].i for node in nodes if node.op_type == "Cast"}
    assert [casts[name] for name in reads if name in casts] == [FLOAT]
    for x in np.load(tmp_path / "in.npz")["x"]:
        low, exact = typed.run(None, {"x": x})[0], plain.run(None, {"x": x})[0]
        assert 0 < np.linalg.norm(low - exact) <= 5e-3 * np.linalg.norm(exact)
    for runner in ("ulpscope", "onnxrt"):
        done = run("verify", "m.onnx", "--answer", "m.fp16.answer.json", "--load-inputs", "in.npz", "--runner", runner)
        assert done.code == 0, done


def half(path):
    save(path, [helper.make_node("CDist", ["x", "x"], ["d"], "D", metric="sqeuclidean", **MICROSOFT),
                helper.make_node("Neg", ["d"], ["y"], "N")], {"x": ["n", 4]}, {"y": ["n", "n"]}, types=HALF)
    x = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float16)
    wide = x.astype(np.float32)
    return x, {"y": -np.square(wide[:, None] - wide[None]).sum(-1).astype(np.float16)}


def found_at_run_time(path):
    save(path, [helper.make_node("Unique", ["x"], ["u", "places", "counts"], "U", **MICROSOFT),
                helper.make_node("Mul", ["u", "two"], ["y"], "Twice"), helper.make_node("Cast", ["counts"], ["k"], "C", to=FLOAT)],
         {"x": ["n"]}, {"y": ["u"], "k": ["u"]}, {"two": np.full(1, 2, np.float32)})
    return np.array([3, 1, 3, 2, 1, 7], np.float32), {"y": np.array([6, 2, 4, 14], np.float32), "k": np.array([2, 2, 1, 1], np.float32)}


def another_domain(path):
    save(path, [helper.make_node("Scaler", ["x"], ["s"], "S", domain="ai.onnx.ml", offset=[1.0, 2.0], scale=[0.5, 4.0]),
                helper.make_node("Neg", ["s"], ["y"], "N")], {"x": ["n", 2]}, {"y": ["n", 2]})
    return np.array([[3, 4]], np.float32), {"y": np.array([[-1, -8]], np.float32)}


def inside_of_a_body(path):
    inner = helper.make_node("CDist", ["x", "x"], ["d"], "Inner", metric="sqeuclidean", **MICROSOFT)
    then = helper.make_graph([inner], "then", [], [helper.make_tensor_value_info("d", FLOAT, None)])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["e"])], "else", [], [helper.make_tensor_value_info("e", FLOAT, None)])
    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], "Sum", keepdims=0), helper.make_node("Greater", ["s", "zero"], ["c"], "Over"),
             helper.make_node("If", ["c"], ["y"], "If", then_branch=then, else_branch=other)]
    save(path, nodes, {"x": ["n", 2]}, {"y": ["n", "m"]}, {"zero": np.float32(0)})
    return np.array([[3, 4], [0, 0]], np.float32), {"y": np.array([[0, 25], [25, 0]], np.float32)}


@pytest.mark.parametrize("case", [half, found_at_run_time, another_domain, inside_of_a_body], ids=lambda case: case.__name__)
def test_kinds_of_layers(case, run, tmp_path):
    x, expected = case(tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=x[None])
    _, (output,) = outputs_of(run, tmp_path, "--load-inputs", "in.npz")
    assert list(output) == list(expected)
    for name, value in expected.items():
        assert output[name].dtype == value.dtype
        # ONNX Runtime multiplies distances out: 0 is some ulps of the squares that it subtracts.
        np.testing.assert_allclose(output[name], value, rtol=1e-3 if value.dtype == np.float16 else 1e-6, atol=1e-5)


@pytest.mark.parametrize("length", ["a constant", "of the mask's shape", "an input"])
def test_a_cache_that_grows_by_what_a_scalar_says(length, run, tmp_path):
    """Without the scalar's value ONNX Runtime takes the new cache for as long as the old one."""
    attention = helper.make_node(
        "GroupQueryAttention",
        ["q", "k", "v", "pk", "pv", "last", "total"],
        ["y", "nk", "nv"],
        "attention",
        num_heads=2,
        kv_num_heads=1,
        **MICROSOFT,
    )
    shapes = {"q": [1, 1, 16], "k": [1, 1, 8], "v": [1, 1, 8], "pk": [1, 1, 2, 8], "pv": [1, 1, 2, 8]}
    random = np.random.default_rng(0)
    feed = {name: random.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    nodes, constants = [attention, helper.make_node("Relu", ["nk"], ["z"], "after")], {"last": np.array([2], np.int32)}
    if length == "a constant":
        constants["total"] = np.array(3, np.int32)
    elif length == "an input":
        feed["total"] = np.array(3, np.int32)
    else:
        feed["mask"] = np.ones((1, 3), np.int64)
        constants["one"] = np.array(1)
        nodes = [
            helper.make_node("Shape", ["mask"], ["s"]),
            helper.make_node("Gather", ["s", "one"], ["n"], axis=0),
            helper.make_node("Cast", ["n"], ["total"], to=TensorProto.INT32),
            *nodes,
        ]
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feed.items()
    ]
    outputs = [helper.make_tensor_value_info(n, FLOAT, s) for n, s in {"y": [1, 1, 16], "z": None, "nv": None}.items()]
    graph = helper.make_graph(
        nodes, "g", inputs, outputs, [numpy_helper.from_array(v, n) for n, v in constants.items()]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", **{name: value[None] for name, value in feed.items()})
    _, (got,) = outputs_of(run, tmp_path, "--load-inputs", "in.npz")
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    for name, want in zip(["y", "z", "nv"], session.run(None, feed)):
        np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-6)


def test_engine_files_cannot_hold_them(run, tmp_path):
    distances(tmp_path / "m.onnx")
    done = run("run", "m.onnx", "--trt", "--save-engine", "m.engine")
    assert done.code == 1 and "--save-engine: expected operators of ulpscope's own, got layer 'Distances' (CDist)" in done.text, done
    inside_of_a_body(tmp_path / "m.onnx")
    done = run("run", "m.onnx", "--trt", "--input-shapes", "x:[2,2]", "--save-engine", "m.engine")
    assert done.code == 1 and "got layer 'Inner' (CDist)" in done.text, done
    assert not (tmp_path / "m.engine").exists()


@pytest.mark.parametrize("op, domain, words", [
    ("EfficientNMS_TRT", "trt.plugins", "operator 'EfficientNMS_TRT' (domain 'trt.plugins') of node 'n' is not supported"),
    ("Frobnicate", "com.microsoft", "operator 'Frobnicate' (domain 'com.microsoft') of node 'n' is not supported"),
    ("GemmFloat8", "com.microsoft", "layer 'n' (GemmFloat8): [onnxrt]"),  # known, but not on a CPU
])
def test_what_onnxruntime_cannot_run_either_is_refused_by_name(op, domain, words, run, tmp_path):
    save(tmp_path / "m.onnx", [helper.make_node(op, ["x", "x"], ["y"], "n", domain=domain)], {"x": [2, 2]}, {"y": [2, 2]})
    done = run("run", "m.onnx", "--trt")
    assert done.code == 1 and words in done.text, done


def test_operators_that_onnxruntime_knows_by_name_alone(run, tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["b"], "r"),
             helper.make_node("EfficientNMS_TRT", ["b", "s"], ["n", "boxes", "scores", "classes"], "nms", background_class=-1,
                              box_coding=0, iou_threshold=0.5, max_output_boxes=10, plugin_version="1", score_activation=0, score_threshold=0.2)]
    save(tmp_path / "m.onnx", nodes, {"x": [1, 20, 4], "s": [1, 20, 3]}, {"boxes": [1, 10, 4]})
    outcome = run("run", "m.onnx", "--trt")
    assert outcome.code == 1 and "'nms' (EfficientNMS_TRT)" in outcome.text and "try --trt-outputs" in outcome.text, outcome
    assert run("run", "m.onnx", "--trt", "--trt-outputs", "b").code == 0


def test_without_onnxruntime_it_says_what_is_missing(run, tmp_path):
    distances(tmp_path / "m.onnx")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    done = run("run", "m.onnx", "--trt", env={"ULPSCOPE_PYTHON": str(tmp_path / "bare" / "bin" / "python")})
    assert done.code == 1 and "pip install" in done.text and "operator 'CDist' (domain 'com.microsoft')" in done.text, done
    # Where no output needs it, nobody is asked.
    done = run("run", "m.onnx", "--trt", "--trt-outputs", "a", env={"ULPSCOPE_PYTHON": str(tmp_path / "bare" / "bin" / "python")})
    assert done.code == 0 and "are left out" in done.text, done
