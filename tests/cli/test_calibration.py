"""int8 calibration by `ulpscope run`: data, caches, and what is wrong with them."""
import json
import os
import re
import struct

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cli_support import encode_array

HEADER = "TRT-8601-EntropyCalibration2\n"


def bits(value):
    return struct.pack(">f", value).hex()


def scales_of(path):
    """The cache as pip's documentation describes it: a header, then `name: hex` lines."""
    header, *lines = path.read_text().splitlines()
    assert re.fullmatch(r"TRT-\d+-\w+", header)
    return {name: struct.unpack(">f", bytes.fromhex(value))[0] for name, value in
            (line.rsplit(": ", 1) for line in lines)}


@pytest.fixture
def product(tmp_path):
    """x -> MatMul h:0 -> Relu r -> MatMul y, x of shape [batch, 4]."""
    weights = np.eye(4, dtype=np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h:0"], name="first"),
             helper.make_node("Relu", ["h:0"], ["r"], name="relu"),
             helper.make_node("MatMul", ["r", "v"], ["y"], name="second")]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "product", infos[:1], infos[1:],
                              [numpy_helper.from_array(weights * 2, "w"), numpy_helper.from_array(weights * -3, "v")])
    path = tmp_path / "product.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.fixture
def data(tmp_path):
    """Two files of samples, and a script with the same ones."""
    rows = [np.array([[1, -5, 2, 0.5]], np.float32), np.array([[0, 0, 0, 7], [1, 1, 1, 1]], np.float32)]
    for i, row in enumerate(rows):
        (tmp_path / f"{i}.json").write_text(json.dumps([{"x": encode_array(row)}]))
    (tmp_path / "data.py").write_text("import numpy as np\n\ndef load_data():\n"
                                      "    yield {'x': np.array([[1, -5, 2, 0.5]], np.float32)}\n"
                                      "    yield {'x': np.array([[0, 0, 0, 7], [1, 1, 1, 1]], np.float32)}\n")
    return ["--load-inputs", "0.json", "1.json"]


MINMAX = ["--trt", "--int8", "--calibration-cache", "c.cache", "--calib-base-cls", "IInt8MinMaxCalibrator"]


def test_calibrates_once(run, product, data, tmp_path):
    first = run("run", product, *MINMAX, *data)
    assert first.code == 0, first
    assert "Saving calibration cache to c.cache" in first.out
    assert "Calibrated 4 tensors with 2 samples by MinMaxCalibration" in first.out
    assert "randomly generated" not in first.out
    cache = tmp_path / "c.cache"
    assert cache.read_text().startswith("TRT-8601-MinMaxCalibration\n")
    expected = {"x": 7, "h:0": 14, "r": 14, "y": 42}
    assert scales_of(cache) == {name: float(np.float32(value / 127)) for name, value in expected.items()}
    before = cache.stat().st_mtime_ns, cache.read_bytes()
    second = run("run", product, *MINMAX, *data)
    assert second.code == 0, second
    assert "Loading calibration cache from c.cache; nothing is calibrated" in second.out
    assert "Calibrated" not in second.out and "no scale" not in second.out
    assert (cache.stat().st_mtime_ns, cache.read_bytes()) == before


def test_scripts_give_data(run, product, data, tmp_path):
    assert run("run", product, *MINMAX, *data).code == 0
    from_files = (tmp_path / "c.cache").read_bytes()
    (tmp_path / "c.cache").write_text("\n")  # An empty one is written anew.
    outcome = run("run", product, *MINMAX, "--data-loader-script", "data.py")
    assert outcome.code == 0, outcome
    assert "is empty. Will regenerate scales" in outcome.out
    assert (tmp_path / "c.cache").read_bytes() == from_files


def test_generated_data_is_warned_of(run, product, tmp_path):
    words = ["--trt", "--int8", "--input-shapes", "x:[8,4]", "--iterations", "3"]
    outcome = run("run", product, *words)
    assert outcome.code == 0, outcome
    assert "[W] Int8 Calibration is using randomly generated input data." in outcome.out
    assert "Calibrated 4 tensors with 3 samples by EntropyCalibration2" in outcome.out
    assert "Saving calibration" not in outcome.out
    assert [path.name for path in tmp_path.iterdir()] == ["product.onnx"]
    outcome = run("run", product, *words, "--threads", "1", "--calibration-cache", "one/c.cache")
    assert outcome.code == 0, outcome
    outcome = run("run", product, *words, "--threads", "3", "--calibration-cache", "three/c.cache")
    assert (tmp_path / "one/c.cache").read_bytes() == (tmp_path / "three/c.cache").read_bytes()


def test_same_data_as_polygraphys(run, product, tmp_path):
    """The inputs that are generated for calibration are those of the inference."""
    outcome = run("run", product, *MINMAX, "--input-shapes", "x:[8,4]", "--save-inputs", "in.json", "--val-range",
                  "[-1,3]")
    assert outcome.code == 0, outcome
    outcome = run("run", product, *MINMAX[:3], "d.cache", *MINMAX[4:], "--load-inputs", "in.json")
    assert outcome.code == 0, outcome
    assert (tmp_path / "c.cache").read_bytes() == (tmp_path / "d.cache").read_bytes()


def test_missing_tensors(run, product, data, tmp_path):
    (tmp_path / "c.cache").write_text(f"TRT-100300-EntropyCalibration2\nx: {bits(0.1)}\nelsewhere: {bits(1)}\n")
    outcome = run("run", product, "--trt", "--int8", "--calibration-cache", "c.cache", *data)
    assert outcome.code == 0, outcome
    assert outcome.out.count("has no scale for 1 tensor(s)") == 1
    assert re.search(r"\[W\] \[calibration cache\] 'c.cache' has no scale for .* keep a higher precision: 'r'",
                     outcome.out)


