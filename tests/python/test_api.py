"""ulpscope.Engine: options, types, errors."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ulpscope


def model_of(nodes, inputs, outputs, initializers=(), opset=17) -> bytes:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


def value(name: str, type_: int = TensorProto.FLOAT, shape=("n",)):
    return helper.make_tensor_value_info(name, type_, shape)


@pytest.fixture
def add_sub() -> bytes:
    """y = (x + 65504) - 65504."""
    nodes = [
        helper.make_node("Add", ["x", "c"], ["s"], name="Add"),
        helper.make_node("Sub", ["s", "c"], ["y"], name="Sub"),
    ]
    return model_of(nodes, [value("x")], [value("y")], [helper.make_tensor("c", TensorProto.FLOAT, [], [65504.0])])


X = np.linspace(1, 2, 7, dtype=np.float32)
IN_FP32 = (X + np.float32(65504)) - np.float32(65504)


def run(model, x=X, **options):
    return ulpscope.Engine(model, threads=1, **options).run({"x": x})["y"]


def test_fp32_is_ieee_float32(add_sub):
    assert np.array_equal(run(add_sub), IN_FP32)


def test_fp16_means_the_lowest_everywhere_and_fusion_decides(add_sub):
    assert np.array_equal(run(add_sub, precision="fp16", fusion="none"), np.zeros_like(X))
    assert np.array_equal(run(add_sub, precision="fp16", fusion="full"), IN_FP32.astype(np.float16).astype(np.float32))


def test_layer_precisions_on_top_of_fp16(add_sub):
    kept = {"Add": "float32", "Sub": "float32"}
    assert np.array_equal(run(add_sub, precision="fp16", fusion="none", layer_precisions=kept), IN_FP32)


def test_layer_precisions_leave_the_others_in_tf32():
    nodes = [
        helper.make_node("Gemm", ["x", "x"], ["y"], name="first"),
        helper.make_node("MatMul", ["x", "x"], ["z"], name="second"),
    ]
    model = model_of(nodes, [value("x", shape=[1, 1])], [value("y", shape=[1, 1]), value("z", shape=[1, 1])])
    x = np.float32([[1.2345678]])
    for layers in ({}, {"second": "bfloat16"}):
        engine = ulpscope.Engine(model, precision="tf32", layer_precisions=layers)
        precisions = {layer.name: layer.precision for layer in engine.layers}
        assert precisions == {"first": "tf32", "second": "bf16" if layers else "tf32"}
        assert engine.run({"x": x})["y"] == np.float32(1.234375) ** 2


def test_layer_precisions_do_not_spread_into_bodies():
    """(x + 65504) - 65504 in the body of a Loop beside a layer in fp16."""
    state = [value("i", TensorProto.INT64, []), value("k", TensorProto.BOOL, []), value("s")]
    nodes = [
        helper.make_node("Identity", ["k"], ["k2"]),
        helper.make_node("Add", ["s", "c"], ["t"]),
        helper.make_node("Sub", ["t", "c"], ["s2"]),
    ]
    body = helper.make_graph(nodes, "body", state, [value("k2", TensorProto.BOOL, []), value("s2")])
    outer = [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body), helper.make_node("Neg", ["x"], ["z"], name="Neg")]
    constants = [
        helper.make_tensor("c", TensorProto.FLOAT, [], [65504.0]),
        helper.make_tensor("n", TensorProto.INT64, [], [1]),
    ]
    model = model_of(outer, [value("x")], [value("y"), value("z")], constants)
    assert np.array_equal(run(model, layer_precisions={"Neg": "float16"}, fusion="none"), IN_FP32)


def test_layer_precisions_on_top_of_fp32_do_not_spread(add_sub):
    engine = ulpscope.Engine(add_sub, layer_precisions={"Add": "float16"}, fusion="none")
    precisions = {layer.name: layer.precision for layer in engine.layers}
    assert (precisions["Add"], precisions["Sub"]) == ("fp16", "fp32")
    assert np.array_equal(engine.run({"x": X})["y"], np.zeros_like(X))


def test_bf16_rounds_to_eight_bits(add_sub):
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="Relu")]
    model = model_of(nodes, [value("x")], [value("y")])
    assert run(model, np.float32([1 + 2**-9, 3]), precision="bf16").tolist() == [1.0, 3.0]


def test_inputs_and_outputs_are_described(add_sub):
    engine = ulpscope.Engine(add_sub)
    assert engine.inputs == (ulpscope.TensorSpec("x", np.dtype("float32"), (-1,)),)
    assert engine.outputs[0].name == "y"
    assert [layer.op for layer in engine.layers if layer.name == "Add"] == ["Add"]


def test_inputs_by_position_lists_and_order_of_memory(add_sub):
    engine = ulpscope.Engine(add_sub)
    assert np.array_equal(engine.run([X])["y"], IN_FP32)
    assert np.array_equal(engine.run({"x": X.tolist()})["y"], IN_FP32)
    backwards = np.ascontiguousarray(X[::-1])[::-1]
    assert np.array_equal(engine.run({"x": backwards})["y"], IN_FP32)


def test_file_and_bytes_agree(add_sub, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(add_sub)
    assert np.array_equal(run(path), run(add_sub))
    assert np.array_equal(run(str(path)), run(add_sub))


@pytest.mark.parametrize("type_", ["float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64", "bool"])
def test_element_types_go_both_ways(type_):
    import ml_dtypes

    dtype = np.dtype(ml_dtypes.bfloat16) if type_ == "bfloat16" else np.dtype(type_)
    onnx_type = helper.np_dtype_to_tensor_dtype(dtype)
    x = np.array([[0, 1], [1, 0]]).astype(dtype)
    model = model_of(
        [helper.make_node("Identity", ["x"], ["y"])], [value("x", onnx_type, (2, 2))], [value("y", onnx_type, (2, 2))]
    )
    y = run(model, x)
    assert y.dtype == dtype and np.array_equal(y, x)


def test_outputs_are_not_overwritten_by_later_runs(add_sub):
    engine = ulpscope.Engine(add_sub)
    first = engine.run({"x": X})["y"]
    before = first.copy()
    engine.run({"x": X + 100})
    assert np.array_equal(first, before)


def test_a_memory_limit_changes_memory_and_no_bit():
    """Four products of 1024x1024: 4 MiB each, 16 MiB as floats that are prepared."""
    random = np.random.default_rng(5)
    weights = [
        onnx.numpy_helper.from_array(random.normal(0, 1 / 32, (1024, 1024)).astype(np.float32), f"w{i}") for i in range(4)
    ]
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"], f"product {i}") for i in range(4)]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 1024]) for name in ("x0", "x4")]
    graph = helper.make_graph(nodes, "products", infos[:1], infos[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = random.normal(size=(2, 1024)).astype(np.float32)
    expected = ulpscope.Engine(model, precision="fp16").run([x])["x4"]
    for limit in (1000, 6 << 20, 1 << 30):
        engine = ulpscope.Engine(model, precision="fp16", memory_limit=limit)
        for _ in range(2):
            np.testing.assert_array_equal(engine.run([x])["x4"], expected)


def test_scalars_and_empty_tensors():
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], [value("x", shape=())], [value("y", shape=())])
    y = run(model, np.float32(3))
    assert y.shape == () and y == -3
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], [value("x")], [value("y")])
    assert run(model, np.zeros(0, np.float32)).shape == (0,)


CODE = ulpscope.ErrorCode


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        ({"precision": "fp4"}, CODE.INVALID_ARGUMENT, "fp4"),
        ({"fusion": "some"}, CODE.INVALID_ARGUMENT, "some"),
        ({"layer_precisions": {"Mul": "float32"}}, CODE.INVALID_ARGUMENT, "Mul"),
        ({"layer_precisions": {"Add": "float128"}}, CODE.INVALID_ARGUMENT, "float128"),
        ({"memory_limit": -1}, CODE.INVALID_ARGUMENT, r"memory_limit: expected 0 \(no limit\) or more bytes, got -1"),
        ({"memory_limit": "1G"}, CODE.INVALID_ARGUMENT, "memory_limit: expected a whole number of 64 bits, got '1G'"),
        ({"memory_limit": 2**70}, CODE.INVALID_ARGUMENT, f"memory_limit: expected a whole number of 64 bits, got {2**70}"),
    ],
)
def test_wrong_options(add_sub, options, code, word):
    with pytest.raises(ulpscope.Error, match=word) as caught:
        ulpscope.Engine(add_sub, **options)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("inputs", "word"),
    [
        ({}, "x"),
        ({"z": X}, "z"),
        ({"x": X, "z": X}, "z"),
        ({"x": X.astype(np.float64)}, "x"),
        ({"x": X.reshape(1, 7)}, "x"),
        ({"x": np.array(["a"])}, "x"),
        ({"x": "nonsense"}, "input 'x': expected an array of float32, or numbers, got 'nonsense'"),
        ({"x": None}, "input 'x': .*, got None"),
        ({"x": [[1], [1, 2]]}, "input 'x'"),
        (X, "got ndarray; try {'x': array}"),
        ([], "input"),
        ([X, X], "input"),
    ],
)
def test_wrong_inputs(add_sub, inputs, word):
    with pytest.raises(ulpscope.Error, match=word) as caught:
        ulpscope.Engine(add_sub).run(inputs)
    assert caught.value.code == CODE.INVALID_ARGUMENT


def test_wrong_files(tmp_path):
    with pytest.raises(ulpscope.Error) as caught:
        ulpscope.Engine(tmp_path / "none.onnx")
    assert caught.value.code == CODE.NOT_FOUND and "none.onnx" in str(caught.value)
    with pytest.raises(ulpscope.Error) as caught:
        ulpscope.Engine(b"this is not a model")
    assert caught.value.code == CODE.INVALID_FILE
    unknown = model_of([helper.make_node("Frobnicate", ["x"], ["y"])], [value("x")], [value("y")])
    with pytest.raises(ulpscope.Error, match="Frobnicate") as caught:
        ulpscope.Engine(unknown)
    assert caught.value.code == CODE.UNSUPPORTED


def test_errors_are_two_unrelated_types():
    assert not issubclass(ulpscope.Error, ulpscope.InternalError)
    assert not issubclass(ulpscope.InternalError, ulpscope.Error)


def test_onnx_and_ulpscope_live_in_one_process(add_sub):
    onnx.checker.check_model(onnx.load_from_string(add_sub))
    assert run(add_sub).shape == X.shape
