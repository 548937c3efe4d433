"""`verify`, and `run --answer`: whether an answer holds on other data, judged again here by ONNX Runtime and NumPy."""
import json
import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from search_support import masked_attention, outputs_of, save_inputs

SEARCH = ["--fp16", "--objective", "smallest", "--fusion", "none", "--atol", "1e-3", "--rtol", "1e-2"]


def samples(seeds, low=1, high=2):
    return [{"x": np.random.default_rng(i).uniform(low, high, (1, 1, 256, 256)).astype(np.float32)} for i in seeds]


def perceptron(path, batch="n"):
    """x of `batch` rows with 64 values each, a product and a Relu."""
    weights = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"], name="product"), helper.make_node("Relu", ["m"], ["y"], name="relu")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 8])], [onnx.numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def answer(run, model, tmp_path):
    outcome = run("precision", "search", model, "--load-inputs", save_inputs(tmp_path / "in.json", samples(range(4))),
                  *SEARCH, "--save-answer", "a.json")
    assert outcome.code == 0, outcome
    return "a.json"


def test_an_answer_holds_on_fresh_data(run, model, answer, tmp_path):
    fresh = save_inputs(tmp_path / "fresh.json", samples(range(100, 103)))
    outcome = run("verify", model, "--answer", answer, "--load-inputs", fresh, "--save-json", "v.json")
    assert outcome.code == 0, outcome
    assert "The answer holds on ulpscope: 3 samples:" in outcome.out
    verdict = json.loads((tmp_path / "v.json").read_text())
    assert verdict["format"] == "ulpscope-verify" and verdict["passed"] and verdict["samples"] == 3
    # Judged again: the two runs of the model, by the written rule of --atol and --rtol.
    assert run("run", model, "--answer", answer, "--load-inputs", fresh, "--save-outputs", "low.json").code == 0
    assert run("run", model, "--trt", "--fusion", "none", "--load-inputs", fresh, "--save-outputs", "high.json").code == 0
    used = max(float((np.abs(low[name].astype(np.float64) - high[name]) / np.maximum(1e-3, 1e-2 * np.abs(high[name]))).max())
               for low, high in zip(outputs_of(tmp_path / "low.json"), outputs_of(tmp_path / "high.json")) for name in high)
    assert used <= 1
    assert verdict["error"]["used"] == pytest.approx(used, rel=1e-6)
    # As `convert` takes it.
    assert run("verify", model, answer, "--load-inputs", fresh).out == outcome.out.replace(
        outcome.out[outcome.out.index("[I] Saving") :], ""
    )


def test_an_answer_that_does_not_hold(run, model, answer, tmp_path):
    fresh = save_inputs(tmp_path / "fresh.json", samples([5]))
    outcome = run("verify", model, "--answer", answer, "--load-inputs", fresh, "--atol", "0", "--rtol", "1e-12")
    assert outcome.code == 1, outcome
    assert re.search(r"The answer does not hold on ulpscope: .* times the tolerance", outcome.out)


def test_the_typed_model_elsewhere(run, model, answer, tmp_path):
    fresh = samples([7, 8])
    name = save_inputs(tmp_path / "fresh.json", fresh)
    assert run("convert", model, "--answer", answer, "-o", "typed.onnx").code == 0
    made, given = [run("verify", model, "--answer", answer, "--load-inputs", name, "--runner", "onnxrt", "--save-json", "-",
                       *typed) for typed in ((), ("--typed", "typed.onnx"))]
    assert made.code == 0 and given.code == 0, (made, given)
    assert json.loads(made.out) == json.loads(given.out)
    assert "Saving typed model" not in made.text
    sessions = [onnxruntime.InferenceSession(str(path)) for path in (tmp_path / "typed.onnx", model)]
    used = 0
    for sample in fresh:
        low, high = [session.run(None, sample)[0].astype(np.float64) for session in sessions]
        used = max(used, float((np.abs(low - high) / np.maximum(1e-3, 1e-2 * np.abs(high))).max()))
    verdict = json.loads(made.out)
    assert verdict["runner"] == "onnxrt" and verdict["passed"]
    by_package = run(
        "verify", model, "--answer", answer, "--load-inputs", name, "--runner", "onnxruntime", "--save-json", "-"
    )
    assert by_package.code == 0 and json.loads(by_package.out)["runner"] == "onnxrt", by_package
    # Against what ONNX Runtime makes of the model in float32, there and here.
    assert verdict["golden"] == "onnxrt" and verdict["error"]["used"] == pytest.approx(used, rel=1e-6)
    assert verdict["predicted"]["used"] > 0


