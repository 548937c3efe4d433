"""What is done with answers and scales: convert, verify, Engine, report, calibrate, quantize, Polygraphy, torch."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import resource

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from plain_onnxruntime import plain_session
from small_models import TASK, fresh, masked_attention, outputs_of, rel_l2, run_program, save_inputs, uneven

import ulpscope

CODE = ulpscope.ErrorCode


@pytest.fixture
def answer(samples):
    return ulpscope.search("m.onnx", samples, **TASK)


def run_answer(program, folder, answer) -> list[dict[str, np.ndarray]]:
    """What `ulpscope run` gives for the answer's words."""
    answer.save("a.json")
    words = ulpscope.Answer.load("a.json").to_dict()["run_options"]
    run_program(program, folder, "run", "m.onnx", *words, "--load-inputs", "in.json", "--save-outputs", "out.json")
    return outputs_of(folder / "out.json")


def same_bits(engine: ulpscope.Engine, samples, expected) -> None:
    for sample, outputs in zip(samples, expected, strict=True):
        for name, array in engine.run(sample).items():
            assert array.tobytes() == outputs[name].tobytes(), name


def test_engines_of_answers_are_the_program(program, folder, samples, answer):
    save_inputs(folder / "in.json", samples)
    expected = run_answer(program, folder, answer)
    same_bits(ulpscope.Engine("m.onnx", answer=answer), samples, expected)
    same_bits(ulpscope.Engine(pathlib.Path("m.onnx").read_bytes(), answer=answer), samples, expected)


