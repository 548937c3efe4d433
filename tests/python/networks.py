"""Networks of a few nodes, ONNX Runtime's results for them, and ours."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
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
