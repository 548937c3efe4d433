"""run --clamp-constants: constants that float16 cannot hold."""
import base64
import io
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture
def masked(tmp_path):
    """y = Softmax(x + mask): a mask of -3.4e38 is -inf in float16; the name has colons as PyTorch's have."""
    nodes = [helper.make_node("Add", ["x", "onnx::Add_7"], ["sum"], name="Add"),
             helper.make_node("Mul", ["sum", "half"], ["y"], name="Mul")]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    mask = np.array([0, -3.4e38, 1e6, 0], np.float32)
    graph = helper.make_graph(nodes, "masked", infos[:1], infos[1:],
                              [numpy_helper.from_array(mask, "onnx::Add_7"),
                               numpy_helper.from_array(np.full((4,), 0.5, np.float32), "half")])
    path = tmp_path / "masked.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


FP16 = ["--trt", "--fp16", "--assume-lowest", "--fusion", "none", "--validate"]


def test_clamped_constants_stay_finite(run, masked):
    assert run("run", masked, *FP16).code == 1
    before = masked.read_bytes()
    outcome = run("run", masked, *FP16, "--clamp-constants", "onnx::Add_7")
    assert outcome.code == 0, outcome
    assert masked.read_bytes() == before
    limited = run("run", masked, "--trt", "--clamp-constants", "onnx::Add_7:100", "--val-range", "[0,0]",
                  "--save-outputs", "out.json")
    assert limited.code == 0
    (_, iterations), = json.loads((masked.parent / "out.json").read_text())["lst"]
    array = base64.b64decode(iterations[0]["outputs"]["y"]["values"]["array"])
    assert np.load(io.BytesIO(array)).tolist() == [0, -50, 50, 0]


@pytest.mark.parametrize("word, message", [
    ("onnx::Add_8", "there is no constant 'onnx::Add_8'; did you mean 'onnx::Add_7'"),
    ("half:", "expected NAME or NAME:LIMIT with a number, got ''"),
    ("half:0", "expected a positive limit, got 0"),
    ("half:nan", "expected a positive limit, got nan"),
    ("x", "there is no constant 'x'"),
])
def test_mistakes_are_named(run, masked, word, message):
    outcome = run("run", masked, "--trt", "--clamp-constants", word)
    assert outcome.code == 1
    assert message in outcome.err, outcome
