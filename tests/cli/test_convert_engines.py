"""convert: engines with what Polygraphy's convert has for them, copies, and networks to look at."""
import argparse
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cli_support import needs_constraints

SCRIPT = """
from polygraphy.backend.trt import CreateNetwork, CreateConfig
from polygraphy import func
import tensorrt as trt


@func.extend(CreateNetwork())
def my_load_network(builder, network):
    inp = network.add_input("input", dtype=trt.float32, shape=(1, 1))
    network.mark_output(network.add_identity(inp).get_output(0))


@func.extend(CreateConfig())
def load_config(config):
    config.set_flag(trt.BuilderFlag.FP16)


def postprocess_config(builder, network, config):
    config.set_flag(trt.BuilderFlag.FP16)


def postprocess(network):
    network.get_output(0).name = "renamed"
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "s.py").write_text(SCRIPT)
    return "s.py"


def test_all_of_polygraphys_options_are_known(binary):
    pytest.importorskip("polygraphy")
    from polygraphy.tools.convert import Convert

    parser = Convert().setup_parser(argparse.ArgumentParser(prog="polygraphy").add_subparsers(dest="tools"))
    text = subprocess.run([str(binary), "convert", "--help-all"], text=True, capture_output=True).stdout
    known = {word.strip(",") for word in text.split() if word.startswith("-")}
    assert len(parser._actions) > 50
    assert not [action.option_strings for action in parser._actions if not set(action.option_strings) <= known]


def test_network_and_config_of_scripts(run, script):
    words = ["--trt-config-script", script, "--convert-to=trt", "-o", "m.engine"]
    made = run("convert", f"{script}:my_load_network", "--model-type=trt-network-script", *words)
    assert made.code == 0, made
    assert "Precisions: fp32, fp16" in run("inspect", "model", "m.engine").text
    assert run("run", "m.engine", "--trt").code == 0


@pytest.mark.parametrize("option", ["--trt-config-script", "--trt-config-postprocess-script"])
def test_config_of_scripts(option, run, script, model):
    made = run("convert", model, option, script, "-o", "m.engine")
    assert made.code == 0, made
    assert "Precisions: fp32, fp16" in run("inspect", "model", "m.engine").text
    plain = run("convert", model, "-o", "n.engine")
    assert plain.code == 0 and "fp16" not in run("inspect", "model", "n.engine").text, plain


def test_networks_of_options(run, script, model, tmp_path):
    made = run("convert", model, "--trt-outputs", "add_out_1", "matmul_out_3", "--tensor-dtypes", "x:float16", "-o", "m.engine")
    shown = run("inspect", "model", "m.engine").text
    assert made.code == 0 and "add_out_1 [" in shown and "x [dtype=float16" in shown, shown
    made = run("convert", model, "--trt-npps", script, "-o", "m.engine")
    assert made.code == 0 and "renamed [" in run("inspect", "model", "m.engine").text, made


def test_tactics_are_those_of_run(run, model, tmp_path):
    made = run("convert", model, "--fp16", "--save-tactics", "t.json", "-o", "m.engine")
    assert made.code == 0, made
    assert run("run", model, "--trt", "--fp16", "--assume-lowest", "--precision-constraints", "obey", "--save-tactics", "r.json").code == 0
    assert (tmp_path / "t.json").read_text() == (tmp_path / "r.json").read_text()
    again = run("convert", model, "--fp16", "--load-tactics", "t.json", "-o", "n.engine")
    assert again.code == 0 and (tmp_path / "n.engine").stat().st_size > 0, again


@pytest.mark.parametrize("words", [["--trt-outputs", "mark", "all"], ["--trt-npps", "s.py"], ["--trt-config-script", "s.py"], ["--tf32"], ["--strongly-typed"],
                                   ["--save-tactics", "t.json"], ["--tensor-dtypes", "x:float16"]], ids=" ".join)
def test_typed_models_have_none_of_it(words, run, script, model, tmp_path):
    outcome = run("convert", model, "--fp16", *words, "-o", "m.onnx")
    assert outcome.code == 1 and f"[options] {words[0].replace('npps', 'network-postprocess-script')}: expected an engine to write" in outcome.err, outcome
    assert not (tmp_path / "m.onnx").exists()


def elements(path):
    model = onnx.load(path)
    return model, {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}


def test_copies(run, polygraphy, tmp_path):
    (tmp_path / "data").mkdir()
    onnx.save(needs_constraints(16), tmp_path / "data" / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "data" / "m.onnx").rename(tmp_path / "m.onnx")
    words = ["convert", "m.onnx", "--external-data-dir", "data", "--convert-to", "onnx", "-o"]
    ours, theirs = run(*words, "ours.model"), polygraphy(*words, "theirs.model")
    assert ours.code == theirs.code == 0, ours
    (model, mine), (expected, his) = elements(tmp_path / "ours.model"), elements(tmp_path / "theirs.model")
    assert model.graph.node == expected.graph.node and mine.keys() == his.keys()
    assert all(np.array_equal(mine[name], his[name]) for name in mine)


def body_model():
    floats = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("sum_in", "next", "sum_out", "scan_out")]
    body = helper.make_graph([helper.make_node("Add", ["sum_in", "next"], ["sum_out"], name="add"),
                              helper.make_node("Identity", ["sum_out"], ["scan_out"], name="same")], "body", floats[:2], floats[2:])
    nodes = [helper.make_node("Scan", ["initial", "x"], ["y", "z"], name="scan", num_scan_inputs=1, body=body),
             helper.make_node("Softmax", ["z"], ["s"], name="soft", axis=1), helper.make_node("Mul", ["s", "w"], ["m"], name="mul")]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in
             (("initial", [2]), ("x", ["n", 2]), ("y", [2]), ("m", ["n", 2]))]
    graph = helper.make_graph(nodes, "scan", infos[:2], infos[2:], [numpy_helper.from_array(np.ones(2, np.float32), "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def nodes_of(graph):
    """Names, operators, tensors and attributes, without constants."""
    return [(each.name, each.op_type, list(each.input), list(each.output),
             {a.name: nodes_of(a.g) if a.type == onnx.AttributeProto.GRAPH else helper.get_attribute_value(a) for a in each.attribute})
            for each in graph.node if each.op_type != "Constant"]


def test_networks_to_look_at(run, tmp_path):
    model = body_model()
    onnx.save(model, tmp_path / "m.onnx")
    made = run("convert", "m.onnx", "--convert-to=onnx-like-trt-network", "--layer-precisions", "mul:float16", "-o", "view")
    assert made.code == 0, made
    view = onnx.load(tmp_path / "view")
    expected = nodes_of(model.graph)
    expected[2][4]["precision"] = b"float16"
    assert nodes_of(view.graph) == expected, view
    assert [i.name for i in view.graph.input] == ["initial", "x"] and [o.name for o in view.graph.output] == ["y", "m"]
    assert view.graph.input[1].type == model.graph.input[1].type
    assert not view.graph.initializer
    shown = run("inspect", "model", "view", "--model-type", "onnx", "--show", "layers")
    assert shown.code == 0 and "[Op: Scan]" in shown.out, shown


def test_networks_of_scripts_to_look_at(run, script, tmp_path):
    made = run("convert", f"{script}:my_load_network", "--convert-to", "onnx-like-trt-network", "-o", "view.onnx")
    assert made.code == 0 and [n.op_type for n in onnx.load(tmp_path / "view.onnx").graph.node] == ["Identity"], made
