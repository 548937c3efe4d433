"""The published example: Add(65504), Sub(65504) in float16, by options and by scripts."""
import json
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cli_support import dynamic_add
from search_support import outputs_of

BASE = ["--trt", "--onnxrt", "--fp16", "--val-range", "x:[1,2]", "--check-error-stat", "median"]
MARK = ["--trt-outputs", "mark", "all", "--onnx-outputs", "mark", "all"]

POSTPROCESS = """
import tensorrt as trt

def postprocess(network):
    for layer in network:
        if layer.name in ("Add", "Sub"):
            layer.precision = trt.float32
        if layer.name == "Add":
            layer.set_output_type(0, trt.float32)

def half(network):
    for layer in network:
        if layer.name in ("Add", "Sub"):
            layer.precision = trt.float16
"""

LOADER = """
import tensorrt as trt
from polygraphy import func
from polygraphy.backend.trt import NetworkFromOnnxPath

@func.extend(NetworkFromOnnxPath("needs_constraints.onnx"))
def load_network(builder, network, parser):
    for layer in network:
        if layer.name in ("Add", "Sub"):
            layer.precision = trt.float32
        if layer.name == "Add":
            layer.set_output_type(0, trt.float32)

@func.extend(NetworkFromOnnxPath("needs_constraints.onnx"))
def half(builder, network, parser):
    for layer in network:
        if layer.name in ("Add", "Sub"):
            layer.precision = trt.float16
"""


@pytest.fixture(autouse=True)
def scripts(tmp_path):
    (tmp_path / "post.py").write_text(POSTPROCESS)
    (tmp_path / "load.py").write_text(LOADER)


def histograms(text):
    """The counts of every histogram, in order."""
    return [[int(line.split("|")[1]) for line in block.splitlines() if re.match(r"\s+\(", line)]
            for block in text.split("---- Histogram ----")[1:]]


def test_the_published_log(run, model):
    """What the same command printed on a real GPU."""
    outcome = run("run", model, *BASE, *MARK, "--layer-precisions", "Add:float16", "Sub:float32",
                  "--precision-constraints", "prefer")
    assert outcome.code == 1, outcome
    text = outcome.out[outcome.out.index("Comparing Output: 'add_out_1'"):]
    assert re.search(r"trt-runner-N0-\S+: add_out_1 \| Stats: mean=65504, std-dev=0,", text)
    assert re.search(r"onnxrt-runner-N0-\S+: add_out_1 \| Stats: mean=65506, std-dev=0.28889, var=0.083457, "
                     r"median=65506, min=65505 at \(0, 0, 0, 5\), max=65506 at \(0, 0, 5, 165\)", text)
    assert "Absolute Difference | Stats: mean=1.4995, std-dev=0.28889, var=0.083457, median=1.5, " \
           "min=1 at (0, 0, 0, 5), max=2 at (0, 0, 5, 165)" in text
    assert [6588, 6616, 6499, 6593, 6291, 6749, 6678, 6383, 6619, 6520] == histograms(text)[2]
    assert "Minimum Required Tolerance: median error | [abs=1.5] OR [rel=2.2899e-05]" in text
    assert "Minimum Required Tolerance: median error | [abs=1.5] OR [rel=1]" in text
    assert "FAILED | Mismatched outputs: ['add_out_1', 'sub_out_2', 'matmul_out_3']" in text


def test_fp16_alone_keeps_this_model_in_fp32(run, model):
    outcome = run("run", model, *BASE, *MARK)
    assert outcome.code == 0, outcome
    for layer in ("MatMul_0", "Add", "Sub", "MatMul_1"):
        assert re.search(rf"\[I\]     {layer} \[\w+\] \| fp32: .*cheapest", outcome.out), layer


@pytest.mark.parametrize("words", [
    ["needs_constraints.onnx", "--layer-precisions", "Add:float16", "Sub:float16"],
    ["needs_constraints.onnx", "--trt-npps", "post.py:half"],
    ["needs_constraints.onnx", "--trt-network-postprocess-script", "post.py:half", "post.py:half"],
])
def test_add_and_sub_in_fp16_fuse(words, run, model):
    outcome = run("run", *words, *BASE, "--precision-constraints", "obey")
    assert outcome.code == 0, outcome
    assert re.search(r"Add \[Add\] \| fp16: requested", outcome.out), outcome
    assert run("run", *words, *BASE, "--precision-constraints", "obey", "--fusion", "none").code == 1


