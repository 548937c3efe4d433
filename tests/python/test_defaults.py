"""What functions say where nothing is asked for: names, precisions, what int8 costs, everything low."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ulpscope
from small_models import uneven

QUIET = {"progress": False}


def outlier_model(path: str, count: int = 8) -> list[dict[str, np.ndarray]]:
    """x -> MatMul -> y, whose inputs have one element in a thousand that is a hundred times the others, and that alone
    matters."""
    width = 64
    weights = np.zeros((width, 4), np.float32)
    weights[0] = 1
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "Product")]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [64, width]), ("y", [64, 4]))]
    graph = helper.make_graph(nodes, "outliers", infos[:1], infos[1:], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    samples = []
    for seed in range(count):
        x = np.random.default_rng(seed).normal(0, 1, (64, width)).astype(np.float32)
        x[:, 0] = 0
        x[seed, 0] = 300
        samples.append({"x": x})
    return samples


def int8_error(scales: dict[str, float], samples: list[dict[str, np.ndarray]]) -> float:
    """rel-l2 of the product with x in int8; w's ones are exact."""
    worst = 0.0
    for sample in samples[:4]:
        step = np.float32(scales["x"])
        x = np.clip(np.rint(sample["x"] / step), -128, 127) * step
        exact, low = sample["x"][:, 0], x[:, 0]
        worst = max(worst, float(np.linalg.norm(low - exact) / np.linalg.norm(exact)))
    return worst


def test_calibrate_measures_what_int8_costs(folder, caplog):
    samples = outlier_model("m.onnx")
    with caplog.at_level(logging.WARNING, "ulpscope"):
        entropy = ulpscope.calibrate("m.onnx", samples, "percentile", quantile=0.99, **QUIET)
    assert entropy.error == pytest.approx(int8_error(entropy, samples), rel=1e-3) and entropy.error > 0.1
    warned = [each.getMessage() for each in caplog.records if "int8 with the scales" in each.getMessage()]
    assert len(warned) == 1 and "'percentile'" in warned[0] and "'max'" in warned[0] and "'entropy'" in warned[0]
    caplog.clear()
    largest = ulpscope.calibrate("m.onnx", samples, "max", **QUIET)
    assert largest.error == pytest.approx(int8_error(largest, samples), abs=1e-3) and largest.error < 0.1
    assert "int8 with the scales" not in caplog.text
    assert ulpscope.calibrate("m.onnx", samples, "max", measure=False, **QUIET).error is None


def test_quantize_warns_of_what_it_leaves(folder, caplog):
    samples = outlier_model("m.onnx")
    narrow = ulpscope.calibrate("m.onnx", samples, "percentile", quantile=0.9, measure=False, **QUIET)
    narrow.save("narrow.cache")
    with caplog.at_level(logging.WARNING, "ulpscope"):
        _, info = ulpscope.quantize("m.onnx", "int8", samples, calibration_cache_path="narrow.cache")
    assert info.error_vs_fp32 > 0.1 and "[quantize] int8 with the scales of" in caplog.text
    assert "try calibration_method=" in caplog.text  # The name that this function has for it.
    caplog.clear()
    _, info = ulpscope.quantize("m.onnx", "int8", samples, "max")
    assert info.error_vs_fp32 < 0.1 and "int8 with the scales" not in caplog.text


def test_quantize_names_the_format_that_errs(folder, caplog):
    random = np.random.default_rng(3)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 32]),
    ]
    weights = numpy_helper.from_array(random.standard_normal((64, 32)).astype(np.float32), "w")
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    samples = [{"x": random.standard_normal((4, 64)).astype(np.float32)} for _ in range(2)]
    with caplog.at_level(logging.WARNING, "ulpscope"):
        _, info = ulpscope.quantize(model, "nvfp4", samples)
    assert info.error_vs_fp32 > 0.1 and "[quantize] nvfp4 with the scales of 'max' is off by" in caplog.text
    assert "int8 with" not in caplog.text


def test_quantize_says_which_product_lacks_the_format(folder):
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="odd")
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 37]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8]),
    ]
    graph = helper.make_graph(
        [node], "g", infos[:1], infos[1:], [numpy_helper.from_array(np.ones((37, 8), np.float32), "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    for mode in ("int4", "nvfp4", "mxfp8-weights"):
        with pytest.raises(
            ulpscope.Error, match=rf"got none; layer 'odd' \(MatMul\) has no {mode}, since its sums of 37 products"
        ):
            ulpscope.quantize(model, mode, [{"x": np.ones((4, 37), np.float32)}])


@pytest.mark.parametrize("wrong", [[{"input": np.ones((4, 24), np.float32)}], {"X": np.ones((3, 4, 24), np.float32)}])
def test_wrong_names_of_inputs_are_errors(folder, samples, wrong):
    with pytest.raises(ulpscope.Error, match=r"expected a sample with the inputs \['x'\], got \['(input|X)'\]"):
        ulpscope.search("m.onnx", wrong, **QUIET)
    with pytest.raises(ulpscope.Error, match="expected a sample with the inputs"):
        ulpscope.calibrate("m.onnx", wrong, **QUIET)


def test_precisions_have_two_names(folder):
    samples = uneven("m.onnx")
    task = {"threshold": 0.002, "objective": "smallest", "fusion": "none", **QUIET}
    short, long = (ulpscope.search("m.onnx", samples, precisions=[name], **task) for name in ("fp16", "float16"))
    assert [each.name for each in short.layers] == [each.name for each in long.layers]
    typed = [ulpscope.convert("m.onnx", precision=name, data=samples, **QUIET)[0] for name in ("bf16", "bfloat16")]
    assert typed[0].SerializeToString() == typed[1].SerializeToString()
    outputs = [ulpscope.Engine("m.onnx", precision=name).run(samples[0])["y"] for name in ("fp16", "float16")]
    np.testing.assert_array_equal(*outputs)


def test_the_answer_tells_of_everything_low(folder, samples):
    answer = ulpscope.search("m.onnx", samples, threshold=0.002, objective="smallest", fusion="none", **QUIET)
    engine, exact = ulpscope.Engine("m.onnx", precision="fp16", fusion="none"), ulpscope.Engine("m.onnx")
    searched = [sample for i, sample in enumerate(samples) if i % 4 != 3]
    errors = []
    for sample in searched:
        a, b = (each.run(sample)["y"].astype(np.float64) for each in (engine, exact))
        errors.append(np.linalg.norm(a - b) / np.linalg.norm(b))
    assert answer.lowest is not None and not answer.lowest.passed
    assert answer.lowest.search.error == pytest.approx(max(errors), rel=1e-6)
    assert (
        answer.lowest.text.startswith("All in FP16: fails: ")
        and str(answer.to_dict()["lowest"]["text"]) == answer.lowest.text
    )
    loose = ulpscope.search("m.onnx", samples, threshold=10.0, fusion="none", **QUIET)
    assert loose.lowest is not None and loose.lowest.passed and not loose.layers and not loose.lowest.only_margin
