"""Inputs that a model leaves open, on the command line: of any rank, and initializers that are inputs, too."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cli_support import encode_array

FLOAT = TensorProto.FLOAT


@pytest.fixture
def any_rank(tmp_path):
    """y = Relu(x), x of any rank."""
    infos = [helper.make_tensor_value_info(name, FLOAT, None) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="Relu")], "any", infos[:1], infos[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "any.onnx"
    )
    return "any.onnx"


@pytest.fixture
def scaled(tmp_path):
    """y = x * w, w = [2, 3] unless it is given."""
    infos = [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("x", "w", "y")]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"], name="Mul")], "scaled", infos[:2], infos[2:],
                              [numpy_helper.from_array(np.float32([2, 3]), "w")])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "scaled.onnx"
    )
    return "scaled.onnx"


def inputs_file(path, *samples):
    path.write_text(json.dumps([{name: encode_array(np.float32(each)) for name, each in s.items()} for s in samples]))
    return path.name


@pytest.mark.parametrize("shape", ["[2,3]", "[]", "[0,4]", "[1,2,1,2,1]"])
def test_any_rank_with_shapes(run, any_rank, shape):
    outcome = run("run", any_rank, "--trt", "--onnxrt", "--input-shapes", f"x:{shape}")
    assert outcome.code == 0 and "Cannot use provided custom shape" not in outcome.text, outcome
    said = str(tuple(json.loads(shape)))
    assert (
        outcome.out.count(f"{{x [dtype=float32, shape={said}]}}") == 2
        and f"'y' (dtype=float32, shape={said})" in outcome.out
    )


@pytest.mark.parametrize("runner", ["--trt", "--onnxrt", "--pluginref"])
@pytest.mark.parametrize("given", [[], ["--input-shapes", "x:[-1,2]"], ["--input-shapes", "z:[1,2]"]])
def test_a_shape_that_is_needed_is_asked_for(run, any_rank, runner, given):
    outcome = run("run", any_rank, runner, *given)
    assert (
        outcome.code == 1
        and "[inputs] input 'x': expected a shape, since the model gives not even its rank" in outcome.text
    )
    assert '--input-shapes "x:[1,3,224,224]", or --load-inputs FILE' in outcome.text, outcome


def test_data_of_several_ranks(run, any_rank, tmp_path):
    samples = inputs_file(tmp_path / "samples.json", {"x": [[1, -2]]}, {"x": [3, -4, 5]}, {"x": -6})
    outcome = run("run", any_rank, "--trt", "--fp16", "--onnxrt", "--load-inputs", samples)
    assert outcome.code == 0 and "Passed: 3/3 iterations" in outcome.out, outcome


def test_a_profile_gives_the_rank(run, any_rank):
    profile = [word for name in ("min", "opt", "max") for word in (f"--trt-{name}-shapes", "x:[2,3]")]
    outcome = run("run", any_rank, "--trt", "--onnxrt", *profile)
    assert outcome.code == 0 and "{x [dtype=float32, shape=(2, 3)]}" in outcome.out, outcome
    refused = run("run", any_rank, "--trt", *profile, "--input-shapes", "x:[2,3,1]")
    assert (
        refused.code == 1
        and "expected the shape between the minimum and maximum of a profile, got (2, 3, 1)" in refused.text
    )


def test_all_the_way_from_an_input_of_any_rank(run, any_rank, tmp_path):
    np.savez(tmp_path / "samples.npz", x=np.float32([[1, -2], [3, 0.1]]))
    found = run("precision", "search", any_rank, "--fp16", "--load-inputs", "samples.npz", "--threshold", "1e-2")
    assert found.code == 0, found
    answer = next(tmp_path.glob("*.answer.json")).name
    made = run("convert", any_rank, "--answer", answer, "--load-inputs", "samples.npz", "-o", "typed.onnx")
    assert made.code == 0, made
    assert not onnx.load(tmp_path / "typed.onnx").graph.input[0].type.tensor_type.HasField("shape")
    assert run("verify", any_rank, "--answer", answer, "--load-inputs", "samples.npz").code == 0


def test_engines_of_any_rank(run, any_rank):
    shaped = ["--input-shapes", "x:[2,3]"]
    made = run("run", any_rank, "--trt", "--save-engine", "any.engine", *shaped)
    assert made.code == 0, made
    outcome = run("run", "any.engine", "--trt", "--input-shapes", "x:[4,1,2]")
    assert outcome.code == 0 and "{x [dtype=float32, shape=(4, 1, 2)]}" in outcome.out, outcome
    inspected = run("inspect", "model", "any.engine")
    assert inspected.code == 0 and "x [dtype=float32]" in inspected.out, inspected
    refused = run("convert", any_rank, "-o", "other.engine")
    assert refused.code == 1 and "the model gives not even the rank of an input" in refused.text, refused


@pytest.mark.parametrize("dims", ["-1,3", "-100,3"])
def test_negative_dimensions_are_dynamic(run, polygraphy, dynamic_model, dims):
    words = ["--input-shapes", f"x:[{dims}]"]
    ours, theirs = run("run", dynamic_model, "--trt", *words), polygraphy("run", dynamic_model, "--onnxrt", *words)
    assert ours.code == theirs.code == 0, (ours, theirs)
    for outcome in (ours, theirs):
        assert "is dynamic." in outcome.text and "{x [dtype=float32, shape=(1, 3)]}" in outcome.text, outcome


@pytest.mark.parametrize("runners", [["--trt"], ["--onnxrt"], ["--pluginref"], ["--trt", "--onnxrt"]])
def test_initializers_are_given_by_files(run, scaled, tmp_path, runners):
    samples = inputs_file(tmp_path / "samples.json", {"x": [1, 10]}, {"x": [1, 10], "w": [5, -6]}, {"x": [-1, 1]})
    outcome = run("run", scaled, *runners, "--load-inputs", samples, "--save-outputs", "outputs.json")
    assert outcome.code == 0, outcome
    shown = run("inspect", "data", "outputs.json", "--all", "--show-values").out
    assert shown.count("[ 2. 30.]") == shown.count("[  5. -60.]") == shown.count("[-2.  3.]") == len(runners), shown


def test_initializers_are_given_by_scripts(run, scaled, tmp_path):
    (tmp_path / "data.py").write_text(
        "import numpy as np\n\n\ndef load_data():\n    for i in range(3):\n"
        "        yield {'x': np.ones(2, np.float32), 'w': np.full(2, i, np.float32)}\n")
    outcome = run(
        "run", scaled, "--trt", "--fp16", "--onnxrt", "--data-loader-script", "data.py", "--save-inputs", "in.json"
    )
    assert outcome.code == 0 and "w [dtype=float32, shape=(2,)]" in outcome.out and "3/3 iterations" in outcome.out, (
        outcome
    )
    assert run("run", scaled, "--trt", "--load-inputs", "in.json").code == 0


def test_what_is_given_has_to_fit(run, scaled, tmp_path):
    samples = inputs_file(tmp_path / "samples.json", {"x": [1, 10], "w": [5, 6, 7]})
    for runner in ("--trt", "--onnxrt"):
        outcome = run("run", scaled, runner, "--load-inputs", samples)
        assert (
            outcome.code == 1 and "Input tensor: w | Cannot reuse input data due to mismatch in shape" in outcome.text
        ), outcome


def test_generated_data_leaves_initializers_alone(run, scaled):
    outcome = run("run", scaled, "--trt", "--onnxrt", "--save-inputs", "in.json")
    assert outcome.code == 0 and "{x [dtype=float32, shape=(2,)]}" in outcome.out, outcome


@pytest.mark.parametrize("words", [["precision", "search", "scaled.onnx", "--fp16", "--threshold", "1e-2"],
                                   ["convert", "scaled.onnx", "--fp16", "-o", "typed.onnx"]])
def test_other_tools_say_that_constants_stay(run, scaled, tmp_path, words):
    samples = inputs_file(tmp_path / "samples.json", {"x": [1, 10], "w": [5, 6]})
    outcome = run(*words, "--load-inputs", samples)
    assert outcome.code == 0 and "'w' is a constant of the model and keeps its value here" in outcome.text, outcome
