"""`run --profile` and `--profile-trace`: what they say of a network whose products are counted by hand."""

import json
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROWS, INNER, COLUMNS, CHANNELS, SIDE = 48, 96, 80, 16, 20
#: Products that layers add up.
MULTIPLY_ADDS = {"product": ROWS * INNER * COLUMNS, "convolution": SIDE * SIDE * CHANNELS * 8 * 9}


@pytest.fixture
def network(tmp_path):
    """A product, and a convolution whose length is a value of the network, so that it is planned while it runs."""
    generator = np.random.default_rng(5)
    weights = {
        "w": generator.standard_normal((INNER, COLUMNS)),
        "k": generator.standard_normal((CHANNELS, 8, 3, 3)),
    }
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["b"], name="product"),
        helper.make_node("Slice", ["x", "zero", "length", "two"], ["y"], name="cut"),
        helper.make_node("Conv", ["y", "k"], ["z"], name="convolution", pads=[1, 1, 1, 1]),
    ]
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    constants += [numpy_helper.from_array(np.array([n], np.int64), name) for name, n in (("zero", 0), ("two", 2))]
    inputs = [
        helper.make_tensor_value_info("a", TensorProto.FLOAT, [ROWS, INNER]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 2 * SIDE, SIDE]),
        helper.make_tensor_value_info("length", TensorProto.INT64, [1]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("b", "z")]
    graph = helper.make_graph(nodes, "profiled", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "profiled.onnx"
    onnx.save(model, path)
    feeds = {
        "a": generator.standard_normal((ROWS, INNER)).astype(np.float32),
        "x": generator.standard_normal((1, 8, 2 * SIDE, SIDE)).astype(np.float32),
        "length": np.array([SIDE], np.int64),
    }
    np.savez(tmp_path / "feeds.npz", **feeds)
    return path


def test_trace_counts_every_product_once(run, network, tmp_path):
    trace = tmp_path / "trace.json"
    result = run("run", network, "--trt", "--load-inputs", tmp_path / "feeds.npz", "--profile-trace", trace)
    assert result.code == 0, result
    events = json.loads(trace.read_text())["traceEvents"]
    counted = {name: 0.0 for name in MULTIPLY_ADDS}
    end = 0.0
    for event in events:
        assert event["ph"] == "X" and event["dur"] > 0
        assert event["ts"] == pytest.approx(end)  # One behind the other.
        end = event["ts"] + event["dur"]
        if event["name"] in counted:
            counted[event["name"]] += event["args"]["GFLOP/s"] * event["dur"] * 1e3 / 2
    assert counted == pytest.approx(MULTIPLY_ADDS)
    assert not any(event["args"]["how"] == "reference kernel" and event["cat"] == "Conv" for event in events)


def test_table_adds_up(run, network, tmp_path):
    result = run("run", network, "--trt", "--load-inputs", tmp_path / "feeds.npz", "--profile")
    assert result.code == 0, result
    text = result.text
    rows = re.findall(r"^ *\d+  (\S*) +(\S*) +([\d.]+) +([\d.]+) +(\S+) +(\S+) +(\d+)%  ", text, re.MULTILINE)
    count, total = re.search(r"(\d+) steps, ([\d.]+) us", text).groups()
    assert len(rows) == int(count) > 2
    assert sum(float(row[2]) for row in rows) == pytest.approx(float(total), abs=0.1 * len(rows))
    assert sum(float(row[3]) for row in rows) == pytest.approx(100, abs=0.1 * len(rows))
    assert {"product", "convolution"} <= {row[0] for row in rows}


def test_a_trace_that_cannot_be_written_is_an_error(run, network, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    trace = tmp_path / "file" / "trace.json"
    result = run("run", network, "--trt", "--load-inputs", tmp_path / "feeds.npz", "--profile-trace", trace)
    assert result.code != 0
    assert str(trace) in result.text or str(trace.parent) in result.text


def test_no_profile_of_another_runner(run, network, tmp_path):
    result = run("run", network, "--onnxrt", "--load-inputs", tmp_path / "feeds.npz", "--profile")
    assert "---- Profile ----" not in result.text
