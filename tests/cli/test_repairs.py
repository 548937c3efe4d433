"""run --repairs: what a search did to the network, done again."""
import base64
import io
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cli_support import encode_array
from plain_onnxruntime import plain_session
from polygraphy.json import load_json
from search_support import answer_of, masked_attention, outputs_of, relative_errors, save_inputs


@pytest.fixture
def uneven(tmp_path):
    """A layer normalization with one large channel, read by a product and by a sum."""
    random = np.random.default_rng(1)
    gamma = random.normal(0, 0.5, 16).astype(np.float32)
    gamma[9] = 40
    weights = {"gamma": gamma, "beta": random.normal(size=16).astype(np.float32),
               "w": random.normal(0, 0.2, (16, 16)).astype(np.float32), "v": random.normal(0, 0.2, (16, 8)).astype(np.float32)}
    nodes = [helper.make_node("LayerNormalization", ["x", "gamma", "beta"], ["t"], "Norm"),
             helper.make_node("MatMul", ["t", "w"], ["p"], "First"),
             helper.make_node("LayerNormalization", ["p", "gamma", "beta"], ["u"], "Again"),
             helper.make_node("MatMul", ["u", "v"], ["y"], "Second"),
             helper.make_node("Identity", ["t"], ["z"], "Out")]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [24, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [24, 8]),
         helper.make_tensor_value_info("z", TensorProto.FLOAT, [24, 16])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "uneven.onnx")
    samples = [{"x": random.normal(size=(24, 16)).astype(np.float32)} for _ in range(4)]
    (tmp_path / "in.json").write_text(json.dumps([{k: encode_array(v) for k, v in each.items()} for each in samples]))
    return "uneven.onnx"


def outputs(path, name="y"):
    iterations = json.loads(path.read_text())["lst"][0][1]
    arrays = [base64.b64decode(each["outputs"][name]["values"]["array"]) for each in iterations]
    return np.concatenate([np.load(io.BytesIO(each)) for each in arrays])


def test_a_search_is_reproduced_with_its_repairs(run, uneven, tmp_path):
    outcome = run("precision", "search", uneven, "--objective", "smallest", "--load-inputs", "in.json", "--int8", "--metric", "rel-l2", "--threshold",
                  "0.04", "--margin", "0.9", "--calib-base-cls", "IInt8MinMaxCalibrator")
    assert outcome.code == 0, outcome
    answer = json.loads((tmp_path / "uneven.int8.answer.json").read_text())
    repairs = {each["name"]: each for each in answer["repairs"]}
    assert repairs["t"]["kind"] == "equalize-copy" and repairs["u"]["kind"] == "equalize", answer["repairs"]
    assert repairs["u"]["exponents"][9] >= 2 and len(repairs["u"]["exponents"]) == 16
    words = answer["run_options"]
    assert "--repairs" in words
    golden = run("run", uneven, "--trt", "--load-inputs", "in.json", "--save-outputs", "exact.json")
    assert golden.code == 0
    assert run("run", uneven, *words, "--load-inputs", "in.json", "--save-outputs", "repaired.json").code == 0
    at = words.index("--repairs")
    assert run("run", uneven, *words[:at], *words[at + 2:], "--load-inputs", "in.json", "--save-outputs", "plain.json").code == 0
    exact, repaired, plain = (outputs(tmp_path / f"{name}.json") for name in ("exact", "repaired", "plain"))
    error = np.linalg.norm(repaired - exact) / np.linalg.norm(exact)
    assert 0 < error < 0.04
    assert error < 0.6 * np.linalg.norm(plain - exact) / np.linalg.norm(exact)