def test_a_runner_that_rounds_less_than_the_emulation(run, model, answer, tmp_path):
    """The model itself in the place of the typed one: it holds a tolerance that no layer in fp16 does."""
    fresh = save_inputs(tmp_path / "fresh.json", samples([5]))
    words = ["verify", model, "--answer", answer, "--load-inputs", fresh, "--runner", "onnxrt", "--typed", model]
    outcome = run(*words, "--atol", "0", "--rtol", "1e-7")
    assert outcome.code == 0 and "The answer holds on onnxrt" in outcome.out, outcome
    assert re.search(r"\[W\] \[verify\] The emulation fails on these samples \(.* times the tolerance", outcome.text)
    assert "The emulation fails" not in run(*words, "--atol", "1e-3", "--rtol", "1e-2").text


def near_zero(path):
    """A sigmoid of about -15, of which ONNX Runtime's float32 has no three digits."""
    random = np.random.default_rng(0)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], "Product"),
            helper.make_node("Add", ["a", "b"], ["c"], "Bias"),
            helper.make_node("Sigmoid", ["c"], ["y"], "Sigmoid"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])],
        [
            onnx.numpy_helper.from_array((random.standard_normal((32, 1)) * 0.2).astype(np.float32), "w"),
            onnx.numpy_helper.from_array(np.float32([-15]), "b"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return [{"x": random.standard_normal((1, 32)).astype(np.float32)} for _ in range(8)]


def test_a_runner_is_held_against_its_own_float32(run, tmp_path):
    """Its float32 differs from ours by more than the tolerance here: that is no error of the answer, and one line."""
    inputs = save_inputs(tmp_path / "in.json", near_zero(tmp_path / "m.onnx"))
    assert (
        run(
            "precision",
            "search",
            "m.onnx",
            "--fp16",
            "--keep",
            "Product",
            "Bias",
            "--load-inputs",
            inputs,
            "--objective",
            "smallest",
            "--metric",
            "rel-l2",
            "--threshold",
            "1e-3",
            "--margin",
            "1",
            "--save-answer",
            "a.json",
        ).code
        == 0
    )
    outcome = run(
        "verify", "m.onnx", "--answer", "a.json", "--load-inputs", inputs, "--runner", "onnxrt", "--save-json", "v.json"
    )
    verdict = json.loads((tmp_path / "v.json").read_text())
    assert outcome.code == 0 and verdict["passed"] and verdict["golden"] == "onnxrt", outcome
    assert verdict["float32"]["used"] > 1
    line, = [line for line in outcome.out.splitlines() if "In float32, onnxrt itself is off from ulpscope" in line]
    assert f"{verdict['float32']['used']:.4g} times the tolerance" in line
    # The judge: both by ONNX Runtime.
    exact = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    ours = run("run", "m.onnx", "--trt", "--load-inputs", inputs, "--save-outputs", "ours.json")
    assert ours.code == 0
    samples = near_zero(tmp_path / "again.onnx")
    off = max(
        np.linalg.norm(theirs - each["y"]) / np.linalg.norm(each["y"])
        for theirs, each in zip(
            (exact.run(None, sample)[0].astype(np.float64) for sample in samples), outputs_of(tmp_path / "ours.json")
        )
    )
    assert verdict["float32"]["value"] == pytest.approx(off, rel=1e-4)
    # Results that are given are what counts.
    given = run(
        "verify", "m.onnx", "--answer", "a.json", "--load-inputs", inputs, "--runner", "onnxrt", "--golden",
        "ours.json", "--save-json", "g.json",
    )  # fmt: skip
    assert given.code == 1 and json.loads((tmp_path / "g.json").read_text())["golden"] == "file", given


def test_what_onnx_runtime_lacks_is_said(run, tmp_path):
    perceptron(tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=np.random.default_rng(1).standard_normal((4, 2, 64)).astype(np.float32))
    outcome = run("precision", "search", "m.onnx", "--bf16", "--load-inputs", "in.npz", "--target", "l4")
    assert outcome.code == 0, outcome
    outcome = run("verify", "m.onnx", "m.bf16.answer.json", "--runner", "onnxrt")
    if outcome.code == 4:  # A release of it that has no such kernels.
        assert "the typed model, which has no CPU kernels for bfloat16; try a newer release" in outcome.err, outcome
        assert "--trt-outputs" not in outcome.err and "/ulpscope-" not in outcome.err, outcome


def test_networks_of_scripts_are_held_against_our_float32(run, model, answer, tmp_path):
    """No runner has them in float32."""
    assert run("convert", model, "--answer", answer, "-o", "typed.onnx").code == 0
    (tmp_path / "net.py").write_text("from polygraphy.backend.trt import NetworkFromOnnxPath\n\n\n"
                                     f"def load_network():\n    return NetworkFromOnnxPath({str(model)!r})()\n")
    assert (
        run("precision", "search", "net.py", "--load-inputs", "in.json", *SEARCH, "--save-answer", "script.json").code
        == 0
    )
    outcome = run(
        "verify", "net.py", "--answer", "script.json", "--load-inputs", "in.json", "--runner", "onnxrt", "--typed",
        "typed.onnx", "--save-json", "v.json",
    )  # fmt: skip
    assert outcome.code == 0 and json.loads((tmp_path / "v.json").read_text())["golden"] == "ulpscope", outcome


def test_another_backend_is_judged_beside_the_prediction(run, model, answer, tmp_path):
    name = save_inputs(tmp_path / "fresh.json", samples([11, 12]))
    outcome = run("verify", model, "--answer", answer, "--load-inputs", name, "--backend", "plain", "--save-json", "v.json")
    assert outcome.code == 0 and "The answer holds on plain: 2 samples:" in outcome.out, outcome
    verdict = json.loads((tmp_path / "v.json").read_text())
    assert verdict["runner"] == "plain"
    # The network is small enough for both to have the same bits.
    assert verdict["error"]["used"] == pytest.approx(verdict["predicted"]["used"], rel=1e-3) and "; predicted " in outcome.out
    assert run("convert", model, "--answer", answer, "-o", "typed.onnx", "--backend", "plain").code == 0


def test_what_cannot_be_judged(run, model, answer, tmp_path):
    fresh = save_inputs(tmp_path / "fresh.json", samples([9]))
    (tmp_path / "no.json").write_text("{}")
    (tmp_path / "folder").mkdir()
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 256, 256])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 256, 256])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "other.onnx")
    for words, message in [
        ((model, "--answer", "gone.json", "--load-inputs", fresh), "gone.json"),
        ((model, "--answer", "no.json", "--load-inputs", fresh), "no.json"),
        ((model, "--answer", answer, "--load-inputs", "gone.json"), "gone.json"),
        (("other.onnx", "--answer", answer, "--load-inputs", fresh), "it was found for"),
        ((model, "--answer", answer, "--load-inputs", fresh, "--runner", "onnxrt", "--typed", "gone.onnx"), "gone.onnx"),
        ((model, "--answer", answer, "--load-inputs", fresh, "--save-json", "folder"), "folder"),
    ]:
        outcome = run("verify", *words)
        assert outcome.code == 4 and message in outcome.err, (words, outcome)