def test_engines_of_answers_are_built_for_the_sizes_of_the_samples(folder):
    """A product of one row, which an open size would be, has no form in fp8."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["h"], "first"),
        helper.make_node("MatMul", ["h", "w"], ["y"], "second"),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 64]) for name in "xy"]
    weights = [numpy_helper.from_array(rng.normal(size=(64, 64)).astype(np.float32), name) for name in "vw"]
    graph = helper.make_graph(nodes, "open", info[:1], info[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), "open.onnx")
    samples = [{"x": rng.normal(size=(16, 64)).astype(np.float32)} for _ in range(4)]
    answer = ulpscope.search("open.onnx", samples, precisions=["fp8", "mxfp4"], threshold=1.0, progress=False)
    assert answer.to_dict()["input_shapes"] == {"x": [16, 64]} and answer.to_dict()["build"]["layer_precisions"]
    check = ulpscope.verify("open.onnx", answer, samples)
    engine, exact = ulpscope.Engine("open.onnx", answer=answer), ulpscope.Engine("open.onnx")
    error = max(rel_l2(engine.run(sample)["y"], exact.run(sample)["y"]) for sample in samples)
    assert error == pytest.approx(check.error, rel=1e-5) and error > 1e-3


@pytest.mark.parametrize("precisions", ["fp16", ["int8", "fp16"]])
def test_engines_with_repairs_and_int8(program, folder, precisions):
    samples = masked_attention(folder / "m.onnx", blocks=2)
    save_inputs(folder / "in.json", samples)
    answer = ulpscope.search("m.onnx", samples, precisions, threshold=0.05, objective="smallest")
    assert answer.repairs
    expected = run_answer(program, folder, answer)
    engine = ulpscope.Engine("m.onnx", answer=answer)
    same_bits(engine, samples, expected)
    assert all(np.isfinite(array).all() for array in engine.run(samples[0]).values())


def test_engines_refuse_other_models_and_options(folder, answer):
    uneven(folder / "other.onnx")
    model = onnx.load("other.onnx")
    model.graph.node[0].name = "Other"
    for wrong, options, words in ((model, {}, "another model"), ("m.onnx", {"precision": "fp16"}, "answer")):
        with pytest.raises(ulpscope.Error, match=words) as caught:
            ulpscope.Engine(wrong, answer=answer, **options)
        assert caught.value.code == CODE.INVALID_ARGUMENT


def test_conversions_are_the_program(program, folder, samples, answer):
    save_inputs(folder / "in.json", samples)
    answer.save("a.json")
    run_program(program, folder, "convert", "m.onnx", "--answer", "a.json", "--load-inputs", "in.json", "-o", "theirs.onnx")
    typed, info = ulpscope.convert("m.onnx", answer, data=samples, out="ours.onnx")
    assert pathlib.Path("ours.onnx").read_bytes() == pathlib.Path("theirs.onnx").read_bytes()
    assert typed == onnx.load("theirs.onnx") and info.checked > 0
    assert dict((name, precision) for name, _, precision in info.layers)["Raise"] == "fp32"
    assert list(info.nodes_to_exclude) == ["Raise", "Lower"]
    exact, low = ulpscope.Engine("m.onnx"), ulpscope.Engine("m.onnx", answer=answer)
    errors = [rel_l2(low.run(each)["y"], exact.run(each)["y"]) for each in samples]
    assert info.error_vs_fp32 == pytest.approx(max(errors), rel=1e-6)
    assert info.error.worst_sample == int(np.argmax(errors))


def test_conversions_without_an_answer(folder, samples):
    typed, info = ulpscope.convert(
        "m.onnx", keep=["Add", "Sub"], data=samples, io_types={"x": "float16"}, verify=False
    )
    assert typed.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    assert info.error_vs_fp32 is None and info.checked == 0 and info.lowered == 4
    _, bad = ulpscope.convert("m.onnx", precision="fp16", fusion="none", data=samples)
    assert bad.error_vs_fp32 > 0.1  # Equal in every bit to what was asked for, and useless.
    with pytest.raises(ulpscope.Error, match="float17"):
        ulpscope.convert("m.onnx", io_types={"x": "float17"})
    with pytest.raises(ulpscope.Error, match="Nobody"):
        ulpscope.convert("m.onnx", keep="Nobody")


def test_a_file_that_is_not_checked_starts_no_python(samples):
    """A start takes half a second, which is most of the time of a small model."""

    def seconds_of_children() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = seconds_of_children()
    ulpscope.convert("m.onnx", precision="fp16", data=samples, verify=False)
    assert seconds_of_children() == before
    ulpscope.convert("m.onnx", precision="fp16", data=samples)
    assert seconds_of_children() > before


@pytest.mark.parametrize("values", [np.zeros((0, 4), np.float32), np.full((2, 4), np.nan, np.float32)])
def test_checks_of_nothing_are_none(folder, caplog, values):
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Softplus", ["x"], ["y"], name="plus")], "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 4])],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    data = [{"x": values}]
    _, info = ulpscope.convert(model, data=data)
    assert not info.error_vs_fp32 <= 1 and info.error.problem and "the check says nothing" in caplog.text
    answer = ulpscope.search(model, [{"x": np.ones((2, 4), np.float32)}], threshold=1e-2)
    for call in (
        lambda: ulpscope.search(model, data, threshold=1e-2), lambda: ulpscope.verify(model, answer, data),
        lambda: ulpscope.calibrate(model, data),
    ):  # fmt: skip
        with pytest.raises(ulpscope.Error, match="expected (outputs with elements|numbers|values to take scales from)") as caught:
            call()
        assert caught.value.code == CODE.INVALID_ARGUMENT


def test_the_file_of_an_answer_is_the_answer(folder, samples, answer):
    answer.save("a.json")
    for path in ("a.json", pathlib.Path("a.json")):
        made, _ = ulpscope.convert("m.onnx", path, data=samples)
        assert made.graph == ulpscope.convert("m.onnx", answer, data=samples)[0].graph
        assert ulpscope.verify("m.onnx", path, samples) == ulpscope.verify("m.onnx", answer, samples)
        same_bits(ulpscope.Engine("m.onnx", answer=path), samples, [ulpscope.Engine("m.onnx", answer=answer).run(each) for each in samples])
        assert "needs more" in ulpscope.report(path, "r.html", compare=path).read_text() or "need more" in pathlib.Path("r.html").read_text()
    uses = [lambda a: ulpscope.convert("m.onnx", a), lambda a: ulpscope.verify("m.onnx", a, samples), ulpscope.report,
            lambda a: ulpscope.Engine("m.onnx", answer=a), lambda a: ulpscope.report(answer, compare=a)]  # fmt: skip
    for use in uses:
        for wrong, code, words in (({"layers": []}, CODE.INVALID_ARGUMENT, "expected an ulpscope.Answer,? (a path or None|or a path), got {'layers': \\[\\]}"),
                                   ("none.json", CODE.NOT_FOUND, "none.json"), ("m.onnx", CODE.INVALID_FILE, "m.onnx")):  # fmt: skip
            with pytest.raises(ulpscope.Error, match=words) as caught:
                use(wrong)
            assert caught.value.code == code
    with pytest.raises(ulpscope.Error, match="threads"):
        ulpscope.Engine("m.onnx", threads=-1)


def test_relax_needs_and_keeps_a_tolerance(folder, samples, answer):
    with pytest.raises(ulpscope.Error, match="tolerance"):
        ulpscope.convert("m.onnx", keep="Add", data=samples, relax=True)
    _, info = ulpscope.convert("m.onnx", answer, data=samples, relax=True)
    assert {layer.name for layer in info.answer.layers} >= {"Raise", "Lower"}


def test_verify_takes_the_samples_of_the_search(folder, samples, answer, caplog):
    with pytest.raises(ulpscope.Error, match=r"\[verify\] data: expected samples, since the answer names no files"):
        ulpscope.verify("m.onnx", answer)
    np.savez("in.npz", x=np.stack([each["x"] for each in samples]))
    of_files = ulpscope.search("m.onnx", "in.npz", **TASK)
    assert ulpscope.verify("m.onnx", of_files) == ulpscope.verify("m.onnx", of_files, "in.npz")
    assert "The inputs are those of the search" in caplog.text


def test_verify_judges_the_emulation_and_onnxruntime(folder, samples, answer):
    data = fresh()
    exact = ort.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
    golden = [exact.run(None, each)[0] for each in data]
    engine = ulpscope.Engine("m.onnx", answer=answer)
    check = ulpscope.verify("m.onnx", answer, data)
    emulated = [rel_l2(engine.run(each)["y"], other) for each, other in zip(data, golden)]
    assert check.passed and check.error == check.predicted == pytest.approx(max(emulated), rel=1e-3)
    assert check.per_output["y"].sample == int(np.argmax(emulated)) and check.used == pytest.approx(check.error / 0.002)
    typed, _ = ulpscope.convert("m.onnx", answer, data=data)
    session = ort.InferenceSession(typed.SerializeToString(), providers=["CPUExecutionProvider"])
    real = [rel_l2(session.run(None, each)[0], other) for each, other in zip(data, golden)]
    there = ulpscope.verify("m.onnx", answer, data, runner="onnxruntime")
    assert ulpscope.verify("m.onnx", answer, data, runner="onnxrt") == there
    assert there.passed and there.error == pytest.approx(max(real), rel=1e-6) and there.predicted == check.error
    # Against ONNX Runtime's own float32, which is not quite ours; unless somebody says what is golden.
    assert (
        (there.golden, check.golden) == ("onnxruntime", "ulpscope")
        and 0 <= there.float32_used < 0.1
        and check.float32_used == 0
    )
    given = ulpscope.verify("m.onnx", answer, data, runner="onnxruntime", golden=[{"y": 2 * each} for each in golden])
    assert not given.passed and given.golden == "given"


def test_runners_that_fail_are_errors(folder, samples, monkeypatch):
    """ONNX Runtime has no bfloat16 Tanh on the CPU; what it raises has no base in common with anything."""
    answer = ulpscope.search("m.onnx", samples, "bf16", threshold=0.1, objective="smallest")
    for source, name in (("m.onnx", "m.onnx"), (pathlib.Path("m.onnx").read_bytes(), "model.onnx")):
        with pytest.raises(ulpscope.Error) as caught:
            ulpscope.verify(source, answer, fresh(), runner="onnxruntime")
        assert caught.value.code == CODE.UNSUPPORTED and caught.value.__cause__ is not None
        said = f"[verify] runner 'onnxruntime': expected it to run the typed model of '{name}', got NotImplemented: "
        assert str(caught.value).startswith(said) and "try another runner" in str(caught.value), caught.value


def test_memory_limits_hold_or_are_warned_of(folder, samples, answer, caplog):
    """Whatever the limit, the same file, verdict and scales."""
    caplog.set_level("WARNING")
    made = {}
    for limit in (0, 1000):
        caplog.clear()
        typed, _ = ulpscope.convert("m.onnx", answer, data=samples, memory_limit=limit)
        check = ulpscope.verify("m.onnx", answer, fresh(), memory_limit=limit)
        scales = ulpscope.calibrate("m.onnx", samples, progress=False, memory_limit=limit)
        made[limit] = (typed.SerializeToString(), check, dict(scales))
        said = [text for text in caplog.messages if text.startswith("[memory] memory_limit=1000 ")]
        assert len(said) == len([text for text in caplog.messages if "[memory]" in text]) == (6 if limit else 0), (
            caplog.messages
        )
    assert made[0] == made[1000]


def test_verify_fails_and_refuses(folder, samples, answer):
    low = next(answer.at(trial) for trial in answer.trials if not trial.layers)
    check = ulpscope.verify("m.onnx", low, fresh())
    assert not check.passed and check.used > 1
    assert ulpscope.verify("m.onnx", low, fresh(), threshold=1e6).passed
    golden = [{"y": ulpscope.Engine("m.onnx").run(each)["y"] * 2} for each in fresh()]
    assert not ulpscope.verify("m.onnx", answer, fresh(), golden=golden).passed
    for arguments, code in (
        (("m.onnx", answer, fresh(), "abacus"), CODE.INVALID_ARGUMENT), (("m.onnx", answer, []), CODE.INVALID_ARGUMENT),
    ):  # fmt: skip
        with pytest.raises(ulpscope.Error) as caught:
            ulpscope.verify(*arguments)
        assert caught.value.code == code


@pytest.mark.parametrize(("argument", "value"), [
    ("threads", "4"), ("margin", "x"), ("time_limit", "30s"), ("max_trials", 1.5), ("precisions", 16), ("keep", [3]), ("fallback", 32),
    ("metric", 3), ("threshold", "x"), ("fusion", None),
])  # fmt: skip
def test_arguments_of_other_types_are_named(folder, samples, argument, value):
    with pytest.raises(ulpscope.Error, match=argument) as caught:
        ulpscope.search("m.onnx", samples, **{"threshold": 1e-2, argument: value})
    assert caught.value.code == CODE.INVALID_ARGUMENT and str(value if value != [3] else 3) in str(caught.value)


@pytest.mark.parametrize(("runner", "module"), [("tensorrt", "tensorrt"), ("onnxruntime-cuda", None)])
def test_runners_that_are_not_there(folder, answer, runner, module):
    if module and importlib.util.find_spec(module) or "CUDAExecutionProvider" in ort.get_available_providers():
        pytest.skip("it is there")
    with pytest.raises(ulpscope.Error, match=runner) as caught:
        ulpscope.verify("m.onnx", answer, fresh(), runner=runner)
    assert caught.value.code == CODE.NOT_FOUND


def test_reports(folder, samples, answer):
    typed, _ = ulpscope.convert("m.onnx", answer, data=samples)
    path = ulpscope.report(answer, folder / "r.html", typed=typed)
    assert path == folder / "r.html" and "Raise" in path.read_text()
    low = next(answer.at(trial) for trial in answer.trials if not trial.layers)
    page = ulpscope.report(answer, folder / "two.html", compare=low).read_text()
    assert "Two answers" in page and low.verdict != "found" and "Not finished" in page
    assert "ulpscope run m.onnx --answer m.fp16.answer.json" in page
    # No word of `run` takes the set of a trial from a file; an answer of Python alone is in none.
    index = next(trial.index for trial in answer.trials if not trial.layers)
    page = ulpscope.report(answer.at(index), folder / "at.html").read_text()
    assert f"-o m.typed.onnx --trial {index}" in page and "--answer m.fp16.answer.json --" not in page
    assert "ulpscope run m.onnx --trt --fp16" in page and "ulpscope report" not in page
    page = ulpscope.report(ulpscope.Answer.from_json(answer.to_json()), folder / "text.html").read_text()
    assert "ulpscope convert" not in page and "ulpscope run m.onnx --trt" in page
    other = onnx.load("m.onnx")
    other.metadata_props.add(key="ulpscope.source", value="xxh3:0")
    with pytest.raises(ulpscope.Error, match="another model"):
        ulpscope.report(answer, "r.html", typed=other)


@pytest.mark.parametrize(("method", "word"), [("entropy", None), ("minmax", "max"), ("percentile", "percentile")])
def test_calibration_is_the_program(program, folder, samples, method, word):
    save_inputs(folder / "in.json", samples)
    words = ["--calib-base-cls", word] if word else []
    run_program(program, folder, "run", "m.onnx", "--trt", "--int8", "--load-inputs", "in.json", "--calibration-cache", "c", *words)
    seen = []
    cache = ulpscope.calibrate("m.onnx", iter(samples), method, progress=seen.append)
    cache.save("mine")
    assert pathlib.Path("mine").read_text() == pathlib.Path("c").read_text()
    assert ulpscope.Calibration.load("c") == cache and cache.samples == len(samples) == len(seen)
    with pytest.raises(ulpscope.Error, match="no_such"):
        ulpscope.calibrate("m.onnx", samples, "no_such")


def test_files_that_are_no_caches(folder, samples):
    pathlib.Path("c").write_bytes(b"\xff\xfe\nx: 3f800000\n")
    with pytest.raises(ulpscope.Error, match="expected a header like TRT-") as caught:
        ulpscope.Calibration.load("c")
    assert caught.value.code == CODE.INVALID_FILE


def test_quantize_speaks_like_modelopt_and_onnxruntime(folder, samples):
    first, info = ulpscope.quantize("m.onnx", calibration_data=samples, calibration_method="max", nodes_to_exclude=["Second"])
    second, _ = ulpscope.quantize(
        model_input="m.onnx", calibration_data_reader=samples, calibrate_method=_Method(), model_output="q.onnx",
        nodes_to_exclude=["Second"],
    )  # fmt: skip
    assert first == second == onnx.load("q.onnx") and 0 < info.error_vs_fp32 < 0.2
    quantized = {name for name, _, precision in info.layers if precision == "int8"}
    assert "Second" not in quantized and {"First", "Third"} <= quantized
    assert {each.op_type for each in first.graph.node} >= {"QuantizeLinear", "DequantizeLinear"}
    session = plain_session(first.SerializeToString())
    exact = ulpscope.Engine("m.onnx").run(samples[0])["y"]
    assert rel_l2(session.run(None, samples[0])[0], exact) < 0.2


@pytest.mark.parametrize("rest", ["fp16", "fp32"])
def test_quantize_only_some(folder, samples, rest):
    _, info = ulpscope.quantize(
        "m.onnx", calibration_data=samples, op_types_to_quantize=["MatMul"], nodes_to_exclude=["Second"],
        high_precision_dtype=rest, calibration_cache_path="c",
    )  # fmt: skip
    precisions = {name: precision for name, _, precision in info.layers}
    assert precisions == {"First": "int8", "Raise": rest, "Lower": rest, "Squash": rest, "Second": rest, "Third": "int8"}
    again, _ = ulpscope.quantize("m.onnx", calibration_cache_path="c", op_types_to_quantize=["MatMul"])
    assert pathlib.Path("c").exists() and again.graph.node


class _Method:
    """A member of onnxruntime's CalibrationMethod, as far as it counts."""

    name = "MinMax"