@pytest.mark.parametrize("mode", ["obey", "prefer"])
def test_network_script_and_saved_results(mode, run, model):
    golden = run("run", model, "--onnxrt", "--val-range", "x:[1,2]", "--save-inputs", "in.json", "--save-outputs",
                 "out.json")
    assert golden.code == 0, golden
    saved = ["--load-inputs", "in.json", "--load-outputs", "out.json", "--check-error-stat", "median", "--fp16"]
    outcome = run("run", "load.py", "--trt", *saved, "--precision-constraints", mode)
    assert outcome.code == 0, outcome
    outcome = run("run", "load.py:half", "--trt", *saved, "--precision-constraints", mode)
    assert outcome.code == 0, outcome
    outcome = run("run", "load.py:half", "--trt", *saved, "--precision-constraints", mode, "--fusion", "none")
    assert outcome.code == 1, outcome


def test_output_type_in_a_script(run, model):
    outcome = run("run", model, *BASE, "--trt-npps", "post.py", "--precision-constraints", "obey")
    assert outcome.code == 0, outcome


def test_the_command_line_wins_over_scripts(run, model):
    outcome = run("run", model, "--trt", "--fp16", "--trt-npps", "post.py:half", "--layer-precisions", "Add:float32",
                  "--precision-constraints", "obey")
    assert outcome.code == 0
    assert "Add [Add] | fp32: requested" in outcome.out and "Sub [Sub] | fp16: requested" in outcome.out, outcome


def test_large_networks_get_one_line_per_decision(run, tmp_path):
    import onnx
    from onnx import TensorProto, helper

    names = ["x", *(f"t{i}" for i in range(30))]
    nodes = [helper.make_node("Relu", [names[i]], [names[i + 1]], name=f"Relu_{i}") for i in range(30)]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in (names[0], names[-1])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", infos[:1], infos[1:]), ir_version=8,
                                opset_imports=[helper.make_opsetid("", 13)]), tmp_path / "m.onnx")
    words = ["run", "m.onnx", "--trt", "--fp16", "--assume-lowest", "--layer-precisions", "Relu_3:float32",
             "Relu_9:float32",
             "--precision-constraints", "obey"]
    outcome = run(*words)
    assert outcome.code == 0, outcome
    assert "[I] Precisions of 30 layers (-v shows each)" in outcome.out
    assert re.search(r"\[I\]     fp16 \| 28 layer\(s\) \| .*: Relu_0, Relu_1, Relu_2, \.\.\.", outcome.out), outcome
    assert re.search(r"\[I\]     fp32 \| 2 layer\(s\) \| .*: Relu_3, Relu_9\n", outcome.out), outcome
    outcome = run(*words, "-v")
    assert all(re.search(rf"\[V\]     Relu_{i} \[Relu\] \| fp", outcome.out) for i in range(30)), outcome
    assert "Precisions of" not in run("run", "m.onnx", "--trt").out


def test_constraints_without_a_mode_have_no_effect(run, model):
    outcome = run("run", model, *BASE, "--layer-precisions", "Add:float16", "Sub:float32")
    assert outcome.code == 0
    assert re.search(r"\[W\] .*Add", outcome.out), outcome


def test_a_precision_that_is_not_enabled(run, model):
    words = ["run", model, "--trt", "--onnxrt", "--layer-precisions", "Add:float16", "--precision-constraints"]
    outcome = run(*words, "prefer")
    assert outcome.code == 0 and re.search(r"\[W\] .*Add", outcome.out), outcome
    outcome = run(*words, "obey")
    assert outcome.code == 1 and "Add" in outcome.err, outcome


def test_unknown_layers_are_warnings_with_near_matches(run, model):
    outcome = run("run", model, "--trt", "--layer-precisions", "matmul_0:float16", "nonsense:float16")
    assert outcome.code == 0
    assert "--layer-precisions: the network has no layer 'matmul_0'; did you mean 'MatMul_0'" in outcome.out
    assert "no layer 'nonsense'\n" in outcome.out


def test_unknown_types_are_errors(run, model):
    outcome = run("run", model, "--trt", "--layer-precisions", "Add:float17")
    assert outcome.code == 1 and "unknown type 'float17'" in outcome.err and "bfloat16" in outcome.err


def test_saved_engine(run, model, tmp_path):
    words = ["--trt", "--fp16", "--layer-precisions", "Add:float16", "Sub:float32", "--precision-constraints", "obey",
             "--val-range", "[1,2]"]
    outcome = run("run", model, *words, "--save-engine", "made/e.plan", "--save-outputs", "o.json")
    assert outcome.code == 0, outcome
    outcome = run("run", "made/e.plan", "--trt", "--val-range", "[1,2]", "--load-outputs", "o.json", "--atol", "0",
                  "--rtol", "0", "--fp16")
    assert outcome.code == 0, outcome
    assert "--fp16 has no effect" in outcome.out
    outcome = run("run", "made/e.plan", "--onnxrt")
    assert outcome.code == 1 and "expected an ONNX model" in outcome.err


