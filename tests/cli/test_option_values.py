"""What values options take, and what is said of those that do not fit, as pip's Polygraphy has it."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture
def identity(tmp_path):
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, 2, 2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"], name="I")], "identity", infos[:1], infos[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "m.onnx")
    return "m.onnx"


REFUSED = [
    (["--pool-limit", "250"], "Could not parse argument: 250"),
    (["--pool-limit", "workspace:hi"], "Could not convert hi to a number of bytes"),
    (["--pool-limit", "workspace:4.5x"], "Could not convert 4.5x to a number of bytes"),
    (["--weight-streaming", "--weight-streaming-budget", "2.3.4"], ""),
    (["--save-onnx", "o.onnx", "--external-data-size-threshold", "2.3.4"], "Could not convert 2.3.4 to a number of bytes"),
    (["--tactic-sources", "CUBLAS, fp16=True"], ""),
    (["--preview-features", "a)b"], ""),
    (["--profiling-verbosity", "none)"], ""),
    (["--hardware-compatibility-level", "none;x"], ""),
    (["--quantization-flags", "a b"], ""),
    (["--layer-precisions", "float16"], "Could not parse argument: float16"),
    (["--tensor-datatypes", "float16"], "Could not parse argument: float16"),
    (["--tensor-formats", "[linear]"], "Could not parse argument: [linear]"),
    (["--val-range", "x:[y,2]"], "could not be parsed as a number"),
    (["--val-range", "x:[1,2,3]"], "expected to receive exactly 2 values, but received 3"),
    (["--builder-optimization-level", "x"], "invalid int value: 'x'"),
    (["--max-aux-streams", "1.5"], "invalid int value: '1.5'"),
    (["--optimization-profile", "x"], "invalid int value: 'x'"),
    (["--check-average"], "--check-average is not supported with check_error_stat='elemwise'"),
    (["--check-average", "--check-error-stat", "mean", "--fail-fast"], "--check-average cannot be combined with --fail-fast"),
    (["--check-average", "--compare", "indices"], "does not produce averageable metrics"),
    (["--load-inputs", "data", "--save-inputs", "data"], "overlaps the save path"),
    (["--load-outputs", "data/0.json", "--save-outputs", "data"], "overlaps the save path"),
]


@pytest.mark.parametrize("words, message", REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_refused(words, message, run, polygraphy, identity):
    theirs = polygraphy("run", identity, "--trt", *words, "--gen", "-")
    # Some are found out when the script is run, which takes TensorRT or ONNX Runtime.
    if theirs.code == 0:
        theirs = polygraphy("run", identity, "--onnxrt", *words)
    ours = run("run", identity, "--trt", *words)
    assert (ours.code, message in ours.err, message in theirs.text) == (theirs.code, True, True), (ours, theirs)


TAKEN = [
    ["--pool-limit", "wOrkSpaCE:250"], ["--pool-limit", "workspace:2M", "dla_local_dram:2e3"], ["--weight-streaming-budget", "50%"],
    ["--weight-streaming-budget", "-1"], ["--weight-streaming-budget", "2.5G"],
    ["--tactic-sources", "CUblAS", "cublas_lt", "EDGE_MASK_CONVOLUTIONS"], ["--preview-features", "PROFILE_SHAriNG_0806"],
    ["--preview-features"], ["--quantization-flags", "cAlIBRaTE_BEFORE_fUSIoN"], ["--profiling-verbosity", "DETAILED"],
    ["--hardware-compatibility-level", "AMPERe_plUS"], ["--max-aux-streams", "0"], ["--builder-optimization-level", "5"],
    ["--tensor-formats", "x:[liNEar,chw4]", "y:[hWc8]"], ["--tiling-optimization-level", "fast"], ["--runtime-platform", "same_as_build"],
]


@pytest.mark.parametrize("words", TAKEN, ids=" ".join)
def test_taken(words, run, polygraphy, identity):
    theirs = polygraphy("run", identity, "--trt", *words, "--gen", "-")
    ours = run("run", identity, "--trt", *words)
    assert (ours.code, theirs.code) == (0, 0), (ours, theirs)


@pytest.mark.parametrize("size", ["2M", "2MB", "2mib", "2097152", "2.5e6B", "0.001t"])
def test_bytes_are_bytes_everywhere(size, run, identity):
    for words in (["--memory-limit", size], ["--pool-limit", f"workspace:{size}"]):
        assert run("run", identity, "--trt", *words).code == 0


@pytest.mark.parametrize("words", [["--pool-limit", "nopool:250"], ["--tactic-sources", "cubla"], ["--profiling-verbosity", "loud"]], ids=" ".join)
def test_unknown_names(words, run, identity):
    outcome = run("run", identity, "--trt", *words)
    assert outcome.code == 1 and f"[options] {words[0]}: expected one of " in outcome.err, outcome


@pytest.mark.parametrize("words", [
    ["--index-tolerance", "1"], ["--compare", "indices", "--rtol", "1", "--atol", "1"], ["--l2-threshold", "1"], ["--lpips-threshold", "0.1"],
    ["--compare", "psnr", "l2", "--snr-threshold", "1", "--psnr-threshold", "1", "--l2-tolerance", "1", "--infinities-compare-equal"],
    ["--compare", "distance_metrics", "--l2-threshold", "1", "--cosine-similarity-threshold", "0"], ["--compare-func-script", "s.py", "--l2-threshold", "1"],
    ["--postprocess", "top-1", "--postprocess-func-script", "s.py"],
], ids=" ".join)
def test_warnings_of_options_that_belong_to_others(words, run, polygraphy, identity, tmp_path):
    (tmp_path / "s.py").write_text("def compare_outputs(a, b):\n    return {'y': True}\n\n\ndef postprocess_outputs(r):\n    return dict(r.items())\n")
    theirs = polygraphy("run", identity, "--onnxrt", "--gen", "-", *words)
    ours = run("run", identity, "--trt", *words)
    warnings = [sorted(line for line in outcome.out.splitlines() if line.startswith("[W]") and "will be ignored" in line) for outcome in (ours, theirs)]
    assert ours.code == theirs.code == 0 and warnings[0] == warnings[1], (ours, theirs)


def test_thresholds_have_units(run, identity, tmp_path):
    weights = numpy_helper.from_array(np.ones((64, 16), np.float32), "w")
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 16]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "add", infos[:1], infos[1:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "a.onnx")
    for threshold, outside in (("4K", True), ("4.1K", False), ("4e3", True), ("1M", False)):
        assert run("run", "a.onnx", "--onnxrt", "--save-onnx", f"{threshold}.onnx", "--save-external-data", f"{threshold}.bin",
                   "--external-data-size-threshold", threshold).code == 0
        written = onnx.load(tmp_path / f"{threshold}.onnx", load_external_data=False).graph.initializer[0]
        assert (written.data_location == TensorProto.EXTERNAL) is outside, threshold


def test_functions_of_scripts_in_older_words(run, identity, tmp_path):
    (tmp_path / "s.py").write_text("""
