"""`precision search --golden` with results that are not all of the model's."""

import numpy as np
import onnx
from onnx import helper

from hostile_models import floats, model
from search_support import save_inputs
from test_strategies import results_file


def test_golden_results_without_an_output(run, tmp_path):
    """One message, which names the file; a threshold by name judges the others alone."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["y"], name="Mul"),
        helper.make_node("Tanh", ["y"], ["z"], name="Tanh"),
    ]
    onnx.save(model(nodes, {"x": floats(4)}, outputs=("y", "z")), tmp_path / "two.onnx")
    data = [{"x": np.full(4, i / 8, np.float32)} for i in range(4)]
    results_file(tmp_path / "golden.json", [{"y": each["x"] ** 2} for each in data])
    words = [
        "precision",
        "search",
        "two.onnx",
        "--fp16",
        "--load-inputs",
        save_inputs(tmp_path / "in.json", data),
        "--golden",
        "golden.json",
    ]
    outcome = run(*words)
    said = "[golden] 'golden.json': expected all outputs of the network that are judged, got ['y'] without ['z']"
    assert outcome.code == 1 and said in outcome.err and "not judged" not in outcome.text, outcome
    outcome = run(*words, "--metric", "rel-l2", "--threshold", "y:0.01")
    assert outcome.code == 0 and "'golden.json' lacks the outputs ['z']: they are not judged" in outcome.out, outcome


def test_results_without_iterations_are_said_to_compare_nothing(run, dynamic_model, tmp_path):
    words = ["run", dynamic_model, "--trt", "--input-shapes", "x:[2,3]"]
    assert run(*words, "--save-outputs", "golden.json").code == 0
    outcome = run(*words, "--load-outputs", "golden.json")
    assert outcome.code == 0 and "nothing is compared" not in outcome.text, outcome
    (tmp_path / "golden.json").write_text('{"lst": [], "polygraphy_class": "RunResults"}')
    outcome = run(*words, "--load-outputs", "golden.json")
    assert "'golden.json' has no results of any iteration: nothing is compared with it" in outcome.text, outcome