def test_networks_of_scripts(run, model, answer, tmp_path):
    """The same network, from a script: the same verdict. Of engines nothing can be said."""
    (tmp_path / "net.py").write_text(
        "from polygraphy.backend.trt import NetworkFromOnnxPath\n\nprint('printed')\n\n"
        f"def load_network():\n    return NetworkFromOnnxPath({str(model)!r})()\n"
    )
    data = ("--load-inputs", "in.json")
    assert run("precision", "search", "net.py", *data, *SEARCH, "--save-answer", "script.json").code == 0
    verdicts = []
    for words in (("net.py", "--answer", "script.json"), (model, "--answer", answer)):
        outcome = run("verify", *words, *data, "--save-json", "-")
        assert outcome.code == 0 and ("printed" in outcome.err) is (words[0] == "net.py"), outcome
        verdicts.append(json.loads(outcome.out))
    assert verdicts[0]["error"] == verdicts[1]["error"] and verdicts[0]["error"]["used"] > 0
    elsewhere = run("verify", "net.py", "--answer", "script.json", *data, "--runner", "onnxrt")
    assert elsewhere.code == 4 and "expected an ONNX model" in elsewhere.err and "try --typed FILE" in elsewhere.err
    assert run("convert", model, "--answer", answer, "-o", "typed.onnx").code == 0
    judged = [run("verify", *words, *data, "--runner", "onnxrt", "--typed", "typed.onnx", "--save-json", "-").out
              for words in (("net.py", "--answer", "script.json"), (model, "--answer", answer))]
    assert json.loads(judged[0])["error"] == json.loads(judged[1])["error"]
    (tmp_path / "m.engine").write_bytes(b"")
    engine = run("verify", "m.engine", "--answer", answer, *data)
    assert engine.code == 4 and "got an engine, whose precisions are fixed" in engine.err
    script = run("convert", "net.py", "--fp16", "-o", "other.onnx")
    assert script.code == 1 and "got a network script; try -o FILE.engine" in script.err


