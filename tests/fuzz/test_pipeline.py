"""Random graphs through convert, answers, search and verify, always the same; and that this sees what is wrong."""

from __future__ import annotations

import copy
import dataclasses
import os
import pathlib
from collections import Counter

import numpy as np
import onnx
import pytest

from fuzz import conversions, searches
from fuzz.graph import Graph
from fuzz.reasons import false_reason
from fuzz.run import run_graphs, shrunk_failures
from fuzz.shrink import settled
from fuzz.steps import CONVERT, SEARCH, RefusedTruly, Step, known, rel_l2, same_bits
from fuzz.stress import FORMS, generate_for_pipeline
from fuzz.worker import PIPELINE

COUNT = int(os.environ.get("ULPSCOPE_PIPELINE_COUNT", "120"))
SEED = 2_000_000
IN_FLOAT = "by a function with constants in float32, which onnx.checker refuses for"


@pytest.fixture(scope="module")
def summary():
    return run_graphs(SEED, COUNT, max(1, min(4, os.cpu_count() or 1)), PIPELINE)


def test_graphs(summary, tmp_path: pathlib.Path) -> None:
    if not summary.passed:
        pytest.fail(shrunk_failures(summary, tmp_path))


def test_all_stages_have_work(summary) -> None:
    """Most steps come to an end, and are not refused."""
    if COUNT < 100:
        pytest.skip("too few graphs to count")
    counts, graphs = summary.counts, summary.graphs
    for what, share in (
        ("convert fp16", 0.5), ("convert bf16", 0.5), ("answers that keep layers", 0.7), ("answers with repairs", 0.02),
        ("search fp16: found", 0.5), ("typed models that ONNX Runtime ran", 2),
        ("assignments said in words of the program", 0.02),
        ("unchanged models that were verified in ONNX Runtime", 0.15),
    ):  # fmt: skip
        assert counts[what] >= share * graphs, f"{what}: {counts[what]} of {graphs}"


def test_every_stress_occurs() -> None:
    kinds = {
        node.op_type for seed in range(60) for node in generate_for_pipeline(seed).nodes if "_s" in node.name
    }
    assert {"Mul", "Sqrt", "Div", "Sub", "Softmax", "Max", "Min"} <= kinds and len(FORMS) == 6


@pytest.fixture(scope="module")
def product() -> Graph:
    """y = relu(c x w): nothing of it is exact in float16."""
    rng = np.random.default_rng(0)
    x, w, c = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 8), (8, 5), (5,)))
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        onnx.helper.make_node("Mul", ["p", "c"], ["m"], "scale"),
        onnx.helper.make_node("Relu", ["m"], ["y"], "relu"),
    ]
    return settled(Graph(0, 17, nodes, [{"x": x}], {"w": w, "c": c}, ["y"], {}))


def _typed(graph: Graph, step: Step):
    typed, report, _ = conversions.convert(
        graph.model(), precision=step.precisions, fusion=step.fusion, data=graph.feeds, keep=known(step.keep, graph)
    )
    return typed, report


def test_sees_other_bits_in_a_typed_model(product: Graph) -> None:
    step = Step(CONVERT, ["fp16"], "none", ["MatMul"])
    typed, report = _typed(product, step)
    assert conversions.same_assignment(typed, report, product, step) == []
    words = report.layer_precisions.replace(":float32", ":float16")
    assert words != report.layer_precisions
    other = dataclasses.replace(report, layer_precisions=words)
    assert [each.what for each in conversions.same_assignment(typed, other, product, step)] == [
        "typed model and layer_precisions"
    ]


def test_sees_float32_layers_that_changed(product: Graph) -> None:
    typed, report = _typed(product, Step(CONVERT, ["fp16"], "none", ["MatMul"]))
    assert conversions._unchanged(typed, report, product) == []
    for change in ("op_type", "name"):
        wrong = copy.deepcopy(typed)
        node = next(each for each in wrong.graph.node if each.op_type == "MatMul")
        setattr(node, change, "Gemm")
        assert conversions._unchanged(wrong, report, product), change


def test_sees_files_that_are_invalid(product: Graph) -> None:
    typed, _ = _typed(product, Step(CONVERT, ["fp16"], "none"))
    counts: Counter = Counter()
    assert conversions.check_file(typed, product, ["fp16"], counts) == [] and counts
    newer = copy.deepcopy(typed)
    newer.opset_import[0].version = 27
    assert {"opset"} < {each.what for each in conversions.check_file(newer, product, ["fp16"], counts)}
    mixed = copy.deepcopy(typed)
    cast = next(each for each in mixed.graph.node if each.op_type == "Cast")
    cast.attribute[0].i = onnx.TensorProto.DOUBLE
    assert conversions.check_file(mixed, product, ["fp16"], counts)


