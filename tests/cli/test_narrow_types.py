"""Files with float8 and int4 tensors: converted, planned, run and saved."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

FLOAT = TensorProto.FLOAT
RANDOM = np.random.default_rng(4)


def constant(name, element, values):
    array = np.asarray(values, np.float32).astype(helper.tensor_dtype_to_np_dtype(element))
    return numpy_helper.from_array(array, name)


def weights_of_four_bits():
    """Two products: weights of int4 with a scale per block (an odd number of columns), and of E4M3 with one per column; then
    a Gelu, to have something to lower."""
    node = helper.make_node
    q4, q8 = RANDOM.integers(-8, 8, (8, 5)), RANDOM.normal(0, 100, (5, 3))
    nodes = [node("DequantizeLinear", ["w4", "s4"], ["d4"], name="dq4", axis=0, block_size=4),
             node("MatMul", ["x", "d4"], ["a"], name="first"),
             node("Gelu", ["a"], ["b"], name="gelu"),
             node("DequantizeLinear", ["w8", "s8"], ["d8"], name="dq8", axis=1),
             node("MatMul", ["b", "d8"], ["y"], name="second")]
    weights = [constant("w4", TensorProto.INT4, q4), constant("s4", FLOAT, RANDOM.uniform(0.01, 0.1, (2, 5))),
               constant("w8", TensorProto.FLOAT8E4M3FN, q8), constant("s8", FLOAT, RANDOM.uniform(0.001, 0.01, 3))]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", FLOAT, ["n", 8])], [info("y", FLOAT, ["n", 3])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def outputs_of_all_kinds():
    """x in E5M2 and int4, as outputs."""
    node = helper.make_node
    nodes = [node("Cast", ["x"], ["e"], name="to_e5m2", to=TensorProto.FLOAT8E5M2),
             node("QuantizeLinear", ["x", "s"], ["q"], name="quantize", output_dtype=TensorProto.INT4)]
    info = helper.make_tensor_value_info
    outputs = [info("e", TensorProto.FLOAT8E5M2, [3, 3]), info("q", TensorProto.INT4, [3, 3])]
    graph = helper.make_graph(nodes, "g", [info("x", FLOAT, [3, 3])], outputs, [constant("s", FLOAT, 0.25)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture
def inputs():
    return {"x": RANDOM.normal(0, 1, (4, 8)).astype(np.float32)}


def close(path, model, inputs, tolerance):
    expected = ReferenceEvaluator(model).run(None, inputs)[0]
    actual = ReferenceEvaluator(onnx.load(path)).run(None, inputs)[0]
    assert np.abs(actual - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("external", [False, True])
def test_convert_writes_what_it_read(run, tmp_path, inputs, external):
    model = weights_of_four_bits()
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=external, size_threshold=0)
    model = onnx.load(tmp_path / "m.onnx")
    outcome = run("convert", tmp_path / "m.onnx", "--fp16", "-o", tmp_path / "half.onnx")
    assert outcome.code == 0, outcome
    onnx.checker.check_model(str(tmp_path / "half.onnx"), full_check=True)
    close(tmp_path / "half.onnx", model, inputs, 5e-3)
    outcome = run("convert", tmp_path / "m.onnx", "--fp16", "--layer-precisions", "first:float32", "second:float32",
                  "-o", tmp_path / "kept.onnx")
    assert outcome.code == 0, outcome
    kept = {tensor.name: tensor for tensor in onnx.load(tmp_path / "kept.onnx").graph.initializer}
    for tensor in model.graph.initializer:
        assert kept[tensor.name].data_type == tensor.data_type and kept[tensor.name].raw_data == tensor.raw_data
    close(tmp_path / "kept.onnx", model, inputs, 5e-3)


def test_plans_hold_them(run, tmp_path):
    onnx.save(weights_of_four_bits(), tmp_path / "m.onnx")
    saved = run("run", tmp_path / "m.onnx", "--trt", "--save-engine", tmp_path / "m.plan", "--save-outputs", tmp_path / "a.json")
    assert saved.code == 0, saved
    again = run("run", tmp_path / "m.plan", "--model-type", "engine", "--trt", "--save-outputs", tmp_path / "b.json")
    assert again.code == 0, again
    arrays = []
    for name in ("a.json", "b.json"):
        (_, (iteration,)), = json.loads((tmp_path / name).read_text())["lst"]
        arrays.append(iteration["outputs"]["y"]["values"]["array"])
    assert arrays[0] == arrays[1]


def test_results_of_narrow_types_are_saved_and_loaded(run, tmp_path):
    onnx.save(outputs_of_all_kinds(), tmp_path / "m.onnx")
    first = run("run", tmp_path / "m.onnx", "--trt", "--save-outputs", tmp_path / "golden.json")
    assert first.code == 0, first
    second = run("run", tmp_path / "m.onnx", "--trt", "--load-outputs", tmp_path / "golden.json", "--atol", "0", "--rtol", "0")
    assert second.code == 0, second
    shown = run("inspect", "data", tmp_path / "golden.json")
    assert shown.code == 0 and "int8" in shown.text, shown


@pytest.mark.parametrize("typing", [(), ("--strongly-typed",)])
def test_blocks_of_tensorrt_in_a_strongly_typed_network(run, tmp_path, typing):
    """MXFP8 there and back, in float16: powers of two lose nothing of small integers."""
    blocks, half = {"domain": "trt", "axis": -1, "block_size": 32}, TensorProto.FLOAT16
    node = helper.make_node
    nodes = [
        node("TRT_MXFP8DynamicQuantize", ["x"], ["c", "s"], output_dtype=TensorProto.FLOAT8E4M3FN, **blocks),
        node("TRT_MXFP8DequantizeLinear", ["c", "s"], ["y"], output_dtype=half, **blocks),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", half, [2, 64])], [info("y", half, [2, 64])])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("trt", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
    x = (np.arange(128).reshape(2, 64) % 16 - 8).astype(np.float16)
    np.savez(tmp_path / "in.npz", x=x)
    done = run("run", "m.onnx", "--trt", *typing, "--load-inputs", "in.npz", "--save-outputs", "out.json")
    assert done.code == 0, done
    from polygraphy.comparator import RunResults

    ((_, (iteration,)),) = RunResults.load(str(tmp_path / "out.json"))
    np.testing.assert_array_equal(iteration["y"], x)