@pytest.mark.parametrize("tool, engines", [("run", True), ("inspect model", True), ("convert", False), ("verify", False),
                                           ("precision search", False), ("debug precision", False), ("target measure", False)])
def test_help_names_the_models_that_are_taken(run, tmp_path, tool, engines):
    words = re.search(r"  MODEL +(.*?)\n  --", run(*tool.split(), "--help").out, re.S)[1]
    assert ("an engine (.engine, .plan)" in " ".join(words.split())) == engines and ".py" in words
    (tmp_path / "m.engine").write_bytes(b"no plan")
    options = {"verify": ["--answer", "a.json"], "convert": ["-o", "o.onnx"], "debug precision": ["--check", "true"],
               "target measure": ["-o", "t.json"], "run": ["--trt"], "precision search": ["--fp16"]}.get(tool, [])
    outcome = run(*tool.split(), "m.engine", *options)
    assert outcome.code != 0 and ("whose precisions are fixed" in outcome.err) != engines, outcome


def test_empty_batches_show_nothing(run, tmp_path):
    perceptron(tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32))
    np.savez(tmp_path / "empty.npz", x=np.zeros((0, 64), np.float32))
    words = ["--fp16", "--metric", "rel-l2", "--threshold", "1e-2", "--load-inputs"]
    refused = run("precision", "search", "m.onnx", *words, "empty.npz")
    assert refused.code == 1 and "expected outputs with elements, got none in the 1 sample:" in refused.text, refused
    held_out = run("precision", "search", "m.onnx", *words, "x.npz", "--hold-out", "empty.npz")
    assert held_out.code == 1 and "got none in the 1 sample of the held-out samples" in held_out.text, held_out
    assert not list(tmp_path.glob("*.answer*"))
    assert run("precision", "search", "m.onnx", *words, "x.npz", "--save-answer", "a.json").code == 0
    outcome = run("verify", "m.onnx", "--answer", "a.json", "--load-inputs", "empty.npz")
    assert outcome.code == 4 and "expected outputs with elements" in outcome.text, outcome
    assert run("verify", "m.onnx", "--answer", "a.json", "--load-inputs", "x.npz").code == 0
    # As Polygraphy's, a comparison passes, but not in silence.
    compared = run("run", "m.onnx", "--trt", "--onnxrt", "--load-inputs", "empty.npz")
    assert compared.code == 0 and "No output has any element: that they match says nothing" in compared.out, compared
    assert "says nothing" not in run("run", "m.onnx", "--trt", "--onnxrt", "--load-inputs", "x.npz").out


