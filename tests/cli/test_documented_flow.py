"""Polygraphy's documented flow for int8, as people type it, on a transformer: golden results in a file that is called .pkl,
`precision bisect` with a calibration cache, and once more with the cache that it wrote."""
import importlib.util
import json
import pickle
import re
import struct

import onnx
import pytest

from cli_support import ROOT

BISECT = ["precision", "bisect", "model.onnx", "--golden=golden.pkl", "--mode=forward", "--int8", "--precision=float32",
          "--calibration-cache=model_calibration.cache"]


@pytest.fixture
def network(tmp_path):
    """The transformer of example 02, as model.onnx."""
    path = ROOT / "examples/cli/02_smallest_set_of_layers/make_model.py"
    spec = importlib.util.spec_from_file_location("transformer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    onnx.save(module.make_model(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.fixture
def golden(run, network, tmp_path):
    outcome = run("run", "model.onnx", "--onnxrt", "--save-results=golden.pkl")
    assert outcome.code == 0, outcome
    return tmp_path / "golden.pkl"


def tries(outcome):
    """What was run and what came of it, numbers included."""
    return re.findall(r"Will run layer\(s\): .*|(?:PASSED|FAILED) \| Output: .*", outcome.out)


def answer(outcome):
    return int(re.search(r"try running the first (\d+) layers in DataType\.FLOAT", outcome.out)[1])


def test_two_runs(run, golden, tmp_path):
    cache = tmp_path / "model_calibration.cache"
    first = run(*BISECT)
    assert first.code == 0, first
    assert re.search(r"Calibrated \d+ tensors with 1 sample", first.out) and "randomly generated" in first.out
    assert "Saving calibration cache to model_calibration.cache" in first.out
    lines = cache.read_text().splitlines()
    assert lines[0] == "TRT-8601-EntropyCalibration2"
    scales = {name: struct.unpack(">f", bytes.fromhex(bits))[0] for name, bits in (line.rsplit(": ") for line in lines[1:])}
    # Random inputs lie in [0, 1), so their scale is at most 1 / 127.
    assert 0.9 / 127 < scales["x"] <= 1 / 127 and {"scores", "/embed/MatMul_output_0"} <= scales.keys()

    written = cache.stat().st_mtime_ns, cache.read_bytes()
    second = run(*BISECT)
    assert second.code == 0, second
    assert "Loading calibration cache from model_calibration.cache; nothing is calibrated" in second.out
    assert "Calibrated" not in second.out and "Saving calibration cache" not in second.out
    assert (cache.stat().st_mtime_ns, cache.read_bytes()) == written
    assert tries(first) == tries(second) and answer(first) == answer(second)

    # The scales are those of the file: other ones give other numbers.
    cache.write_text("\n".join([lines[0], *(f"{name}: {struct.pack('>f', 2 * x).hex()}" for name, x in scales.items())]))
    assert tries(run(*BISECT))[1] != tries(first)[1]


def test_the_answer_holds_and_one_layer_less_does_not(run, golden, tmp_path):
    outcome = run(*BISECT)
    count = answer(outcome)
    assert "PASSED | Output: scores" in outcome.out and count > 0
    listed = re.findall(r"^\[I\]     (/\S+)$", outcome.out, re.M)
    assert listed[0] == "/embed/MatMul" and len(listed) > 60
    keep = ["--trt", "--int8", "--assume-lowest", "--calibration-cache=model_calibration.cache", "--load-outputs", "golden.pkl",
            "--precision-constraints", "obey"]
    words = [f"{name}:float32" for name in listed]
    held = run("run", "model.onnx", *keep, "--layer-precisions", *words)
    assert held.code == 0, held
    # The last of the listed layers that int8 has a form of is the one that matters.
    worse = [word for word in words if not word.startswith("/head/MatMul:")]
    assert len(worse) == len(words) - 1
    assert run("run", "model.onnx", *keep, "--layer-precisions", *worse).code == 1


def test_golden_results_are_json_under_any_name(run, golden, polygraphy):
    results = json.loads(golden.read_text())
    assert results["polygraphy_class"] == "RunResults"
    (name, iterations), = results["lst"]
    assert name.startswith("onnxrt-runner-N0") and len(iterations) == 1 and list(iterations[0]["outputs"]) == ["scores"]
    shown = polygraphy("inspect", "data", "golden.pkl")
    assert shown.code == 0 and "scores [dtype=float32, shape=(1, 8)]" in shown.out, shown


class Harmful:
    """What reading a pickle would run."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("words", [
    BISECT,
    ["precision", "search", "model.onnx", "--fp16", "--golden=golden.pkl"],
    ["run", "model.onnx", "--trt", "--load-outputs", "golden.pkl"],
])
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_a_real_pickle_is_refused_and_not_run(words, protocol, run, network, tmp_path):
    (tmp_path / "golden.pkl").write_bytes(pickle.dumps(Harmful(str(tmp_path / "trap")), protocol))
    outcome = run(*words)
    assert outcome.code == 1 and "golden.pkl" in outcome.err and "Python pickle" in outcome.err, outcome
    assert "save_json" in outcome.err, "how to turn it into JSON"
    assert not (tmp_path / "trap").exists()
    assert not (tmp_path / "model_calibration.cache").exists(), "found out before anything is calibrated"