def test_another_algorithm(run, product, data, tmp_path):
    (tmp_path / "c.cache").write_text(HEADER + "".join(f"{name}: {bits(0.1)}\n" for name in ("x", "r")))
    outcome = run("run", product, *MINMAX, *data)
    assert outcome.code == 0, outcome
    assert "was made by EntropyCalibration2, --calib-base-cls asks for MinMaxCalibration" in outcome.out


@pytest.mark.parametrize("text, parts", [
    (HEADER + "p: 3c008912\nq: 3c008912\n", ["another model: 'p', 'q'", "'x', 'h:0', 'r', 'y'"]),
    (HEADER, ["none at all"]),
    ("x: 3c008912\n", ["line 1", "expected a header like TRT-8601-EntropyCalibration2"]),
    (HEADER + "x 3c008912\n", ["line 2", "tensor name: hex"]),
    (HEADER + "x: 7fc00000\n", ["line 2", "tensor 'x'", "NaN"]),
    (HEADER + "x: 0\n", ["line 2", "tensor 'x'"]),
])
def test_caches_that_do_not_fit(text, parts, run, product, data, tmp_path):
    (tmp_path / "c.cache").write_text(text)
    outcome = run("run", product, "--trt", "--int8", "--calibration-cache", "c.cache", *data)
    assert outcome.code == 1, outcome
    for part in ["[calibration cache] 'c.cache'", *parts]:
        assert part in outcome.text, outcome
    assert (tmp_path / "c.cache").read_text() == text


def test_places_that_cannot_be_written(run, product, data, tmp_path):
    outcome = run("run", product, *MINMAX[:3], ".", *data)
    assert outcome.code == 1 and "[calibration cache] .: cannot read it: Is a directory" in outcome.text, outcome
    outcome = run("run", product, *MINMAX[:3], "product.onnx/c.cache", *data)
    assert outcome.code == 1 and "'product.onnx' is no folder" in outcome.text, outcome
    assert "Calibrated" not in outcome.text, outcome
    if os.geteuid() == 0:
        return
    (tmp_path / "closed").mkdir(mode=0o500)
    outcome = run("run", product, *MINMAX[:3], "closed/c.cache", *data)
    assert outcome.code == 1 and "'closed' is a folder that cannot be written to" in outcome.text, outcome


@pytest.mark.parametrize("words, part", [
    (["--calib-base-cls", "IInt8MinMaxCalibrater"], "did you mean 'IInt8MinMaxCalibrator'"),
    (["--calib-base-cls", "percentile", "--quantile", "1.5"], "--quantile"),
    (["--load-inputs", "none.json"], "expected at least one sample"),
])
def test_options_that_make_no_sense(words, part, run, product, tmp_path):
    (tmp_path / "none.json").write_text("[]")
    outcome = run("run", product, "--trt", "--int8", *words)
    assert outcome.code == 1 and part in outcome.text, outcome


def test_percentile(run, product, tmp_path):
    values = np.arange(1, 101, dtype=np.float32).reshape(25, 4)
    (tmp_path / "in.json").write_text(json.dumps([{"x": encode_array(values)}]))
    outcome = run("run", product, "--trt", "--int8", "--calibration-cache", "c.cache", "--calib-base-cls", "percentile",
                  "--quantile", "0.5", "--load-inputs", "in.json")
    assert outcome.code == 0, outcome
    assert scales_of(tmp_path / "c.cache")["x"] * 127 == pytest.approx(50.5, abs=1)


def test_options_without_int8(run, product):
    outcome = run("run", product, "--trt", "--calib-base-cls", "max")
    assert outcome.code == 0, outcome
    assert "int8 precision is not enabled" in outcome.out
    for words, option in ((["--calib-base-cls", "max"], "--calib-base-cls"), (["--quantile", "0.5"], "--quantile")):
        outcome = run("run", product, "--trt", "--fp8", "--weights-only", *words)
        assert outcome.code == 0 and "set --int8" not in outcome.text, outcome
        assert f"{option} has no effect: the formats asked for take their scales from the values" in outcome.text


def test_networks_that_bring_their_scales(run, tmp_path):
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], name="dq")]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "qdq", infos[:1], infos[1:],
                              [numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.int8(0), "z")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "q.onnx")
    outcome = run("run", tmp_path / "q.onnx", "--trt", "--int8")
    assert outcome.code == 0, outcome
    assert "it brings its scales: no calibration" in outcome.out
    assert "randomly" not in outcome.out


def test_polygraphy_takes_the_file(run, product, data, tmp_path):
    """Its Calibrator hands the bytes of a cache to TensorRT as they are."""
    pytest.importorskip("polygraphy")
    assert run("run", product, *MINMAX, *data).code == 0
    from polygraphy import util
    contents = util.load_file(str(tmp_path / "c.cache"), description="calibration cache")
    assert contents == (tmp_path / "c.cache").read_bytes() and contents.endswith(b"\n")


def test_networks_without_floats(run, tmp_path):
    infos = [helper.make_tensor_value_info(name, TensorProto.INT64, [4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"], name="add")], "ints", infos[:1], infos[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "i.onnx")
    for _ in range(2):
        outcome = run("run", tmp_path / "i.onnx", *MINMAX)
        assert outcome.code == 0, outcome
        assert "no float tensors" in outcome.out
        assert not (tmp_path / "c.cache").exists()