def test_saved_tactics(run, model):
    outcome = run("run", model, "--trt", "--fp16", "--assume-lowest", "--save-tactics", "t.json", "--save-outputs",
                  "o.json")
    assert outcome.code == 0, outcome
    outcome = run("run", model, "--trt", "--fp16", "--load-tactics", "t.json", "--load-outputs", "o.json", "--atol",
                  "0",
                  "--rtol", "0")
    assert outcome.code == 0, outcome


@pytest.mark.parametrize("change, message", [
    (lambda entry: entry.update(tactic=987654), "does not offer tactic 987654"),
    (lambda entry: entry.update(tactic=-7), "does not offer tactic -7"),
    (lambda entry: entry.update(implementation=5), "does not offer implementation 5"),
    (lambda entry: entry["inputs"][0].update(dtype="DataType.INT8"), "its inputs are [INT8] there, [FLOAT] here"),
    (lambda entry: entry["outputs"][0].update(dtype="DataType.FLOAT"), "its outputs are [FLOAT] there, [HALF] here"),
    (lambda entry: entry.update(outputs=[[0, "DataType.FLOAT", [4, 2, 1]]]), "its outputs are [FLOAT] there"),
    (lambda entry: entry["outputs"].append(entry["outputs"][0]), "its outputs are [HALF, HALF] there, [HALF] here"),
    (lambda entry: entry["inputs"][0].update(strides=[1, 2]), "its inputs are of strides (1, 2) there, (65536, 65536, 256, 1) here"),
    (lambda entry: entry["outputs"][0].update(strides=[1, 256, 256, 256]), "its outputs are of strides (1, 256, 256, 256) there"),
    (lambda entry: entry["inputs"][0].update(vectorized_dim=1), "in vectors of elements or in another format there"),
    (lambda entry: entry["inputs"][0].update(components_per_element=4), "in vectors of elements or in another format there"),
    (lambda entry: entry["inputs"][0].update(tensor_format="TensorFormat.CHW32"), "in vectors of elements or in another format"),
    (lambda entry: entry.update(outputs=[["TensorFormat.HWC8", "DataType.HALF", "(65536, 65536, 256, 1)"]]), "in another format there"),
    # All of these are offered: they say the same, or less.
    (lambda entry: entry.update(outputs=[["TensorFormat.LINEAR", "DataType.HALF", "(65536, 65536, 256, 1)"]]), None),
    (lambda entry: entry.update(outputs=[[0, "DataType.HALF", [65536, 65536, 256, 1]]]), None),
    (lambda entry: entry["inputs"][0].update(vectorized_dim=None, components_per_element=None), None),
    (lambda entry: entry["inputs"][0].update(tensor_format="TensorFormat.LINEAR"), None),
    (lambda entry: [entry.pop("inputs"), entry.update(outputs=[])], None),
])
def test_a_tactic_that_cannot_be_had_is_refused(change, message, run, model, tmp_path):
    words = ["run", model, "--trt", "--fp16", "--assume-lowest", "--fusion", "none"]
    assert run(*words, "--save-tactics", "t.json").code == 0
    replay = json.loads((tmp_path / "t.json").read_text())
    first = next(iter(replay["replay"].values()))
    assert (first["inputs"][0]["dtype"], first["outputs"][0]["dtype"]) == ("DataType.FLOAT", "DataType.HALF")
    change(first)
    (tmp_path / "t.json").write_text(json.dumps(replay))
    outcome = run(*words, "--load-tactics", "t.json")
    assert outcome.code == (1 if message else 0), outcome
    assert not message or (message in outcome.err and "layer 'MatMul_0'" in outcome.err)


def test_tactics_hold_for_other_sizes(run, tmp_path):
    onnx.save(dynamic_add(), tmp_path / "dynamic.onnx")
    words = ["run", "dynamic.onnx", "--trt", "--input-shapes"]
    assert run(*words, "x:[2,3]", "--save-tactics", "t.json").code == 0
    assert run(*words, "x:[5,3]", "--load-tactics", "t.json").code == 0


def test_tactics_of_another_backend_are_refused(run, model, tmp_path):
    words = ["run", model, "--trt", "--fp16", "--assume-lowest"]
    for saved, other in (("cpu", "plain"), ("plain", "cpu"), ("cpu", "cuda")):
        assert run(*words, "--backend", saved, "--save-tactics", "t.json").code == 0
        assert json.loads((tmp_path / "t.json").read_text())["backend"] == saved
        outcome = run(*words, "--backend", other, "--load-tactics", "t.json")
        assert outcome.code == 1 and f"chosen on the backend '{saved}', this build is for '{other}'" in outcome.err, outcome