def test_answers_of_other_models_say_whose_they_are(run, model, answer, tmp_path):
    perceptron(tmp_path / "m.onnx")
    for words in (["verify", "m.onnx", "--answer", answer], ["convert", "m.onnx", "--answer", answer, "-o", "t.onnx"],
                  ["run", "m.onnx", "--answer", answer]):
        outcome = run(*words)
        assert outcome.code != 0 and f"it was found for '{model}'" in outcome.text, outcome


@pytest.mark.parametrize(
    "words, message",
    [
        ((), "the following arguments are required: --answer"),
        (("--answer", "a.json", "--typed", "t.onnx"), "argument --typed: not allowed with --runner ulpscope"),
        (("--answer", "a.json", "--runner", "gpu"), "invalid choice: 'gpu'"),
        (
            ("--answer", "a.json", "--threshold", "1", "--atol", "1"),
            "argument --atol/--abs-tol: not allowed with argument --threshold",
        ),
        (
            ("--answer", "a.json", "b.json"),
            "argument ANSWER: not allowed with argument --answer: got 'b.json' and 'a.json'",
        ),
        (
            ("--answer", "a.json", "--treshold", "1"),
            "Unrecognized Options: ['--treshold']; did you mean '--threshold'?",
        ),
    ],
)
def test_command_lines_that_do_not_fit(run, model, words, message):
    outcome = run("verify", model, *words)
    assert outcome.code == 2 and message in outcome.text, outcome


def test_int8_answers_run_with_their_repairs_from_anywhere(run, tmp_path):
    inputs = masked_attention(tmp_path / "m.onnx")
    name = save_inputs(tmp_path / "in.json", inputs)
    (tmp_path / "kept").mkdir()
    outcome = run("precision", "search", "m.onnx", "--int8", "--precision", "float16", "float32", "--load-inputs", name,
                  "--metric", "rel-l2", "--threshold", "3e-2", "--save-answer", "kept/a.json", "--no-journal")
    assert outcome.code == 0, outcome
    words = json.loads((tmp_path / "kept" / "a.json").read_text())["run_options"]
    assert run("run", "m.onnx", *words, "--load-inputs", name, "--save-outputs", "words.json").code == 0
    # The scales are in the answer: the cache may be gone.
    for cache in tmp_path.rglob("*.cache"):
        cache.unlink()
    assert run("run", "m.onnx", "--answer", "kept/a.json", "--load-inputs", name, "--save-outputs", "answer.json").code == 0
    for a, b in zip(outputs_of(tmp_path / "words.json"), outputs_of(tmp_path / "answer.json")):
        for output in a:
            assert a[output].tobytes() == b[output].tobytes()
    assert run("verify", "m.onnx", "--answer", "kept/a.json", "--load-inputs", name).code == 0


def test_run_takes_no_answer_of_another_model(run, model, dynamic_model, answer):
    outcome = run("run", dynamic_model, "--answer", answer)
    assert outcome.code == 1 and "it was found for" in outcome.err, outcome