import numpy as np
import tensorrt as trt
from polygraphy import func
from polygraphy.backend.trt import CreateConfig, CreateNetwork


@func.extend(CreateNetwork())
def define(builder, network):
    out = network.add_identity(network.add_input("x", dtype=trt.float32, shape=(1, 1, 2, 2))).get_output(0)
    out.name = "defined"
    network.mark_output(out)


@func.extend(CreateConfig())
def configure(config):
    config.set_flag(trt.BuilderFlag.FP16)


def feed():
    yield {"x": np.full((1, 1, 2, 2), 6.5, np.float32)}
""")
    older = ["--data-loader-script", "s.py", "--data-loader-func-name", "feed", "--trt-config-script", "s.py", "--trt-config-func-name=configure"]
    newer = ["--data-loader-script", "s.py:feed", "--trt-config-script", "s.py:configure"]
    for model, words in ((["s.py", "--trt-network-func-name", "define"], older), (["s.py:define"], newer)):
        outcome = run("run", *model, "--trt", *words, "--save-engine", "e.engine", "--save-outputs", "o.json")
        assert outcome.code == 0, outcome
        shown = run("inspect", "data", "o.json", "--show-values").out
        assert "defined" in shown and "6.5" in shown, shown
        assert "Precisions: fp32, fp16" in run("inspect", "model", "e.engine").out
    alone = run("run", identity, "--trt", "--data-loader-func-name", "feed")
    assert alone.code == 2 and "argument --data-loader-func-name: expected --data-loader-script too" in alone.err, alone


def test_what_stands_behind_a_model_says_nothing(run, polygraphy, identity):
    ours, theirs = run("run", f"{identity}:function", "--trt"), polygraphy("run", f"{identity}:function", "--onnxrt")
    assert ours.code == theirs.code == 0, (ours, theirs)
