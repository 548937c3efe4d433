"""Inputs in NumPy's files: the same samples as in the JSON files, sample by sample."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cli_support import encode_array
from search_support import outputs_of, save_inputs


@pytest.fixture
def two_inputs(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Mul", ["a", "b"], ["p"]), helper.make_node("Sin", ["p"], ["y"])], "g",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, [2, "n"]), helper.make_tensor_value_info("b", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, "n"])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    random = np.random.default_rng(4)
    return {"a": random.normal(size=(3, 2, 5)).astype(np.float32), "b": random.normal(size=(3, 5)).astype(np.float32)}


def check(run, tmp_path, file, arrays):
    outcome = run("run", "m.onnx", "--trt", "--load-inputs", file, "--save-outputs", "o.json")
    assert outcome.code == 0, outcome
    outputs = outputs_of(tmp_path / "o.json")
    assert len(outputs) == len(arrays["a"])
    for output, a, b in zip(outputs, arrays["a"], arrays["b"]):
        np.testing.assert_allclose(output["y"], np.sin(a * b), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_stacked_samples(run, two_inputs, tmp_path, save):
    save(tmp_path / "i.npz", **two_inputs)
    check(run, tmp_path, "i.npz", two_inputs)


def test_a_multiple_of_the_batch(run, two_inputs, tmp_path):
    np.savez(tmp_path / "i.npz", a=two_inputs["a"].reshape(6, 5), b=two_inputs["b"])
    check(run, tmp_path, "i.npz", two_inputs)


def test_one_sample(run, two_inputs, tmp_path):
    np.savez(tmp_path / "i.npz", **{name: np.asfortranarray(array[1]) for name, array in two_inputs.items()})
    check(run, tmp_path, "i.npz", {name: array[1:2] for name, array in two_inputs.items()})


def test_samples_under_another_name_are_told_the_right_one(run, model, tmp_path):
    np.savez(tmp_path / "i.npz", image=np.ones((4, 1, 1, 256, 256), np.float32))
    outcome = run("run", model, "--trt", "--load-inputs", "i.npz")
    assert outcome.code == 1 and "it was provided as 'image': try the name 'x'" in outcome.text, outcome


def test_files_after_one_another(run, two_inputs, tmp_path):
    np.savez(tmp_path / "i.npz", **{name: array[:2] for name, array in two_inputs.items()})
    save_inputs(tmp_path / "i.json", [{name: array[2] for name, array in two_inputs.items()}])
    outcome = run("run", "m.onnx", "--trt", "--load-inputs", "i.npz", "i.json", "--save-outputs", "o.json")
    assert outcome.code == 0 and len(outputs_of(tmp_path / "o.json")) == 3, outcome


def test_a_search_and_its_held_out_samples(run, model, tmp_path):
    samples = np.random.default_rng(0).uniform(1, 2, (6, 1, 1, 256, 256)).astype(np.float32)
    np.save(tmp_path / "s.npy", samples[:4])
    np.savez(tmp_path / "h.npz", x=samples[4:])
    save_inputs(tmp_path / "s.json", [{"x": x} for x in samples[:4]])
    save_inputs(tmp_path / "h.json", [{"x": x} for x in samples[4:]])
    texts = []
    for searched, held in (("s.npy", "h.npz"), ("s.json", "h.json")):
        outcome = run("precision", "search", model, "--fp16", "--fusion", "none", "--atol", "1e-3", "--rtol", "1e-2",
                      "--objective", "smallest", "--load-inputs", searched, "--hold-out", held, "--no-journal",
                      "--save-layer-precisions", "w.txt")
        assert outcome.code == 0, outcome
        texts.append((tmp_path / "w.txt").read_text())
    assert texts[0] == texts[1] != ""


def test_mistakes(run, two_inputs, tmp_path):
    np.savez(tmp_path / "uneven.npz", a=two_inputs["a"], b=two_inputs["b"][:2])
    np.savez(tmp_path / "lacks.npz", a=two_inputs["a"][0])
    np.savez(tmp_path / "objects.npz", a=np.array([{}], dtype=object), b=two_inputs["b"][0])
    np.save(tmp_path / "one.npy", two_inputs["a"])
    np.savez(tmp_path / "whole.npz", **two_inputs)
    content = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[:len(content) // 2])
    (tmp_path / "empty.npz").write_bytes(b"")
    for file, message in (("uneven.npz", "expected as many samples of every input, got 3 of 'a' and 2 of 'b'"),
                          ("lacks.npz", "Input tensor: b | Does not exist in the provided input data"), ("objects.npz", "array 'a'"),
                          ("one.npy", "expected arrays for 2 inputs, got one without a name; try an .npz file"),
                          ("cut.npz", "malformed .npz archive"), ("empty.npz", "empty.npz"), ("gone.npz", "gone.npz")):
        outcome = run("run", "m.onnx", "--trt", "--load-inputs", file)
        assert outcome.code == 1 and message in outcome.text, (file, outcome)
        assert "defect" not in outcome.text


def test_samples_that_lack_an_input_are_named_with_their_file(run, two_inputs, tmp_path):
    whole = [{name: encode_array(values[0]) for name, values in two_inputs.items()} for _ in range(3)]
    del whole[1]["b"]
    (tmp_path / "lacks.json").write_text(json.dumps(whole))
    (tmp_path / "none.json").write_text("[]")
    (tmp_path / "lacks.py").write_text(
        "import numpy as np\n\ndef load_data():\n    yield {}\n".format(
            "{name: np.zeros(shape, np.float32) for name, shape in "
            + repr({name: list(values[0].shape) for name, values in two_inputs.items() if name != "b"})
            + ".items()}"
        )
    )
    search = ["precision", "search", "m.onnx", "--fp16", "--threshold", "1", "--save-answer", "a.json"]
    for tool in (["run", "m.onnx", "--trt"], search, ["convert", "m.onnx", "--fp16", "-o", "t.onnx"],
                 ["run", "m.onnx", "--trt", "--int8"]):  # fmt: skip
        outcome = run(*tool, "--load-inputs", "lacks.json")
        assert outcome.code == 1 and "'lacks.json', iteration 1: Input tensor: b | Does not exist" in outcome.text, (
            outcome
        )
        outcome = run(*tool, "--data-loader-script", "lacks.py")
        assert outcome.code == 1 and "'lacks.py', iteration 0: Input tensor: b | Does not exist" in outcome.text, (
            outcome
        )
    outcome = run(*search, "--load-inputs", "none.json")
    assert outcome.code == 1 and "'none.json': expected inputs of at least one iteration, got none; try" in outcome.text


def test_inspection_shows_arrays_as_they_are(run, tmp_path):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.savez(tmp_path / "i.npz", a=array, b=np.int64([7]))
    np.save(tmp_path / "one.npy", array)
    outcome = run("inspect", "data", "i.npz")
    assert outcome.code == 0 and "a [dtype=float32, shape=(3, 4)] | Stats: mean=5.5" in outcome.out, outcome
    assert "b [dtype=int64, shape=(1,)] | Stats: mean=7" in outcome.out, outcome
    outcome = run("inspect", "data", "one.npy")
    assert outcome.code == 0 and "one [dtype=float32, shape=(3, 4)]" in outcome.out, outcome
    np.savez(tmp_path / "j.npz", a=array + np.float32(0.5), b=np.int64([7]))
    outcome = run("inspect", "diff", "i.npz", "j.npz")
    assert outcome.code == 1 and "max absolute difference 0.5" in outcome.out and "1 of 2 output(s) are equal" in outcome.out, outcome
    assert run("inspect", "diff", "i.npz", "i.npz").code == 0