def assert_typed_model_has_the_repairs(run, tmp_path, model, answer, fusion, near_enough):
    """The file alone gives every bit of the repaired network, in ONNX Runtime nearly so."""
    outcome = run("convert", model, "--answer", answer, "-o", "typed.onnx", "--load-inputs", "in.json", "--fusion", fusion)
    assert outcome.code == 0 and "equal in every bit" in outcome.text and "ONNX Runtime" in outcome.text, outcome
    assert "stay in higher precision" not in outcome.text, outcome
    words = json.loads((tmp_path / answer).read_text())["run_options"]
    assert run("run", model, *words, "--fusion", fusion, "--load-inputs", "in.json", "--save-outputs", "low.json").code == 0
    typed = run("run", "typed.onnx", "--trt", "--strongly-typed", "--fusion", fusion, "--load-inputs", "in.json",
                "--load-outputs", "low.json", "--atol", "0", "--rtol", "0")
    assert typed.code == 0, typed
    session = plain_session(tmp_path / "typed.onnx")
    # Sums of another order move a value across an int8 step here and there.
    for feed, ours in zip(load_json(str(tmp_path / "in.json")), outputs_of(tmp_path / "low.json")):
        for output, theirs in zip(session.get_outputs(), session.run(None, feed)):
            exact = ours[output.name].astype(np.float64)
            assert np.linalg.norm(theirs - exact) < near_enough * np.linalg.norm(exact)
    return onnx.load(tmp_path / "typed.onnx").graph


@pytest.mark.parametrize("fusion", ["none", "full"])
def test_the_typed_model_has_equalised_channels(run, uneven, tmp_path, fusion):
    assert run("precision", "search", uneven, "--objective", "smallest", "--load-inputs", "in.json", "--int8", "--metric", "rel-l2", "--threshold",
               "0.04", "--margin", "0.9", "--calib-base-cls", "IInt8MinMaxCalibrator").code == 0
    repairs = {each["name"]: each for each in json.loads((tmp_path / "uneven.int8.answer.json").read_text())["repairs"]}
    graph = assert_typed_model_has_the_repairs(run, tmp_path, uneven, "uneven.int8.answer.json", fusion, 0.01)
    constants = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    before = {i.name: numpy_helper.to_array(i) for i in onnx.load(tmp_path / uneven).graph.initializer}
    producer = {o: node for node in graph.node for o in node.output}

    # A copy: one more layer multiplies by powers of two. In place: the constants before the product have them.
    node = {n.name: n for n in graph.node}
    def behind_quantization(name):
        return producer[producer[producer[name].input[0]].input[0]]

    multiply = behind_quantization(node["First"].input[0])
    assert multiply.op_type == "Mul" and producer[multiply.input[0]].name == "Norm"
    factors = constants[multiply.input[1]].reshape(-1)
    np.testing.assert_array_equal(factors, 2.0 ** -np.array(repairs["t"]["exponents"]))
    weights = [constants[i] for i in producer[node["First"].input[1]].input]
    np.testing.assert_allclose(weights[1], np.abs(before["w"] / factors[:, None]).max(0) / 127, rtol=1e-6)
    scale = 2.0 ** np.array(repairs["u"]["exponents"])
    np.testing.assert_array_equal(constants[node["Again"].input[1]] * scale, before["gamma"])
    weights = [constants[i] for i in producer[node["Second"].input[1]].input]
    np.testing.assert_allclose(weights[1], np.abs(before["v"] * scale[:, None]).max(0) / 127, rtol=1e-6)
    assert weights[0].dtype == np.int8 and producer[producer[node["Second"].input[0]].input[0]].input[0] == "u"
    # What nobody reads any more is gone.
    read = {i for node in graph.node for i in node.input} | {o.name for o in graph.output}
    assert set(constants) <= read


@pytest.mark.parametrize("fusion", ["none", "full"])
def test_the_typed_model_has_clamped_constants(run, tmp_path, fusion):
    samples = masked_attention(tmp_path / "a.onnx")
    save_inputs(tmp_path / "in.json", samples[:4])
    save_inputs(tmp_path / "held.json", samples[4:])
    assert run("precision", "search", "a.onnx", "--objective", "smallest", "--load-inputs", "in.json", "--hold-out", "held.json", "--int8", "--fp16",
               "--metric", "rel-l2", "--threshold", "0.2").code == 0
    limit = next(each for each in answer_of(tmp_path, "a.fp16-int8.answer.json")["repairs"] if each["kind"] == "clamp")["limit"]
    graph = assert_typed_model_has_the_repairs(run, tmp_path, "a.onnx", "a.fp16-int8.answer.json", fusion, 0.1)
    floats = [numpy_helper.to_array(i) for i in graph.initializer if i.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16)]
    assert max(np.abs(each.astype(np.float32)).max() for each in floats) <= limit


