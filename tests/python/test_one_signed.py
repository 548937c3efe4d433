"""A search warns, once, of long sums of mostly one sign in fp8: a GPU's accumulator loses bits of them."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import ulpscope


@pytest.mark.parametrize("lowest, warned", [(0.0, 1), (-1.0, 0)])
def test_long_sums_of_one_sign_are_warned_of_once(tmp_path, monkeypatch, caplog, lowest, warned):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    weights = random.uniform(lowest, 1, (4096, 32)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="Long")]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [16, n]) for name, n in (("x", 4096), ("y", 32))]
    graph = helper.make_graph(nodes, "long", value[:1], value[1:], [numpy_helper.from_array(weights, "w")])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "m.onnx")
    samples = [{"x": random.uniform(lowest, 1, (16, 4096)).astype(np.float32)} for _ in range(3)]
    answer = ulpscope.search("m.onnx", samples, "fp8", metric="rel-l2", threshold=0.2, objective="smallest")
    assert answer.verdict == "found", answer.message
    said = [each for each in caplog.records if "mostly one sign" in each.getMessage()]
    assert [each.levelname for each in said] == ["WARNING"] * warned
    assert all("Long (fp8, K = 4096" in each.getMessage() for each in said)
