"""ulpscope.search and its Answer: the same as the program, in every form of data, and refused."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pathlib
import pickle
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import onnx
import pytest
from small_models import (
    TASK, beyond_fp16, masked_attention, outputs_of, rel_l2, run_program, same_but_for_time, save_inputs,
)  # fmt: skip

from test_bits import decoder

import ulpscope

CODE = ulpscope.ErrorCode


def functions_cli(program: pathlib.Path, folder: pathlib.Path, *words: str) -> pathlib.Path | None:
    """The answer of the C++ functions, where their test program is built."""
    path = program.parent / "functions_cli"
    if not path.exists():
        return None
    (folder / "cpp").mkdir()
    run_program(path, folder, "m.onnx", "in.json", "cpp", *words)
    return folder / "cpp" / "answer.json"


@pytest.mark.parametrize("metric", [["--metric", "rel-l2"], []])
def test_python_cpp_and_the_program_give_the_same_answer(program, folder, samples, metric):
    save_inputs(folder / "in.json", samples)
    run_program(
        program, folder, "precision", "search", "m.onnx", "--fp16", "--load-inputs", "in.json", *metric, "--threshold",
        "0.002", "--objective", "smallest", "--fusion", "none", "--no-journal",
    )  # fmt: skip
    theirs = (folder / "m.fp16.answer.json").read_text()
    answer = ulpscope.search("m.onnx", "in.json", **TASK)
    assert answer.objective == "smallest"
    assert same_but_for_time(answer.to_json()) == same_but_for_time(theirs)
    assert [layer.name for layer in answer.layers] == ["Raise", "Lower"] == answer.nodes_to_exclude
    if (cpp := functions_cli(program, folder, "fp16", "--threshold", "0.002")) is not None:
        assert same_but_for_time(cpp.read_text()) == same_but_for_time(theirs)


def test_products_are_tried_and_kept_in_tf32(program, folder, caplog):
    samples = beyond_fp16(folder / "m.onnx")
    save_inputs(folder / "in.json", samples[:1])
    answer = ulpscope.search(
        "m.onnx", samples, "FP16", fallback=["tf32", "float32"], threshold=1e-2, objective="smallest", repair=False
    )
    assert answer.verdict == "found", answer.message
    assert {layer.name: layer.precision for layer in answer.layers} == {"Up": "tf32", "Down": "tf32"}
    answer.save("a.json")
    assert ulpscope.verify("m.onnx", "a.json", samples).used <= 1
    engine = ulpscope.Engine("m.onnx", answer=answer)
    precisions = {layer.name: layer.precision for layer in engine.layers if layer.op != "Constant"}
    assert precisions == {"Up": "tf32", "Down": "tf32", "Last": "fp16"}
    words = answer.to_dict()["run_options"]
    assert words[words.index("--layer-precisions") + 1 :][:2] == ["Up:tf32", "Down:tf32"]
    run_program(program, folder, "run", "m.onnx", *words, "--load-inputs", "in.json", "--save-outputs", "out.json")
    float32 = ulpscope.Engine("m.onnx", layer_precisions={"Last": "fp16"}).run(samples[0])["y"]
    tf32 = engine.run(samples[0])["y"]
    assert np.array_equal(outputs_of(folder / "out.json")[0]["y"], tf32) and not np.array_equal(tf32, float32)
    # ONNX has no such type.
    typed, info = ulpscope.convert("m.onnx", answer=answer, data=samples[:1])
    assert "2 layer(s) in tf32 are float32 in the file" in caplog.text
    written = {name: precision for name, op, precision in info.layers if op != "Constant"}
    assert written == {"Up": "fp32", "Down": "fp32", "Last": "fp16"}


@pytest.mark.parametrize(("precision", "threshold"), [("tf32", 5e-3), ("fp16", 5e-3), ("bf16", 3e-2), ("int8", 5e-2)])
def test_without_a_tolerance_the_usual_one_is_taken_and_said(program, folder, samples, caplog, precision, threshold):
    save_inputs(folder / "in.json", samples)
    done = run_program(
        program, folder, "precision", "search", "m.onnx", f"--{precision}", "--load-inputs", "in.json", "--objective",
        "smallest", "--fusion", "none", "--no-journal",
    )  # fmt: skip
    words = f"No tolerance was given: metric rel-l2 with threshold {threshold} is taken, which is usual for {precision}"
    assert words in done.replace("\n", " ")
    answer = ulpscope.search("m.onnx", "in.json", precision, objective="smallest", fusion="none")
    assert [each.levelname for each in caplog.records if words in each.getMessage()] == ["WARNING"]
    assert str(threshold) in " ".join(answer.to_dict()["criterion_options"])
    theirs = (folder / f"m.{precision}.answer.json").read_text()
    assert same_but_for_time(answer.to_json()) == same_but_for_time(theirs)
    told = ulpscope.search("m.onnx", "in.json", precision, threshold=threshold, objective="smallest", fusion="none")
    assert same_but_for_time(told.to_json()) == same_but_for_time(theirs)
    if precision == "fp16" and (cpp := functions_cli(program, folder, precision)) is not None:
        assert same_but_for_time(cpp.read_text()) == same_but_for_time(theirs)


def test_the_same_with_int8_repairs_and_calibration(program, folder):
    save_inputs(folder / "in.json", masked_attention(folder / "m.onnx", blocks=2))
    run_program(
        program, folder, "precision", "search", "m.onnx", "--fp16", "--int8", "--load-inputs", "in.json", "--metric",
        "rel-l2", "--threshold", "0.05", "--objective", "smallest", "--no-journal",
    )  # fmt: skip
    answer = ulpscope.search("m.onnx", "in.json", ["int8", "fp16"], threshold=0.05, objective="smallest")
    assert same_but_for_time(answer.to_json()) == same_but_for_time((folder / "m.fp16-int8.answer.json").read_text())
    assert any(repair.kind == "clamp" for repair in answer.repairs) and answer.scales
    answer.save("mine.json")
    theirs = pathlib.Path("m.fp16-int8.answer.calibration.cache").read_text()
    assert pathlib.Path("mine.calibration.cache").read_text() == theirs
    pathlib.Path("mine.calibration.cache").write_text("of another search")
    answer.save("mine.json")
    assert pathlib.Path("mine.calibration.cache").read_text() == theirs
    assert "--repairs mine.json" in " ".join(ulpscope.Answer.load("mine.json").to_dict()["run_options"])


def test_regions_are_scaled_for_what_leaves_int8(program, folder):
    samples = beyond_fp16(folder / "m.onnx")
    weights = [onnx.numpy_helper.to_array(each).astype(np.float64) for each in onnx.load(folder / "m.onnx").graph.initializer]
    save_inputs(folder / "in.json", samples)
    task = {"fallback": ["float16", "float32"], "threshold": 0.004, "objective": "smallest"}
    answer = ulpscope.search("m.onnx", "in.json", ["int8", "fp16"], **task)
    assert answer.verdict == "found" and [repair.kind for repair in answer.repairs] == ["scale"]
    assert {layer.precision for layer in answer.layers} == {"fp16"}
    plain = ulpscope.search("m.onnx", "in.json", ["int8", "fp16"], repair=False, **task)
    assert "fp32" in {layer.precision for layer in plain.layers}
    run_program(
        program, folder, "precision", "search", "m.onnx", "--int8", "--precision", "float16", "float32", "--load-inputs",
        "in.json", "--metric", "rel-l2", "--threshold", "0.004", "--objective", "smallest", "--no-journal",
    )  # fmt: skip
    assert same_but_for_time(answer.to_json()) == same_but_for_time((folder / "m.fp16-int8.answer.json").read_text())
    # By NumPy in float64: the engine of the answer, and one with every layer in int8, whose scales the repair moves.
    exact = [each["x"] @ weights[0] @ weights[1] @ weights[2] for each in samples]
    engine = ulpscope.Engine("m.onnx", answer=answer)
    for sample, y in zip(samples, exact):
        assert np.linalg.norm(engine.run(sample)["y"] - y) <= 0.004 * np.linalg.norm(y)
    low = ulpscope.Engine("m.onnx", answer=answer.at(next(t for t in answer.trials if not t.layers)))
    for sample, y in zip(samples, exact):
        assert 0.004 * np.linalg.norm(y) < np.linalg.norm(low.run(sample)["y"] - y) < 0.1 * np.linalg.norm(y)
    assert ulpscope.verify("m.onnx", answer, samples).used <= 1


class Reader:
    def __init__(self, samples):
        self.samples = iter(samples)

    def get_next(self):
        return next(self.samples, None)


def forms(samples, folder):
    stacked = {"x": np.stack([each["x"] for each in samples])}
    np.savez(folder / "in.npz", **stacked)
    np.save(folder / "in.npy", np.concatenate([each["x"] for each in samples]))
    save_inputs(folder / "in.json", samples)
    return {
        "generator": (each for each in samples), "reader": Reader(samples), "stacked": stacked, "npz": folder / "in.npz",
        "npy": "in.npy", "json": str(folder / "in.json"), "lists": [{"x": each["x"].tolist()} for each in samples],
    }  # fmt: skip


def without_inputs(answer: ulpscope.Answer) -> dict:
    return {**same_but_for_time(answer.to_json()), "inputs": []}


def test_data_in_every_form(folder, samples):
    expected = without_inputs(ulpscope.search("m.onnx", samples, **TASK))
    for name, data in forms(samples, folder).items():
        assert without_inputs(ulpscope.search("m.onnx", data, **TASK)) == expected, name


@pytest.mark.parametrize("form", ["npz", "npy"])
def test_the_program_reads_the_files_of_numpy_alike(program, folder, samples, form):
    forms(samples, folder)
    run_program(
        program, folder, "precision", "search", "m.onnx", "--fp16", "--load-inputs", f"in.{form}", "--metric", "rel-l2",
        "--threshold", "0.002", "--objective", "smallest", "--fusion", "none", "--no-journal",
    )  # fmt: skip
    theirs = (folder / "m.fp16.answer.json").read_text()
    assert same_but_for_time(ulpscope.search("m.onnx", f"in.{form}", **TASK).to_json()) == same_but_for_time(theirs)


def test_models_in_every_form(folder, samples):
    expected = same_but_for_time(ulpscope.search("m.onnx", samples, **TASK).to_json())
    model = onnx.load("m.onnx")
    # Bytes and messages have no path; a message may serialize its fields in another order.
    for each in (pathlib.Path("m.onnx"), pathlib.Path("m.onnx").read_bytes(), model):
        answer = same_but_for_time(ulpscope.search(each, samples, **TASK).to_json())
        names = {"model", "run_options"}
        assert {k: v for k, v in answer.items() if k not in names} == {
            k: v for k, v in expected.items() if k not in names
        }


def test_polygraphy_data_loaders_make_the_data(folder, samples):
    from polygraphy.comparator import DataLoader

    answer = ulpscope.search("m.onnx", DataLoader(iterations=5, val_range=(-1, 1)), **TASK)
    assert answer.to_dict()["search"]["samples"] == 4 and answer.verdict == "found"


def test_golden_and_held_out_data(folder, samples):
    exact = [ulpscope.Engine("m.onnx", fusion="none").run(each) for each in samples]
    same = ulpscope.search("m.onnx", samples, golden=exact, **TASK)
    own = ulpscope.search("m.onnx", samples, **TASK)
    assert (same.layers, same.search, same.held_out) == (own.layers, own.search, own.held_out)
    held = ulpscope.search("m.onnx", samples[:4], hold_out=samples[4:], golden=exact, **TASK)
    assert held.held_out is not None and held.to_dict()["held_out"]["samples"] > 0
    assert ulpscope.search("m.onnx", samples, hold_out=False, **TASK).held_out is None
    wrong = [{"y": each["y"] + 1} for each in exact]
    assert ulpscope.search("m.onnx", samples, golden=wrong, **TASK).verdict == "not-reachable"


def largest_difference(golden, candidate):
    """Of a module, so that it can be pickled."""
    return float(np.abs(golden["y"] - candidate["y"]).max())


def test_answers_are_equal_and_travel(folder, samples, monkeypatch):
    """To a process of its own, whose results and errors come back; with int8 scales, the place, and a function as metric."""
    # Which takes the path of this process, where other tests put sources first.
    monkeypatch.syspath_prepend(pathlib.Path(ulpscope.__file__).parents[1])
    answers = [ulpscope.search("m.onnx", samples, ("int8", "fp16"), threshold=0.05, fusion="none"),
               ulpscope.search("m.onnx", samples, **{**TASK, "metric": largest_difference, "threshold": 1e-2})]  # fmt: skip
    answers[0].save("a.json")
    answers += [ulpscope.Answer.load("a.json"), answers[0].at(0)]
    assert answers[0] == answers[2] and len(set(answers)) == 3 and answers[0] != "a.json"
    for answer in answers:
        for other in (pickle.loads(pickle.dumps(answer)), copy.copy(answer), copy.deepcopy(answer)):
            assert other == answer and hash(other) == hash(answer) and other.to_json() == answer.to_json()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        for answer in answers:
            check = pool.submit(ulpscope.verify, "m.onnx", answer, samples).result()
            assert check == ulpscope.verify("m.onnx", answer, samples)
            # The words of the page have the place of the answer, which its file does not say.
            path = pool.submit(ulpscope.report, answer, "there.html").result()
            assert path.read_text() == ulpscope.report(answer, "here.html").read_text().replace("here.html", "there.html")
        found = pool.submit(ulpscope.search, "m.onnx", samples, **TASK).result()
        assert same_but_for_time(found.to_json()) == same_but_for_time(ulpscope.search("m.onnx", samples, **TASK).to_json())
        with pytest.raises(ulpscope.Error, match="none.onnx") as caught:
            pool.submit(ulpscope.search, "none.onnx", samples, **TASK).result()
        assert caught.value.code == ulpscope.ErrorCode.NOT_FOUND
    stopped = pickle.loads(pickle.dumps(ulpscope.SearchInterrupted(answers[0])))
    assert stopped.answer == answers[0]
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(ulpscope.search("m.onnx", samples, metric=lambda golden, candidate: 0.0, threshold=1))


def test_journals_go_on(folder, samples):
    first = ulpscope.search("m.onnx", samples, journal="j.jsonl", **TASK)
    again = ulpscope.search("m.onnx", samples, journal="j.jsonl", resume=True, **TASK)
    assert same_but_for_time(first.to_json()) == same_but_for_time(again.to_json())
    with pytest.raises(ulpscope.Error, match="--threshold|criterion"):
        ulpscope.search("m.onnx", samples, journal="j.jsonl", resume=True, **{**TASK, "threshold": 0.003})


def test_answers(folder, samples):
    answer = ulpscope.search("m.onnx", samples, **TASK)
    assert answer.verdict == "found" and answer.reasons["Raise"].kind == "cancellation"
    assert answer.error == answer.to_dict()["search"]["value"] and answer.held_out.passed
    answer.save("a.json")
    loaded = ulpscope.Answer.load(pathlib.Path("a.json"))
    assert json.loads(loaded.to_json()) == answer.to_dict() and loaded.trials == answer.trials
    assert ulpscope.Answer.from_json(answer.to_json()).layers == answer.layers
    page = answer._repr_html_()
    assert "<td>Raise</td>" in page and "&lt;= 0.002" in page and "found" in page


def test_the_curve_and_other_trials(folder, samples):
    answer = ulpscope.search("m.onnx", samples, **TASK)
    curve = answer.pareto()
    assert [(p.time_us, p.used, p.raised) for p in curve] == [tuple(p) for p in answer.to_dict()["curve"]]
    for trial in answer.trials:
        other = answer.at(trial)
        assert other.objective is None
        assert {(layer.name, layer.precision) for layer in other.layers} == set(trial.layers)
        engine = ulpscope.Engine("m.onnx", answer=other)
        raised = {layer.name for layer in engine.layers if layer.precision == "fp32" and layer.op != "Constant"}
        assert {name for name, _ in trial.layers} <= raised
        if trial.kind == "search":
            assert other.error == trial.judgement.error
            assert other.verdict == ("found" if trial.passed and other.held_out else "unverified")
    assert answer.at(curve[-1]).layers if curve[-1].trial is not None else True
    for wrong in (len(answer.trials), -len(answer.trials) - 1):
        with pytest.raises(ulpscope.Error, match="trial"):
            answer.at(wrong)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"threshold": None, "metric": "kl"}, CODE.INVALID_ARGUMENT, "expected a threshold beside the metric"),
        ({"atol": 1e-3}, CODE.INVALID_ARGUMENT, "got both"),
        ({"threshold": "tight"}, CODE.INVALID_ARGUMENT, "threshold: expected a number"),
        ({"threshold": {"y": None}}, CODE.INVALID_ARGUMENT, "threshold: expected a number"),
        ({"progress": 3}, CODE.INVALID_ARGUMENT, "expected a callable"),
        ({"time_limit": -1}, CODE.INVALID_ARGUMENT, "time limit"),
        ({"max_trials": -1}, CODE.INVALID_ARGUMENT, "max trials"),
        ({"threads": -1}, CODE.INVALID_ARGUMENT, "threads"),
        ({"metric": "l7"}, CODE.INVALID_ARGUMENT, "l7"),
        ({"threshold": {"z": 1}}, CODE.INVALID_ARGUMENT, "z"),
        ({"objective": "best"}, CODE.INVALID_ARGUMENT, "best"),
        ({"precisions": "fp17"}, CODE.INVALID_ARGUMENT, "fp17"),
        ({"fallback": "float17"}, CODE.INVALID_ARGUMENT, "float17"),
        (
            {"fallback": []},
            CODE.INVALID_ARGUMENT,
            "fallback: expected one or more of fp32, tf32, fp16 and bf16, got none",
        ),
        ({"fallback": "int8"}, CODE.INVALID_ARGUMENT, "fallback: expected one or more of .* got int8"),
        ({"golden": []}, CODE.INVALID_ARGUMENT, r"\[golden\] expected at least one sample, got none"),
        ({"hold_out": []}, CODE.INVALID_ARGUMENT, r"\[hold_out\] expected at least one sample, got none"),
        ({"data": "empty.npz"}, CODE.INVALID_FILE, "empty.npz"),
        ({"data": [{"x": [[1], [1, 2]]}]}, CODE.INVALID_ARGUMENT, "'x': expected an array"),
        ({"keep": "Nobody"}, CODE.INVALID_ARGUMENT, "Nobody"),
        ({"margin": 2}, CODE.INVALID_ARGUMENT, "margin"),
        ({"calibration": "none.cache", "precisions": "int8"}, CODE.NOT_FOUND, "none.cache"),
        ({"golden": "none.json"}, CODE.NOT_FOUND, "none.json"),
        ({"data": "none.npz"}, CODE.NOT_FOUND, "none.npz"),
        ({"data": []}, CODE.INVALID_ARGUMENT, "at least one"),
        ({"data": 7}, CODE.INVALID_ARGUMENT, "got 7"),
        ({"data": [np.zeros(3)]}, CODE.INVALID_ARGUMENT, "dictionary"),
        ({"data": [{"z": np.zeros(3)}]}, CODE.INVALID_ARGUMENT, "x"),
        ({"data": {"x": np.zeros((3, 4, 24)), "k": np.zeros((2,))}}, CODE.INVALID_ARGUMENT, "3 of 'x'"),
        ({"precisions": "nvfp4", "target": "h100"}, CODE.INVALID_ARGUMENT, "H100 SXM has no nvfp4 arithmetic"),
        ({"model": "none.onnx"}, CODE.NOT_FOUND, "none.onnx"),
        ({"model": 3}, CODE.INVALID_ARGUMENT, "from_torch"),
    ],
)
def test_mistakes_are_errors_with_codes(folder, samples, options, code, words):
    pathlib.Path("empty.npz").touch()
    arguments = {"model": "m.onnx", "data": samples, **TASK, **options}
    with pytest.raises(ulpscope.Error, match=words) as caught:
        ulpscope.search(arguments.pop("model"), arguments.pop("data"), **arguments)
    assert caught.value.code == code


def test_a_limit_is_a_verdict(folder, samples):
    answer = ulpscope.search("m.onnx", samples, max_trials=1, **TASK)
    assert answer.verdict == "unverified" and "limit" in answer.message


def test_errors_of_sets_that_were_tried_to_measure_a_layer(folder):
    """The sum alone passes; that is known from a trial in which the Scan, which has no derivative, was the only low
    layer."""
    node, info, kind = onnx.helper.make_node, onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    body = onnx.helper.make_graph(
        [node("Add", ["s", "e"], ["t"]), node("Relu", ["t"], ["u"])], "body",
        [info("s", kind, [8]), info("e", kind, [8])], [info("t", kind, [8]), info("u", kind, [8])],
    )  # fmt: skip
    nodes = [
        node("Scan", ["x0", "x"], ["last", "all"], "scan", num_scan_inputs=1, body=body),
        node("Add", ["last", "c"], ["y"], "sum"),
    ]
    constant = onnx.numpy_helper.from_array(np.float32(3000), "c")
    graph = onnx.helper.make_graph(
        nodes, "g", [info("x0", kind, [8]), info("x", kind, [1, 8])], [info("y", kind, [8])], [constant]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)

    def normal(*seed: int, shape):
        return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)

    samples = [{"x0": normal(i, 0, shape=8), "x": normal(i, 1, shape=(1, 8))} for i in range(4)]
    answer = ulpscope.search(model, samples, threshold=1e-4, hold_out=False, objective="smallest", progress=False)
    assert [layer.name for layer in answer.layers] == ["sum"]
    exact, low = ulpscope.Engine(model), ulpscope.Engine(model, answer=answer)
    errors = [rel_l2(low.run(s)["y"], exact.run(s)["y"]) for s in samples]
    assert max(errors) > 0 and answer.search.used == pytest.approx(max(errors) / 1e-4, rel=1e-9)
    assert answer.search.worst_output == "y" and "smallest" in answer.to_dict()["sets"]


def test_bits_as_the_program_has_them(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_inputs(tmp_path / "in.json", decoder(tmp_path / "m.onnx"))
    run_program(
        program, tmp_path, "precision", "search", "m.onnx", "--weights-only", "--int4", "--nvfp4", "--int8",
        "--load-inputs", "in.json", "--metric", "kl", "--bits", "5", "--no-journal", "--save-answer", "theirs.json",
    )  # fmt: skip
    answer = ulpscope.search("m.onnx", "in.json", ["int4", "nvfp4-weights", "int8-weights"], metric="kl", bits=5)
    theirs = ulpscope.Answer.load("theirs.json")
    assert answer.objective == "error" and answer.bits == theirs.bits
    assert answer.bits.per_weight <= answer.bits.budget == 5
    assert answer.bits.per_weight == sum(each.bits for each in answer.bits.layers) / answer.bits.weights
    assert answer.error == theirs.error
    fewest = ulpscope.search(
        "m.onnx", "in.json", ["int4", "int8-weights"], metric="kl", threshold=0.01, objective="bits"
    )
    assert fewest.bits.budget is None and fewest.verdict == "found" and fewest.error <= 0.01


def test_refused_bits(tmp_path):
    samples = decoder(tmp_path / "m.onnx")
    for words, message in (
        ({"bits": 1, "precisions": ["int4"]}, "expected at least 4.2500"),
        ({"bits": 5}, "formats"),
        ({"bits": 0, "precisions": ["int4"]}, "above 0"),
        ({"bits": 5, "precisions": ["int4"], "objective": "cheapest"}, "contradict"),
    ):
        with pytest.raises(ulpscope.Error, match=message) as raised:
            ulpscope.search(str(tmp_path / "m.onnx"), samples, metric="kl", **words)
        assert raised.value.code == CODE.INVALID_ARGUMENT and "--bits" not in str(raised.value)


@pytest.mark.parametrize("held_out", [0, 4])
@pytest.mark.parametrize("objective", ["fastest", "smallest"])
def test_layers_behind_which_nothing_has_a_derivative(objective, held_out):
    """To the prediction nothing in front of a QuantizeLinear matters: still it is raised where the trial fails."""
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["h"], "conv"),
        onnx.helper.make_node("QuantizeLinear", ["h", "s"], ["y"], "quantize"),
    ]
    graph = onnx.helper.make_graph(
        nodes, "g", [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1, 500])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, [1, 1, 500])],
        [onnx.numpy_helper.from_array(np.full((1, 1, 1), 0.337356, np.float32), "w"),
         onnx.numpy_helper.from_array(np.float32(0.029395), "s")])  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    random = np.random.default_rng(0)
    samples = [{"x": np.abs(random.standard_normal((1, 1, 500)) * 4).astype(np.float32)} for _ in range(8)]
    # Half of what everything in fp16 is off by.
    answer = ulpscope.search(model, samples[:4], "fp16", threshold=9e-4, objective=objective,
                             hold_out=samples[4 : 4 + held_out] or False)  # fmt: skip
    assert answer.verdict == "found" and [layer.name for layer in answer.layers] == ["conv"]
    assert answer.search.error == 0