def test_repairs_alone_keep_every_bit(run, uneven, tmp_path):
    assert run("precision", "search", uneven, "--objective", "smallest", "--load-inputs", "in.json", "--int8", "--metric", "rel-l2", "--threshold",
               "0.04", "--margin", "0.9", "--calib-base-cls", "IInt8MinMaxCalibrator").code == 0
    for name, words in (("exact", []), ("repaired", ["--repairs", "uneven.int8.answer.json"])):
        assert run("run", uneven, "--trt", *words, "--load-inputs", "in.json", "--save-outputs", f"{name}.json").code == 0
    assert outputs(tmp_path / "exact.json").tobytes() == outputs(tmp_path / "repaired.json").tobytes()


def test_repairs_that_do_not_fit(run, uneven, tmp_path, model):
    assert run("precision", "search", uneven, "--objective", "smallest", "--load-inputs", "in.json", "--int8", "--metric", "rel-l2", "--threshold",
               "0.04", "--margin", "0.9", "--calib-base-cls", "IInt8MinMaxCalibrator").code == 0
    outcome = run("run", model, "--trt", "--repairs", "uneven.int8.answer.json")
    assert outcome.code == 1 and "[repair] tensor" in outcome.err, outcome
    outcome = run("run", model, "--trt", "--repairs", "missing.json")
    assert outcome.code == 1 and "missing.json" in outcome.err, outcome
    answer = json.loads((tmp_path / "uneven.int8.answer.json").read_text())
    answer["repairs"][-1]["exponents"][0] = -3
    (tmp_path / "bad.json").write_text(json.dumps(answer))
    outcome = run("run", uneven, "--trt", "--repairs", "bad.json")
    assert outcome.code == 1 and "exponents" in outcome.err, outcome


def test_the_scales_of_a_clamp_are_reproduced(run, tmp_path):
    """The cache was calibrated before the mask was clamped; the printed command has the search's scales and its error."""
    samples = masked_attention(tmp_path / "a.onnx")
    save_inputs(tmp_path / "in.json", samples[:4])
    save_inputs(tmp_path / "held.json", samples[4:])
    outcome = run("precision", "search", "a.onnx", "--objective", "smallest", "--load-inputs", "in.json", "--hold-out", "held.json", "--int8", "--fp16",
                  "--metric", "rel-l2", "--threshold", "0.2")
    assert outcome.code == 0, outcome
    answer = answer_of(tmp_path, "a.fp16-int8.answer.json")
    assert "clamp" in {each["kind"] for each in answer["repairs"]}
    words = answer["run_options"]
    assert "--repairs" in words and "--clamp-constants" not in words
    assert run("run", "a.onnx", "--trt", "--load-inputs", "held.json", "--save-outputs", "exact.json").code == 0
    assert run("run", "a.onnx", *words, "--load-inputs", "held.json", "--save-outputs", "low.json").code == 0
    errors = relative_errors(tmp_path / "low.json", tmp_path / "exact.json")
    assert max(errors) == pytest.approx(answer["held_out"]["value"], rel=1e-5)  # Written with six digits.
    # The scale of the mask is not that of the cache, with which int8 would round it to 0.
    at = words.index("--repairs")
    plain = [*words[:at], *words[at + 2:], "--clamp-constants", "lowest"]
    assert run("run", "a.onnx", *plain, "--load-inputs", "held.json", "--save-outputs", "plain.json").code == 0
    assert max(relative_errors(tmp_path / "plain.json", tmp_path / "exact.json")) > 2 * max(errors)
