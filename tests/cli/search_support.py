"""What the tests of `precision search` share: samples, answers, journals, and a network that int8 does not suit."""
import base64
import importlib.util
import io
import json
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cli_support import encode_array


# By its path: the package itself needs the library.
_SPEC = importlib.util.spec_from_file_location(
    "answers", pathlib.Path(__file__).parents[2] / "python" / "ulpscope" / "worker" / "answers.py")
answers = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(answers)


BASE = ["--fp16", "--objective", "smallest", "--fusion", "none", "--atol", "1e-3", "--rtol", "1e-2"]


def samples(count, n=256, low=1, high=2):
    return [{"x": np.random.default_rng(i).uniform(low, high, (1, 1, n, n)).astype(np.float32)} for i in range(count)]


def plain(trials):
    """With lists in the place of what is made when it is looked at."""
    return [{**trial, "raised": [list(pair) for pair in trial["raised"]]} for trial in trials]


def save_inputs(path, iterations):
    path.write_text(json.dumps([{name: encode_array(a) for name, a in each.items()} for each in iterations]))
    return path.name


def answer_of(tmp_path, name="needs_constraints.fp16.answer.json"):
    answer = answers.expand_answer(json.loads((tmp_path / name).read_text()))
    return {**answer, "trials": plain(answer["trials"])}


def version_1(answer):
    """What earlier releases wrote: of an expanded answer."""
    answer = {**answer, "version": 1}
    answer.pop("names", None)
    return answer


def trials_of(path):
    """Those whose line is whole."""
    text = path.read_text()
    lines = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
    return plain(answers.expand_trials(lines[1:], lines[0]["names"])) if lines else []


def key(trial):
    return trial["kind"] == "hold-out", json.dumps(trial["raised"])


def comparable(answer):
    """Without what differs from run to run."""
    answer = json.loads(json.dumps(answer))
    answer.pop("seconds")
    for trial in answer["trials"]:
        trial.pop("seconds")
    return answer


def outputs_of(path):
    """Per iteration: output name to array, of the first runner."""
    return [{name: np.load(io.BytesIO(base64.b64decode(each["values"]["array"]))) for name, each in iteration["outputs"].items()}
            for iteration in json.loads(path.read_text())["lst"][0][1]]


def relative_errors(low, exact):
    """Per iteration and output: the L2 norm of the difference over that of the exact values."""
    pairs = [(a[name].astype(np.float64), b[name].astype(np.float64))
             for a, b in zip(outputs_of(low), outputs_of(exact)) for name in b]
    return [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in pairs]


def masked_attention(path, blocks=4, n=32, width=48, mask=-3.4028234663852886e38):
    """Attention under a mask beyond float16, then products with an uneven channel: int8 and float16 each fail somewhere.
    Returns samples for it."""
    random = np.random.default_rng(11)
    weights = {"one": np.ones((), np.float32), "lowest": np.full((), mask, np.float32)}
    nodes, value = [], "x"

    def node(op, inputs, output, name, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], name, **attributes))
        return output

    hidden = node("Sub", ["one", node("Cast", ["keep"], "kept", "Kept", to=TensorProto.FLOAT)], "hidden", "Hidden")
    node("Mul", [hidden, "lowest"], "mask", "Lowest")
    for i in range(blocks):
        for each in ("q", "k", "v", "o"):
            matrix = random.normal(0, width ** -0.5, (width, width)).astype(np.float32)
            if each == "o":
                matrix[:, i] *= 30
            weights[f"{each}{i}"] = matrix
        q, k, v = (node("MatMul", [value, f"{each}{i}"], f"{each}_{i}", f"{each.upper()}_{i}") for each in "qkv")
        turned = node("Transpose", [k], f"kt_{i}", f"Turn_{i}", perm=[0, 2, 1])
        scores = node("MatMul", [q, turned], f"scores_{i}", f"Scores_{i}")
        masked = node("Add", [scores, "mask"], f"masked_{i}", f"Mask_{i}")
        chances = node("Softmax", [masked], f"chances_{i}", f"Softmax_{i}", axis=-1)
        mixed = node("MatMul", [chances, v], f"mixed_{i}", f"Mix_{i}")
        out = node("MatMul", [mixed, f"o{i}"], f"out_{i}", f"Out_{i}")
        added = node("Add", [value, out], f"added_{i}", f"Residual_{i}")
        value = node("Tanh", [added], f"x_{i}", f"Tanh_{i}")
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n, width]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "attention",
                              [infos[0], helper.make_tensor_value_info("keep", TensorProto.INT64, [1, 1, n])], infos[1:],
                              [numpy_helper.from_array(array, name) for name, array in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return [{"x": random.normal(size=(1, n, width)).astype(np.float32),
             "keep": (np.arange(n).reshape(1, 1, n) < n - 2 * i).astype(np.int64)} for i in range(6)]


def branches():
    """y = x > 0 ? (x + 65504) - 65504 : -x, in the bodies of an If."""

    def body(name, nodes, output):
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, [4])])

    yes = body(
        "yes",
        [
            helper.make_node("Add", ["x", "max"], ["s"], name="Add"),
            helper.make_node("Sub", ["s", "max"], ["d"], name="Sub"),
        ],
        "d",
    )
    no = body("no", [helper.make_node("Neg", ["x"], ["n"], name="Neg")], "n")
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], name="Top", keepdims=0),
        helper.make_node("Greater", ["top", "nought"], ["positive"], name="Greater"),
        helper.make_node("If", ["positive"], ["chosen"], name="If", then_branch=yes, else_branch=no),
        helper.make_node("Neg", ["chosen"], ["y"], name="Last"),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    constants = [
        numpy_helper.from_array(np.full((), 0, np.float32), "nought"),
        numpy_helper.from_array(np.full(1, 65504, np.float32), "max"),
    ]
    graph = helper.make_graph(nodes, "branches", infos[:1], infos[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
