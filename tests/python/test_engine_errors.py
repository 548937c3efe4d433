"""Errors of inference and runs name the file of the model, once and in front; models from memory have none."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ulpscope


def model(op: str, second: np.ndarray, given: bool) -> bytes:
    """y = op(x, second), which is an input if it is given."""
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])]
    if given:
        infos.append(helper.make_tensor_value_info("i", TensorProto.INT64, second.shape))
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "i"], ["y"], name="bad")],
        "bad",
        infos,
        [helper.make_empty_tensor_value_info("y")],
        [] if given else [numpy_helper.from_array(second, "i")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def sources(content: bytes, tmp_path):
    """A model as a file and from memory, with what messages have in front."""
    (tmp_path / "m.onnx").write_bytes(content)
    return (("m.onnx", "m.onnx: "), (content, ""))


def message_of(call) -> str:
    with pytest.raises(ulpscope.Error) as caught:
        call()
    return str(caught.value)


GOOD = {"x": np.ones((2, 3), np.float32), "i": np.array([7])}


@pytest.mark.parametrize(("feed", "said"), [
    (GOOD, "layer 'bad' (Gather): "), ({**GOOD, "x": np.ones((2, 2), np.float32)},
                                           "input 'x': expected the shape (2, 3), got (2, 2)"),
    ({**GOOD, "x": "x"}, "input 'x': expected an array"), ({"x": GOOD["x"]}, "inputs: expected 'x', 'i', got 'x'"),
])  # fmt: skip
def test_of_runs(tmp_path, feed, said):
    for source, file in sources(model("Gather", np.array([7]), given=True), tmp_path):
        engine = ulpscope.Engine(source)
        assert message_of(lambda: engine.run(feed)).startswith(f"[run] {file}{said}")


def test_of_inference(tmp_path):
    data = [{"x": GOOD["x"]}]
    for source, file in sources(model("Reshape", np.array([4, 4]), given=False), tmp_path):
        for call in (
            lambda: ulpscope.Engine(source),
            lambda: ulpscope.convert(source, data=data),
            lambda: ulpscope.search(source, data),
        ):
            message = message_of(call)
            assert message.startswith(f"[infer] {file}layer 'bad' (Reshape): ") and message.count("m.onnx") == bool(
                file
            ), message
