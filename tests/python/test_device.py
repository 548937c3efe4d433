"""Engine.run and Engine.bind between tensors of DLPack."""

from __future__ import annotations

import gc
import re

import ml_dtypes
import numpy as np
import pytest
from dlpack_support import CPU, CUDA, Other
from onnx import TensorProto, helper

import ulpscope

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def model(kind: int = TensorProto.FLOAT, op: str = "Add", out: int | None = None) -> bytes:
    """y = op(x, x), z = x."""
    nodes = [
        helper.make_node(op, ["x", "x"] if op != "Identity" else ["x"], ["y"], op),
        helper.make_node("Identity", ["x"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "twice",
        [helper.make_tensor_value_info("x", kind, ["n", 4])],
        [
            helper.make_tensor_value_info("y", kind if out is None else out, ["n", 4]),
            helper.make_tensor_value_info("z", kind, ["n", 4]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11).SerializeToString()


@pytest.fixture(params=["cpu", "plain"])
def engine(request):
    return ulpscope.Engine(model(), backend=request.param)


def test_tensors_of_other_libraries_are_inputs(engine):
    other = Other(X)
    results = engine.run({"x": other})
    assert np.array_equal(results["y"], X + X) and isinstance(results["y"], np.ndarray)
    assert np.array_equal(engine.run([Other(X)])["z"], X)
    assert other.streams == [None]  # A tensor on the CPU has none.
    gc.collect()
    assert other.held == 0


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (TensorProto.FLOAT16, np.float16), (TensorProto.BFLOAT16, ml_dtypes.bfloat16), (TensorProto.DOUBLE, np.float64),
        (TensorProto.INT64, np.int64), (TensorProto.INT32, np.int32), (TensorProto.INT8, np.int8),
        (TensorProto.UINT8, np.uint8), (TensorProto.BOOL, np.bool_),
        (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn), (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2),
    ],
)  # fmt: skip
def test_types(kind, dtype):
    array = X.astype(dtype)
    name = np.dtype(dtype).name
    engine = ulpscope.Engine(model(kind, "Identity"))
    result = engine.run({"x": Other(array)}, outputs="device")["y"]
    assert (result.dtype, result.shape, result.device) == (np.dtype(dtype), (3, 4), "cpu")
    assert result.numpy().tobytes() == array.tobytes()
    again = engine.run({"x": result})["y"]  # Through the capsule.
    assert again.dtype == np.dtype(dtype) and again.tobytes() == array.tobytes()
    out = {each: np.zeros((3, 4), array.view(f"u{array.itemsize}").dtype) for each in "yz"}
    engine.run({"x": array}, outputs={each: Other(out[each], type_name=name) for each in "yz"})
    assert out["y"].tobytes() == out["z"].tobytes() == array.tobytes()


def test_results_outlive_the_engine_and_are_taken_without_a_copy(engine):
    result = engine.run({"x": X}, outputs="device")["y"]
    assert isinstance(result, ulpscope.DeviceTensor) and result.__dlpack_device__() == (CPU, 0)
    del engine
    gc.collect()
    first, second = np.from_dlpack(result), result.numpy()
    assert np.array_equal(first, X + X) and np.shares_memory(first, second)
    del result
    gc.collect()
    assert np.array_equal(first, X + X)
    with pytest.raises(BufferError, match="without a copy"):
        ulpscope.Engine(model()).run([X], outputs="device")["y"].__dlpack__(copy=True)


def test_outputs_go_into_tensors_of_the_caller(engine):
    y, z = np.zeros_like(X), np.zeros_like(X)
    given = {"y": y, "z": Other(z)}
    results = engine.run({"x": Other(X)}, outputs=given)
    assert results == given and results["y"] is y
    assert np.array_equal(y, X + X) and np.array_equal(z, X)


def test_bound_tensors_are_read_and_written_by_every_run(engine):
    x, y, z = X.copy(), np.zeros_like(X), np.zeros_like(X)
    held = Other(x)
    bound = engine.bind({"x": held}, {"y": y, "z": z})
    assert not y.any()
    for factor in (1, 2, 3):
        x[:] = factor * X
        assert bound.run()["y"] is y
        assert np.array_equal(y, 2 * factor * X) and np.array_equal(z, x)
    gc.collect()
    assert held.held == 1  # While the run is bound, its tensors cannot be freed.
    del bound
    gc.collect()
    assert held.held == 0


def test_bound_outputs_of_the_engine_stay_where_they_are(engine):
    x = X.copy()
    bound = engine.bind([x])
    y = np.from_dlpack(bound.outputs["y"])
    assert np.array_equal(y, X + X)
    x[:] = 7
    bound.run()
    assert (y == 14).all()
    assert np.shares_memory(y, bound.outputs["y"].numpy())


def message_of(call) -> str:
    with pytest.raises(ulpscope.Error) as caught:
        call()
    assert caught.value.code == ulpscope.ErrorCode.INVALID_ARGUMENT
    assert "\n" not in str(caught.value)
    return str(caught.value)


OUT = {"y": np.zeros_like(X), "z": np.zeros_like(X)}
BASE = np.zeros(24, np.float32)
BAD_INPUTS = {
    "device": (
        Other(X, device=(CUDA, 0)),
        r"input 'x': expected a tensor on the CPU, where the engine computes, got one on CUDA device 0; try a copy of "
        r"it there \(.cpu\(\)\), or an engine with the backend 'cuda'",
    ),
    "other device": (
        Other(X, device=(8, 0)),
        r"input 'x': expected a tensor on the CPU or on a CUDA device, got one on DLPack's device type 8",
    ),
    "type": (Other(X.astype(np.float64)), r"input 'x': expected elements of type float32, got float64"),
    "no type": (
        Other(np.zeros((3, 4), np.complex64)), r"input 'x': expected a tensor of floats, .* type code 5 with 64 bits"
    ),
    "shape": (Other(X[:, :3].copy()), r"input 'x': expected the shape \(-1, 4\), got \(3, 3\)"),
    "strides": (
        Other(X, strides=(1, 3)),
        r"input 'x': expected elements in row-major order without gaps, got the shape \(3, 4\) with strides \(1, 3\); "
        r"try .contiguous\(\)",
    ),
    "no device": (
        Other(X, device=None),
        r"a tensor of class 'Other': expected its __dlpack_device__ to give \(type, number\): TypeError: 'NoneType'",
    ),
    "short device": (
        Other(X, device=(CPU,)),
        r"a tensor of class 'Other': expected its __dlpack_device__ to give \(type, number\): IndexError: tuple index",
    ),
    "named device": (
        Other(X, device=("cpu", 0)),
        r"a tensor of class 'Other': expected its __dlpack_device__ to give \(type, number\): it gives no numbers",
    ),
    "refusal": (Other(X, refuses="it requires a gradient"), r"input 'x': .* raised BufferError: it requires a"),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD_INPUTS)
@pytest.mark.parametrize("how", ["host", "device", "into", "bind"])
def test_bad_inputs(engine, bad, how):
    value, expected = BAD_INPUTS[bad]
    calls = {
        "host": lambda: engine.run({"x": value}), "device": lambda: engine.run([value], outputs="device"),
        "into": lambda: engine.run({"x": value}, outputs=OUT), "bind": lambda: engine.bind([value]),
    }  # fmt: skip
    message = message_of(calls[how])
    assert re.fullmatch(r"\[run\] " + expected + ".*", message), message
    gc.collect()
    assert value.held == 0
    assert np.array_equal(engine.run({"x": X})["y"], X + X)  # Nothing is lost.


BAD_OUTPUTS = {
    "device": (
        {**OUT, "y": Other(X, device=(CUDA, 0))}, r"output 'y': expected a tensor on the CPU, where .* CUDA device 0"
    ),
    "type": ({**OUT, "y": np.zeros((3, 4), np.int64)}, r"output 'y': expected elements of type float32, got int64"),
    "shape": ({**OUT, "z": np.zeros((4, 3), np.float32)}, r"output 'z': expected the shape \(3, 4\), got \(4, 3\)"),
    "strides": ({**OUT, "z": np.zeros((4, 3), np.float32).T}, r"output 'z': expected elements in row-major order"),
    "missing": ({"y": OUT["y"]}, r"output 'z' is missing; the outputs are 'y', 'z'"),
    "unknown": ({**OUT, "w": X}, r"there is no output 'w'; the outputs are 'y', 'z'"),
    "none": ({}, r"outputs: expected 'y', 'z', got none"),
    "no tensor": ({**OUT, "y": [1]}, r"output 'y': expected a tensor with __dlpack__, got \[1\]"),
    "shared": ({"y": BASE[:12].reshape(3, 4), "z": BASE[8:20].reshape(3, 4)},
               r"output 'z': expected memory of its own, got some of output 'y''s"),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD_OUTPUTS)
def test_bad_outputs(engine, bad):
    given, expected = BAD_OUTPUTS[bad]
    message = message_of(lambda: engine.run([X], outputs=given))
    assert re.match(r"\[run\] " + expected, message), message


def test_an_output_is_no_input(engine):
    x = X.copy()
    message = message_of(lambda: engine.run([x], outputs={**OUT, "z": x}))
    assert "output 'z': expected memory of its own, got some of input 'x''s" in message
    assert np.array_equal(x, X)


def test_bad_words(engine):
    assert "outputs: expected 'host', 'device' or tensors by name, got 'gpu'" in message_of(
        lambda: engine.run([X], outputs="gpu")
    )
    assert "stream: expected a stream of torch or CuPy" in message_of(lambda: engine.run([X], "device", "fast"))
    assert "outputs: expected tensors by name, got 'y'" in message_of(lambda: engine.bind([X], "y"))
    assert "expected 1 inputs, got 2" in message_of(lambda: engine.bind([X, X]))


def test_streams_are_taken_from_other_libraries():
    from ulpscope.device import stream_of

    class Torch:
        cuda_stream = 77

    class Cupy:
        ptr = 78

    class Other:
        def __cuda_stream__(self):
            return (0, 79)

    assert [stream_of(each, [], "") for each in (Torch(), Cupy(), Other(), 80, None)] == [77, 78, 79, 80, 0]


def test_values_of_constants(tmp_path):
    from onnx import numpy_helper

    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "scaled",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xw"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [numpy_helper.from_array(np.float32([2, 2]), "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11).SerializeToString()
    engine = ulpscope.Engine(made)
    x, w = np.float32([1, 2]), Other(np.float32([5, 6]))
    assert engine.run({"x": x}, outputs="device")["y"].numpy().tolist() == [2, 4]
    assert engine.run({"x": x, "w": w}, outputs="device")["y"].numpy().tolist() == [5, 12]
    assert engine.bind({"x": x, "w": w}).run()["y"].numpy().tolist() == [5, 12]


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_libraries(library):
    """Where they are installed: both ways, without a copy."""
    module = pytest.importorskip(library)
    from_dlpack = module.from_dlpack
    ones = module.ones((3, 4), dtype=module.bfloat16)
    engine = ulpscope.Engine(model(TensorProto.BFLOAT16))
    taken = from_dlpack(engine.run({"x": ones}, outputs="device")["y"])
    assert taken.dtype == module.bfloat16 and (taken == 2).all()