@pytest.mark.parametrize(
    ("options", "words"),
    [({"quantize_mode": "int5"}, "one of .*int4.*int5"), ({"quantize_mode": [1]}, r"got \[1\]"),
     ({}, "calibration_data"), ({"high_precision_dtype": "fp8"}, "fp8"),
     ({"model_input": "m.onnx"}, "one of them")],
)  # fmt: skip
def test_quantize_refuses(folder, samples, options, words):
    with pytest.raises(ulpscope.Error, match=words):
        ulpscope.quantize("m.onnx", **options)


def test_targets_without_the_format_are_refused(folder, samples):
    with pytest.raises(ulpscope.Error, match="target h100: NVIDIA H100 SXM has no nvfp4 arithmetic"):
        ulpscope.convert("m.onnx", precision="nvfp4", data=samples, target="h100")


def test_an_answer_without_scales_says_so(program, folder, samples, caplog):
    """An answer may come without its scales: they are calibrated anew, or layers stay floats; never without a word."""
    answer = ulpscope.search("m.onnx", samples, precisions="int8", threshold=1.0, objective="smallest")
    answer.save("a.json")
    content = json.loads((folder / "a.json").read_text())
    assert content["int8"]["scales"]
    content["int8"] = None
    (folder / "none.json").write_text(json.dumps(content))
    said = "no tensor has a scale, so layers keep the next higher enabled precision"
    ulpscope.convert("m.onnx", "none.json", data=samples)
    assert said in caplog.text
    save_inputs(folder / "in.json", samples)
    words = ("convert", "m.onnx", "none.json", "--load-inputs", "in.json", "-o", "t.onnx")
    text = run_program(program, folder, *words)
    assert "none.json: it has no scales of activations: they are calibrated on the inputs now" in text
    caplog.clear()
    ulpscope.convert("m.onnx", "a.json", data=samples)
    assert said not in caplog.text


