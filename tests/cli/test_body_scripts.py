"""Network scripts see the layers of bodies among the others, as a parser of TensorRT leaves them, and may set them."""

import numpy as np
import onnx
import pytest

from body_models import MODELS, branches, nested
from convert_support import assert_converted, save
from search_support import outputs_of as saved_outputs
from test_bodies import graphs, weak_options


LISTED = """
def postprocess(network):
    for layer in network:
        inputs = [layer.get_input(i) for i in range(layer.num_inputs)]
        print("LAYER", layer.name, [tensor.name for tensor in inputs if tensor is not None])
"""


def postprocess(tmp_path, *lines, name="post.py"):
    text = "import numpy as np\nimport tensorrt as trt\n\n\ndef postprocess(network):\n"
    text += "    layers = {layer.name: layer for layer in network}\n"
    (tmp_path / name).write_text(text + "".join(f"    {line}\n" for line in lines))
    return ["--trt-network-postprocess-script", name]


def outputs_of(run, tmp_path, *words):
    outcome = run("run", *words, "--save-outputs", "o.json")
    assert outcome.code == 0, outcome
    return saved_outputs(tmp_path / "o.json")[0]


def assert_same_bits(one, other):
    assert list(one) == list(other)
    assert all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)


def test_layers_of_bodies_stand_in_front_of_who_runs_them(run, tmp_path):
    (tmp_path / "list.py").write_text(LISTED)
    words = ["--trt", "--trt-network-postprocess-script", "list.py"]
    expected = {
        branches: ["sum", "then/product", "then/add", "else/product", "else/mul", "if", "tanh"],
        nested: ["is_first", "first/product", "first/Add", "later/product", "later/Sub", "inner", "sigmoid", "outer"],
    }
    for model, order in expected.items():
        outcome = run("run", save(tmp_path, model()), *words)
        assert outcome.code == 0, outcome
        listed = [line.split(" ", 2)[1] for line in outcome.text.splitlines() if line.startswith("LAYER ")]
        assert [name for name in listed if name in order] == order
    assert "LAYER later/product ['h', 'w']" in outcome.text, "what a body reads from around it is the tensor there"


@pytest.mark.parametrize("fusion", ["none", "full"])
@pytest.mark.parametrize("name", MODELS)
def test_the_script_of_convert_names_layers_of_bodies(run, tmp_path, name, fusion):
    """Every other layer of a body stays: the script, and --layer-precisions, give the same bits."""
    source = save(tmp_path, MODELS[name]())
    bodies = list(graphs(onnx.load(tmp_path / source).graph))[1:]
    names = [node.name for body in bodies for node in body.node if node.name and node.op_type not in ("Constant", "If")]
    kept = names[::2]
    words = ["--fusion", fusion]
    written = ["-o", "t.onnx", "--save-postprocess-script", "post.py"]
    assert_converted(run("convert", source, "--fp16", *words, *written, "--keep", *kept))
    script = ["--trt-network-postprocess-script", "post.py"]
    told = outputs_of(run, tmp_path, source, *weak_options("fp16", [f"{each}:float32" for each in kept]), *words)
    assert_same_bits(outputs_of(run, tmp_path, source, *weak_options("fp16", []), *words, *script), told)


def test_a_script_may_rename_a_layer_of_a_body_and_read_its_constants(run, tmp_path):
    source = save(tmp_path, branches())
    lines = ["layers['then/product'].name = 'renamed'", "print('OWN', layers['own'].weights.shape)"]
    low = weak_options("fp16", ["renamed:float32"])
    outcome = run("run", source, *low, *postprocess(tmp_path, *lines))
    assert outcome.code == 0 and "OWN (4,)" in outcome.text, outcome
    assert "renamed" not in "".join(line for line in outcome.text.splitlines() if line.startswith("[W]"))
    again = run("run", source, "--trt", *postprocess(tmp_path, "layers['then/product'].name = 'else/mul'"))
    assert again.code == 1 and "expected different names of layers, got 'else/mul' twice" in again.text


def test_layers_that_a_script_adds_come_behind_those_of_bodies(run, tmp_path):
    """Numbers of tensors: those of bodies lie between the model's and the script's."""
    source = save(tmp_path, branches())
    lines = [
        "two = network.add_constant((1, 1), np.full((1, 1), 2, np.float32)).get_output(0)",
        "double = network.add_elementwise(network.get_output(0), two, trt.ElementWiseOperation.PROD)",
        "double.get_output(0).name = 'double'",
        "print('SHAPE', tuple(double.get_output(0).shape))",
        "network.mark_output(double.get_output(0))",
    ]
    outputs = outputs_of(run, tmp_path, source, "--trt", *postprocess(tmp_path, *lines))
    assert np.array_equal(outputs["double"], 2 * outputs["y"])


@pytest.mark.parametrize("line, words", [
    ("network.mark_output(layers['then/add'].get_output(0))", "got 't2', which lies in a body of 'if'; try an output"),
    ("layers['then/add'].set_input(0, layers['sum'].get_output(0))", "since it lies in a body of 'if', got others"),
    ("network.add_identity(layers['then/add'].get_output(0))", "got 't2', which lies in a body of 'if'"),
    ("layers['then/add'].get_output(0).name = 'other'", "got 't2', which lies in a body of 'if'"),
])  # fmt: skip
def test_what_scripts_cannot_do_with_bodies(run, tmp_path, line, words):
    outcome = run("run", save(tmp_path, branches()), "--trt", *postprocess(tmp_path, line))
    assert outcome.code == 1 and words in outcome.text, outcome
