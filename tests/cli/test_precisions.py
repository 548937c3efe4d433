"""The published example: Add(65504), Sub(65504) in float16, by options and by scripts."""
import re

import pytest

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