@pytest.mark.parametrize(
    "op, reason, blocked, true",
    [
        ("Relu", "ONNX has no float16 Relu at opset 17", False, False),
        ("Relu", "ONNX has no bfloat16 Relu at opset 12", False, False),
        ("Relu", "ONNX has no bfloat16 Relu at opset 12", True, True),
        ("Hardmax", "ONNX has no bfloat16 Hardmax at opset 12", True, True),
        ("Celu", "ONNX has no float16 Celu at opset 25", False, True),
        ("MeanVarianceNormalization", "ONNX has no float16 MeanVarianceNormalization at opset 19", False, False),
        (
            "MeanVarianceNormalization",
            f"ONNX defines MeanVarianceNormalization at opset 19 {IN_FLOAT} float16",
            False,
            True,
        ),
        (
            "MeanVarianceNormalization",
            f"ONNX defines MeanVarianceNormalization at opset 9 {IN_FLOAT} bfloat16",
            False,
            False,
        ),
        ("HardSigmoid", f"ONNX defines HardSigmoid at opset 6 {IN_FLOAT} float16", False, False),
        ("Relu", f"ONNX defines MeanVarianceNormalization at opset 19 {IN_FLOAT} float16", False, False),
        ("Relu", "opset 11 has no bfloat16", True, True),
        ("Relu", "opset 17 has no bfloat16", True, False),
        ("Relu", "the weather is bad", False, False),
    ],
)
def test_knows_which_reasons_are_true(op: str, reason: str, blocked: bool, true: bool) -> None:
    assert (false_reason(op, "", reason, blocked) is None) == true


def test_refusals_are_held_against_the_engine(product: Graph) -> None:
    error = RuntimeError("m.onnx: expected layers to lower, got none; all its float layers are kept")
    options = {"keep": [], "lower": [], "layer_precisions": {}}
    step = Step(CONVERT, ["fp16"], "none")
    assert "can be lowered" in str(conversions.refusal(error, step, product, options))
    everything = {**options, "keep": ["*"]}
    assert isinstance(conversions.refusal(error, step, product, everything), RefusedTruly)


def test_sees_errors_that_are_not_as_said(product: Graph) -> None:
    step = Step(SEARCH, ["fp16"], "none")
    fixture = searches.Fixture(product, step)
    threshold = searches._threshold(fixture)
    answer = searches._search(fixture, ["fp16"], threshold=threshold, hold_out=False)
    engine = searches._engine("an answer", fixture.model, answer=answer)
    low = searches._engine("everything low", fixture.model, precision="fp16", fusion="none")
    said = searches._error_is_as_said
    assert answer.verdict == "found" and said(fixture, answer, engine, [], threshold) == []
    causes = {each.what for each in said(fixture, answer, low, [], threshold)}
    assert causes == {"the error of the answer", "the verdict found"}


@pytest.mark.parametrize("value", [np.nan, 1.0])
def test_a_golden_of_onnxruntime_is_held_against_onnxruntime(product: Graph, monkeypatch, value: float) -> None:
    import ulpscope

    def refuse(*args, **options):
        raise RuntimeError("[golden] output 'y', sample 0: expected numbers, got 15 NaN in 15 elements")

    monkeypatch.setattr(ulpscope, "verify", refuse)
    monkeypatch.setattr(searches, "onnxruntime_run", lambda *args, **options: [np.full((3, 5), value, np.float32)])
    step = Step(SEARCH, ["fp16"], "none")
    if np.isnan(value):
        with pytest.raises(RefusedTruly, match="no numbers in ONNX Runtime"):
            searches.keep_all(step, product, Counter())
    else:
        assert "15 NaN" in str(searches.keep_all(step, product, Counter()))


def test_bits_and_norms() -> None:
    one = {"y": np.float32([1, 0, np.nan])}
    assert same_bits(one, {"y": np.float32([1, 0, np.nan])}) == ""
    for other in ([1, -0.0, np.nan], [np.nextafter(np.float32(1), 2), 0, np.nan], [1, 0, 3]):
        assert same_bits(one, {"y": np.float32(other)})
    assert same_bits(one, {"y": np.float64([1, 0, np.nan])})
    assert rel_l2({"y": np.float32([3, 4])}, {"y": np.float32([3, 4.5])}) == pytest.approx(0.1)
    assert (
        rel_l2({"y": np.zeros(2)}, {"y": np.ones(2)}) == np.inf == rel_l2({"y": np.ones(2)}, {"y": np.full(2, np.nan)})
    )