def test_polygraphy_reads_tactics_with_steps(run, model, tmp_path):
    """What ours has beyond Polygraphy's own is no matter to it."""
    algorithms = pytest.importorskip("polygraphy.backend.trt.algorithm_selector")
    assert run("run", model, "--trt", "--fp16", "--assume-lowest", "--save-tactics", "t.json").code == 0
    replay = json.loads((tmp_path / "t.json").read_text())
    replay["device"] = "NVIDIA H200, cuBLASLt 13.1.0, cuDNN 9.19.0"
    for entry in replay["replay"].values():
        entry["steps"] = [{"computes": "product", "algorithm": "00ff"}]
        entry["inputs"] = entry["outputs"] = []  # Their types are TensorRT's enums, which may not be there.
    text = json.dumps(replay)
    read = algorithms.TacticReplayData.from_json(text)
    assert list(read) == list(replay["replay"])
    assert {read[name].implementation for name in read} == {entry["implementation"] for entry in replay["replay"].values()}
    (tmp_path / "t.json").write_text(text)
    outcome = run("run", model, "--trt", "--fp16", "--load-tactics", "t.json")
    assert outcome.code == 0, outcome


def test_built_engines_run_on_the_backend(run, model, tmp_path):
    assert run("run", model, "--trt", "--fp16", "--assume-lowest", "--save-engine", "e.plan").code == 0
    for backend in ("cpu", "plain"):
        assert run("run", "e.plan", "--trt", "--backend", backend, "--save-tactics", f"{backend}.json").code == 0
        assert json.loads((tmp_path / f"{backend}.json").read_text())["backend"] == backend
    assert run("run", "e.plan", "--trt", "--load-tactics", "cpu.json").code == 0
    outcome = run("run", "e.plan", "--trt", "--load-tactics", "plain.json")
    assert outcome.code == 1 and "chosen on the backend 'plain'" in outcome.err, outcome


def test_other_scales_change_int8_results(run, tmp_path):
    """Networks so small that nothing but launches costs time."""
    random = np.random.default_rng(11)
    weights = {name: random.normal(size=(8, 8)).astype(np.float32) for name in ("w", "v")}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("MatMul", ["b", "v"], ["y"])]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:],
                              [numpy_helper.from_array(array, name) for name, array in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    words = ["run", "m.onnx", "--trt", "--int8", "--calibration-cache"]
    assert run(*words, "made.cache", "--save-outputs", "made.json").code == 0
    lines = (tmp_path / "made.cache").read_text().splitlines()
    scales = {line.split(": ")[0]: np.frombuffer(bytes.fromhex(line.split(": ")[1].zfill(8)), ">f4")[0]
              for line in lines[1:]}
    wide = [f"{name}: {np.array(8 * scale, '>f4').tobytes().hex()}" for name, scale in scales.items()]
    (tmp_path / "wide.cache").write_text("\n".join([lines[0], *wide]) + "\n")
    assert run(*words, "wide.cache", "--save-outputs", "wide.json").code == 0
    made, wide = (outputs_of(tmp_path / name)[0]["y"] for name in ("made.json", "wide.json"))
    x = np.random.RandomState(1).random_sample((2, 8)).astype(np.float32)
    exact = np.maximum(x @ weights["w"], 0) @ weights["v"]
    assert 0 < np.abs(made - exact).max() < np.abs(wide - exact).max() / 2


def test_results_do_not_depend_on_threads(run, model):
    assert run("run", model, "--trt", "--fp16", "--assume-lowest", "--threads", "1", "--save-outputs",
               "o.json").code == 0
    outcome = run("run", model, "--trt", "--fp16", "--assume-lowest", "--threads", "3", "--load-outputs", "o.json",
                  "--atol", "0", "--rtol", "0")
    assert outcome.code == 0, outcome


def test_config_scripts(run, model, tmp_path):
    (tmp_path / "config.py").write_text("""
import tensorrt as trt

def load_config(builder, network):
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.FP16)
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    return config

def postprocess_config(builder, network, config):
    config.set_flag(trt.BuilderFlag.FP16)
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
""")
    for option in ("--trt-config-script", "--trt-config-postprocess-script"):
        outcome = run("run", model, "--trt", "--layer-precisions", "Add:float16", option, "config.py")
        assert outcome.code == 0 and "Add [Add] | fp16: requested" in outcome.out, outcome