@pytest.mark.parametrize(
    ("mode", "stored"),
    [("fp8", TensorProto.FLOAT8E4M3FN), ("int4-32", TensorProto.INT4), ("nvfp4-weights", TensorProto.FLOAT4E2M1),
     ("int8-weights", TensorProto.INT8)],
)  # fmt: skip
def test_quantize_in_other_formats(folder, mode, stored):
    random = np.random.default_rng(1)
    weights = random.standard_normal((64, 32)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 32])], [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    samples = [{"x": random.standard_normal((4, 64)).astype(np.float32)} for _ in range(2)]
    typed, _ = ulpscope.quantize(model, mode, samples)
    assert {each.data_type for each in typed.graph.initializer if len(each.raw_data) >= 1024} == {stored}
    assert any(node.op_type == "QuantizeLinear" for node in typed.graph.node) == (mode == "fp8")


def test_a_runner_for_polygraphy(folder, samples, answer):
    from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
    from polygraphy.comparator import Comparator, CompareFunc

    from ulpscope.polygraphy import UlpscopeRunner

    runners = [OnnxrtRunner(SessionFromOnnx("m.onnx")), UlpscopeRunner("m.onnx", answer=answer), UlpscopeRunner("m.onnx", "mine")]
    results = Comparator.run(runners, data_loader=samples)
    assert [name for name, _ in results][2] == "mine"
    engine = ulpscope.Engine("m.onnx", answer=answer)
    for sample, result in zip(samples, results[1][1], strict=True):
        assert result["y"].tobytes() == engine.run(sample)["y"].tobytes() and result.runtime > 0
    assert Comparator.compare_accuracy(results, compare_func=CompareFunc.simple(atol=1e-2))
    assert not Comparator.compare_accuracy(results, compare_func=CompareFunc.simple(atol=1e-7, rtol=0))


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is here")
def test_from_torch_says_that_torch_is_missing():
    with pytest.raises(ulpscope.Error, match="pip install torch") as caught:
        ulpscope.from_torch(None, ())
    assert caught.value.code == CODE.NOT_FOUND


def test_from_torch_keeps_small_constants():
    """The exporter's optimizer takes 1e-10 for 0."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Level(torch.nn.Module):
        def forward(self, x):
            return torch.log(x + 1e-10)

    model = ulpscope.from_torch(Level(), torch.ones(1, 4), input_names=["x"], output_names=["y"])
    (y,) = ulpscope.Engine(model).run({"x": np.zeros((1, 4), np.float32)}).values()
    np.testing.assert_allclose(y, np.log(1e-10), rtol=1e-6)


def test_from_torch():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.ReLU()).train()
    model = ulpscope.from_torch(module, torch.zeros(1, 4), input_names=["x"], output_names=["y"])
    x = np.float32([[1, -2, 3, 4]])
    expected = module.eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(ulpscope.Engine(model).run({"x": x})["y"], expected, rtol=1e-5, atol=1e-6)


def test_from_torch_says_what_a_module_does_not_take_and_nothing_else(capfd):
    torch = pytest.importorskip("torch")
    message = r"\[from_torch\] args: expected what the module takes, got RuntimeError"
    with pytest.raises(ulpscope.Error, match=message) as caught:
        ulpscope.from_torch(torch.nn.Linear(4, 2), torch.zeros(1, 5))
    assert caught.value.code == CODE.INVALID_ARGUMENT and capfd.readouterr().out == ""


def test_an_answer_that_stays_in_float32_is_the_model_as_it_is(folder, samples, caplog):
    answer = ulpscope.search("m.onnx", samples, threshold=1e-30, metric="rel-l2", objective="smallest")
    assert answer.verdict == "found" and len(answer.layers) == 6
    # float32 itself keeps 2.4e-4 of a sum with 3000, and ONNX Runtime adds products in another order.
    check = ulpscope.verify("m.onnx", answer, fresh(), runner="onnxruntime", threshold=1e-3, metric="rel-l2")
    assert check.passed and check.predicted == 0
    typed, info = ulpscope.convert("m.onnx", answer, data=samples)
    assert info.lowered == 0 and info.error_vs_fp32 == 0 and "keeps every layer in float32" in caplog.text
    before, after = (ort.InferenceSession(each).run(None, samples[0])[0] for each in ("m.onnx", typed.SerializeToString()))
    assert before.tobytes() == after.tobytes()
    with pytest.raises(ulpscope.Error, match="expected layers to lower, got none"):
        ulpscope.convert("m.onnx", precision="fp16", keep=["*"], data=samples)


def test_outputs_without_a_shape_get_one(folder, samples):
    """onnx.checker wants one, and refuses the typed model otherwise."""
    model = onnx.load("m.onnx")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, "shapeless.onnx")
    typed, _ = ulpscope.convert("shapeless.onnx", precision="fp16", data=samples)
    assert len(typed.graph.output[0].type.tensor_type.shape.dim) == 2
    assert ort.InferenceSession(typed.SerializeToString()).run(None, samples[0])[0].shape == (4, 24)


def test_no_inputs_are_named(folder, samples):
    with pytest.raises(ulpscope.Error, match="expected 'x', got none"):
        ulpscope.Engine("m.onnx").run({})
