"""Input that was made to break something: each ends within seconds with one message, or with an odd but sound answer."""
import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
from onnx import TensorProto, helper

import hostile_bodies
import hostile_models
import hostile_odd
from cli_support import needs_constraints
from hostile_models import floats, ints, loop, model, save


def no_crash(outcome):
    assert outcome.code in (0, 1), outcome
    for text in ("defect of ulpscope", "terminate called", "Traceback (most recent", "Sanitizer", "runtime error:"):
        assert text not in outcome.text, outcome
    if outcome.code == 1:
        assert "[!] " in outcome.err or "FAILED" in outcome.out, outcome
    return outcome


def refused(outcome, *texts):
    no_crash(outcome)
    assert outcome.code == 1, outcome
    for text in texts:
        assert text in outcome.err, outcome
    return outcome


@pytest.mark.parametrize("name", [*hostile_models.REFUSED, *hostile_bodies.BODIES])
def test_layers_without_a_meaning(name, run, tmp_path):
    feed, models = {**hostile_models.REFUSED, **hostile_bodies.BODIES}[name]
    for network in models:
        save(tmp_path, network, feed)
        refused(run("run", "m.onnx", "--trt", "--load-inputs", "in.json"), "bad")


@pytest.mark.parametrize("fusion", ["full", "none"])
@pytest.mark.parametrize("name", hostile_odd.ODD)
def test_layers_with_an_odd_meaning(name, fusion, run, tmp_path):
    feed, models = hostile_odd.ODD[name]
    for network in models:
        save(tmp_path, network, feed)
        outcome = no_crash(run("run", "m.onnx", "--trt", "--load-inputs", "in.json", "--fusion", fusion))
        assert outcome.code == 0, outcome


def chain(*nodes, x, constants=None, **more):
    """Nodes, given as (operator, inputs, outputs, attributes)."""
    made = [helper.make_node(op, inputs, outputs, name=f"{op}_{i}", **attributes)
            for i, (op, inputs, outputs, attributes) in enumerate(nodes)]
    return model(made, {"x": x}, constants, **more)


EMPTY_CHAINS = {
    "convolution": chain(("Conv", ["x", "w"], ["a"], {}), ("Relu", ["a"], ["b"], {}),
                         ("MaxPool", ["b"], ["c"], {"kernel_shape": [2, 2]}), ("GlobalAveragePool", ["c"], ["d"], {}),
                         ("Flatten", ["d"], ["e"], {}), ("Gemm", ["e", "v"], ["y"], {}),
                         x=floats(0, 3, 8, 8), constants={"w": floats(4, 3, 3, 3), "v": floats(4, 2)}),
    "normalization": chain(("Conv", ["x", "w"], ["a"], {}),
                           ("BatchNormalization", ["a", "s", "s", "s", "s"], ["b"], {}), ("Add", ["b", "b"], ["c"], {}),
                           ("ReduceMean", ["c"], ["y"], {"axes": [2, 3]}),
                           x=floats(0, 3, 8, 8), constants={"w": floats(4, 3, 3, 3), "s": floats(4)}),
    "attention": chain(("MatMul", ["x", "w"], ["q"], {}), ("Transpose", ["q"], ["k"], {"perm": [0, 2, 1]}),
                       ("MatMul", ["q", "k"], ["s"], {}), ("Softmax", ["s"], ["p"], {"axis": -1}),
                       ("MatMul", ["p", "q"], ["o"], {}), ("LayerNormalization", ["o", "g"], ["y"], {}),
                       x=floats(1, 0, 8), constants={"w": floats(8, 8), "g": floats(8)}),
    "rows": chain(("Softmax", ["x"], ["a"], {}), ("Mul", ["a", "x"], ["b"], {}), ("ReduceSum", ["b"], ["c"], {}),
                  ("Add", ["c", "b"], ["y"], {}), x=floats(4, 0)),
    "joins": chain(("Relu", ["x"], ["a"], {}), ("Concat", ["a", "x"], ["b"], {"axis": 1}),
                   ("Slice", ["b", "i", "j"], ["c"], {}), ("Reshape", ["c", "r"], ["y"], {}),
                   x=floats(0, 4), constants={"i": ints(0, 0), "j": ints(9, 3), "r": ints(-1, 3)}),
}


@pytest.mark.parametrize("words", [[], ["--fusion", "none"], ["--fp16", "--assume-lowest"],
                                   ["--bf16", "--assume-lowest", "--fusion", "pointwise"],
                                   ["--trt-outputs", "mark", "all"]], ids=" ".join)
@pytest.mark.parametrize("name", EMPTY_CHAINS)
def test_chains_of_layers_without_elements(name, words, run, tmp_path):
    save(tmp_path, EMPTY_CHAINS[name], {"x": floats(*(d.dim_value for d in
                                                       EMPTY_CHAINS[name].graph.input[0].type.tensor_type.shape.dim))})
    outcome = no_crash(run("run", "m.onnx", "--trt", "--load-inputs", "in.json", *words))
    assert outcome.code == 0, outcome


def branch(then_nodes, else_nodes, outputs=("t",), else_outputs=None):
    def graph(name, nodes, results):
        return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(result) for result in results])

    node = helper.make_node("If", ["c"], ["y"], name="bad", then_branch=graph("then", then_nodes, outputs),
                            else_branch=graph("else", else_nodes, else_outputs or outputs))
    return model([node, helper.make_node("Add", ["y", "x"], ["z"], name="after")],
                 {"x": floats(2), "c": np.array(True)}, outputs=("z",))


def recursive_functions(count):
    """Functions that call each other in a circle."""
    functions = [helper.make_function("local", f"F{i}", ["a"], ["b"],
                                      [helper.make_node(f"F{(i + 1) % count}", ["a"], ["b"], domain="local")],
                                      [helper.make_opsetid("local", 1), helper.make_opsetid("", 17)])
                 for i in range(count)]
    return model([helper.make_node("F0", ["x"], ["y"], name="bad", domain="local")], {"x": floats(2)},
                 functions=functions, domains=["local"])


def growing_functions(depth):
    """Each function calls the next one ten times: 10^depth nodes."""
    functions = []
    for i in range(depth):
        op, domain = (f"F{i + 1}", "local") if i + 1 < depth else ("Relu", "")
        nodes = [helper.make_node(op, ["a" if k == 0 else f"t{k}"], ["b" if k == 9 else f"t{k + 1}"], domain=domain)
                 for k in range(10)]
        functions.append(helper.make_function("local", f"F{i}", ["a"], ["b"], nodes,
                                              [helper.make_opsetid("local", 1), helper.make_opsetid("", 17)]))
    return model([helper.make_node("F0", ["x"], ["y"], name="bad", domain="local")], {"x": floats(2)},
                 functions=functions, domains=["local"])


def nested_branches(depth):
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["t"])], "leaf", [],
                              [helper.make_empty_tensor_value_info("t")])
    for i in range(depth):
        node = helper.make_node("If", ["c"], [f"t{i}"], then_branch=graph, else_branch=graph) if i == 0 else \
            helper.make_node("If", ["c"], [f"t{i}"], then_branch=graph,
                             else_branch=helper.make_graph([helper.make_node("Identity", ["x"], ["u"])], "other", [],
                                                           [helper.make_empty_tensor_value_info("u")]))
        graph = helper.make_graph([node], f"g{i}", [], [helper.make_empty_tensor_value_info(f"t{i}")])
    return model([*graph.node, helper.make_node("Relu", [f"t{depth - 1}"], ["y"])],
                 {"x": floats(2), "c": np.array(True)})


@pytest.mark.parametrize("network, texts", [
    (recursive_functions(1), ["F0"]), (recursive_functions(3), ["F"]), (growing_functions(9), ["functions", "nodes"]),
    (branch([helper.make_node("Constant", [], ["t"], value_ints=[1, 2])],
            [helper.make_node("Identity", ["x"], ["t"])]), ["bad"]),
    (branch([helper.make_node("Identity", ["nowhere"], ["t"])], [helper.make_node("Identity", ["x"], ["t"])]),
     ["nowhere"]),
    (branch([helper.make_node("Identity", ["x"], ["t"]), helper.make_node("Relu", ["x"], ["u"])],
            [helper.make_node("Identity", ["x"], ["t"])], ("t", "u"), ("t",)), ["bad"]),
], ids=["recursion", "mutual recursion", "growth", "branch types", "dangling branch", "branch outputs"])
def test_graphs_inside_of_graphs(network, texts, run, tmp_path):
    feed = {"x": floats(2), "c": np.array(True)}
    save(tmp_path, network, feed)
    refused(run("run", "m.onnx", "--trt", "--load-inputs", "in.json"), *texts)


def test_deep_nesting_is_no_stack_overflow(run, tmp_path):
    save(tmp_path, nested_branches(20), {"x": floats(2), "c": np.array(True)})
    assert no_crash(run("run", "m.onnx", "--trt", "--load-inputs", "in.json")).code == 0


def test_ten_thousand_layers_in_a_row(run, tmp_path):
    nodes = [helper.make_node("Relu", ["x" if i == 0 else f"t{i}"], ["y" if i == 9999 else f"t{i + 1}"])
             for i in range(10000)]
    save(tmp_path, model(nodes, {"x": floats(2)}), {"x": floats(2)})
    assert no_crash(run("run", "m.onnx", "--trt", "--load-inputs", "in.json")).code == 0


@pytest.mark.parametrize("trips, condition", [(-1, True), (0, True), (5, False), (-2 ** 63, True)])
def test_loops_that_do_not_run(trips, condition, run, tmp_path):
    save(tmp_path, loop(trips, condition), {"x": floats(2)})
    assert no_crash(run("run", "m.onnx", "--trt", "--load-inputs", "in.json")).code == 0


# Damaged files.

def damaged_copies(content, count, seed, reach=None):
    random = np.random.RandomState(seed)
    for i in range(count):
        copy = bytearray(content)
        for position in random.randint(0, min(len(content), reach or len(content)), random.randint(1, 8)):
            copy[position] = random.randint(256) if i % 2 else copy[position] ^ (1 << random.randint(8))
        if i % 5 == 4:
            del copy[random.randint(len(copy)):]
        yield bytes(copy)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_models(seed, run, tmp_path):
    content = needs_constraints(4).SerializeToString()
    for copy in damaged_copies(content, 25, seed):
        (tmp_path / "m.onnx").write_bytes(copy)
        no_crash(run("run", "m.onnx", "--trt"))


@pytest.mark.parametrize("name", sorted(EMPTY_CHAINS))
def test_damaged_models_of_many_operators(name, run, tmp_path):
    content = EMPTY_CHAINS[name].SerializeToString()
    for copy in damaged_copies(content, 20, len(name)):
        (tmp_path / "m.onnx").write_bytes(copy)
        no_crash(run("run", "m.onnx", "--trt"))


def test_damaged_plans(run, tmp_path, model):
    assert run("run", model, "--trt", "--fp16", "--save-engine", "e.plan").code == 0
    content = (tmp_path / "e.plan").read_bytes()
    for copy in damaged_copies(content, 20, 1, 4096):
        if copy == content:
            continue
        (tmp_path / "e.plan").write_bytes(copy)
        refused(run("run", "e.plan", "--trt"), "e.plan")


def test_plans_with_a_right_checksum_and_wrong_content(run, tmp_path, dynamic_model):
    """Another model file with the name of a plan."""
    shutil.copy(dynamic_model, tmp_path / "e.plan")
    refused(run("run", "e.plan", "--trt"), "e.plan")


# Files that are none.

@pytest.mark.parametrize("name", ["pipe.onnx", "pipe.plan"])
@pytest.mark.parametrize("runner", ["--trt", "--onnxrt"])
def test_fifo_as_model(name, runner, run, tmp_path):
    os.mkfifo(tmp_path / name)
    refused(run("run", name, runner), name)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
@pytest.mark.parametrize("option", ["--load-inputs", "--load-outputs", "--load-tactics"])
def test_device_as_file(device, option, run, dynamic_model):
    refused(run("run", dynamic_model, "--trt", option, device), device)


@pytest.mark.parametrize("option", ["--load-inputs", "--load-outputs", "--load-tactics", "--trt-npps",
                                    "--data-loader-script", "--save-outputs", "--save-inputs", "--save-engine",
                                    "--save-tactics", "--log-file"])
def test_folder_as_file(option, run, dynamic_model, tmp_path):
    (tmp_path / "folder.py").mkdir()
    refused(run("run", dynamic_model, "--trt", option, "folder.py"), "folder.py")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dynamic.onnx", "folder.py"]


def test_folder_as_model(run, tmp_path):
    (tmp_path / "m.onnx").mkdir()
    refused(run("run", "m.onnx", "--trt"), "m.onnx")
    refused(run("run", "m.onnx", "--onnxrt"), "m.onnx")


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="there is no /dev/full")
def test_full_disk_for_the_log(run, dynamic_model):
    outcome = run("run", dynamic_model, "--trt", "--log-file", "/dev/full")
    assert outcome.code == 1 and "[!] " in outcome.err, outcome


def test_unwritable_folder_for_the_log(run, dynamic_model, tmp_path):
    (tmp_path / "file").write_text("")
    refused(run("run", dynamic_model, "--trt", "--log-file", "file/log.txt"), "file")


# Inputs.

@pytest.mark.parametrize("shape", ["[0,3]", "[1099511627776,3]", "[4611686018427387904,3]", "[-4,3]", "[2,3,4,5]", "[]",
                                   "[99999999999999999999999,3]", "[1.5,3]", "[2,,3]", "[", "2,3", ""])
def test_impossible_input_shapes(shape, run, dynamic_model):
    outcome = run("run", dynamic_model, "--trt", "--input-shapes", f"x:{shape}")
    assert outcome.code in (0, 1, 2), outcome
    assert "defect of ulpscope" not in outcome.text and "Sanitizer" not in outcome.text, outcome
    if shape in ("[1099511627776,3]", "[4611686018427387904,3]"):
        refused(outcome, "x")
    if outcome.code == 0 and shape != "[0,3]":
        assert "[W] " in outcome.out, outcome


@pytest.mark.parametrize("dims", [[2 ** 62, 3], [2 ** 45], [-5, 3], [0, 2 ** 62, 2 ** 62]])
def test_impossible_declared_shapes(dims, run, tmp_path):
    network = model([helper.make_node("Relu", ["x"], ["y"], name="bad")], {"x": floats(2)})
    network.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, dims))
    save(tmp_path, network)
    outcome = no_crash(run("run", "m.onnx", "--trt"))
    if max(dims) > 5:
        refused(outcome, "'x'")


@pytest.mark.parametrize("profile", [["x:[4,3]", "x:[2,3]", "x:[1,3]"], ["x:[-1,3]", "x:[2,3]", "x:[4,3]"],
                                     ["x:[1]", "x:[2]", "x:[4]"], ["z:[1,3]", "z:[2,3]", "z:[4,3]"],
                                     ["x:[1,3]", "x:[1,3]", "x:[1099511627776,3]"]])
def test_impossible_profiles(profile, run, dynamic_model):
    no_crash(run("run", dynamic_model, "--trt", "--trt-min-shapes", profile[0], "--trt-opt-shapes", profile[1],
                 "--trt-max-shapes", profile[2]))


def npy(header, data=b"\0" * 24, version=b"\x01\x00", length=None):
    import base64
    text = header.encode()
    size = len(text) if length is None else length
    return base64.b64encode(b"\x93NUMPY" + version + size.to_bytes(2, "little") + text + data).decode()


@pytest.mark.parametrize("array", [
    npy("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }"),
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3), }"),
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4611686018427387904), }"),
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999999,), }"),
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (20, 30), }"),
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3"),
    npy("{'descr': '<f99', 'fortran_order': False, 'shape': (2, 3), }"),
    npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3), }"),
    npy("{'descr': '<U4', 'fortran_order': False, 'shape': (2, 3), }"),
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", length=65535),
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", version=b"\x09\x00"),
    npy("" * 4), npy("{" * 20000), "", "####", "AAAA", "k05VTVBZ",
], ids=range(17))
def test_malformed_arrays(array, run, dynamic_model, tmp_path):
    (tmp_path / "in.json").write_text(json.dumps([{"x": {"array": array, "polygraphy_class": "ndarray"}}]))
    refused(run("run", dynamic_model, "--trt", "--load-inputs", "in.json"), "in.json")


@pytest.mark.parametrize("text", ["[" * 200000, '{"a":' * 100000, '[{"x": 1e999}]', '"\\ud800"', "[1,]", "\x00", "nul",
                                  "[{}]" * 3, '[{"x": {"polygraphy_class": "ndarray"}}]',
                                  '[{"x": {"array": 5, "polygraphy_class": "ndarray"}}]',
                                  '[{"x": {"array": "", "polygraphy_class": "RunResults"}}]',
                                  '{"lst": 7, "polygraphy_class": "RunResults"}',
                                  '{"lst": [[1, 2, 3]], "polygraphy_class": "RunResults"}'], ids=range(13))
@pytest.mark.parametrize("option", ["--load-inputs", "--load-outputs", "--load-tactics"])
def test_malformed_text(text, option, run, dynamic_model, tmp_path):
    (tmp_path / "bad.json").write_text(text)
    no_crash(run("run", dynamic_model, "--trt", option, "bad.json"))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3.4e38, 1e-45])
@pytest.mark.parametrize("words", [[], ["--fp16", "--assume-lowest"], ["--bf16", "--assume-lowest", "--fusion", "none"]],
                         ids=" ".join)
def test_extreme_values(value, words, run, tmp_path):
    save(tmp_path, needs_constraints(8), {"x": floats(1, 1, 8, 8, value=value)})
    outcome = no_crash(run("run", "m.onnx", "--trt", "--load-inputs", "in.json", *words))
    assert outcome.code == 0, outcome


# Options that name what is not there.

@pytest.mark.parametrize("words, text", [
    (["--layer-precisions", "Nothing:float16", "--precision-constraints", "obey", "--fp16"], "Nothing"),
    (["--layer-precisions", "Add:float7"], "float7"),
    (["--trt-outputs", "nothing"], "nothing"),
    (["--onnx-outputs", "nothing", "--onnxrt"], "nothing"),
])
def test_names_of_nothing(words, text, run, dynamic_model):
    outcome = run("run", dynamic_model, "--trt", *words)
    assert outcome.code in (0, 1) and text in outcome.text and "defect" not in outcome.text, outcome


# Scripts and Python.

def test_script_that_prints_megabytes(run, dynamic_model, tmp_path):
    (tmp_path / "loud.py").write_text("import sys\n\ndef postprocess(network):\n"
                                      "    for i in range(4000):\n        print('x' * 1000)\n"
                                      "        print('y' * 1000, file=sys.stderr)\n")
    outcome = no_crash(run("run", dynamic_model, "--trt", "--trt-npps", "loud.py"))
    assert outcome.code == 0 and outcome.out.count("x" * 1000) == 4000 and outcome.err.count("y" * 1000) == 4000


@pytest.mark.parametrize("body", ["while True: print('x' * 1000)", "raise KeyboardInterrupt()", "raise SystemExit(0)",
                                  "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
                                  "import os; [os.close(fd) for fd in range(3, 64) if fd is not None]",
                                  "import sys; sys.setrecursionlimit(10**9); f = lambda g: g(g); f(f)",
                                  "network.get_layer(10**9).precision = 3", "network.get_layer(0).precision = 'x'",
                                  "import os; os.fork() == 0 and __import__('time').sleep(600); raise ValueError('x')"])
def test_wild_scripts(body, run, dynamic_model, tmp_path):
    (tmp_path / "wild.py").write_text(f"def postprocess(network):\n    {body}\n")
    outcome = run("run", dynamic_model, "--trt", "--trt-npps", "wild.py", "--python-time-limit", "3",
                  stdout=subprocess.DEVNULL)
    assert outcome.code == 1 and "[!] " in outcome.err and "defect" not in outcome.err, outcome


@pytest.mark.parametrize("yielded", ["3", "{'x': 'text'}", "{'x': None}", "{'x': object()}", "{3: 4}", "{'z': np.ones(4)}",
                                     "{'x': np.array([object()])}", "{'x': np.ones((2, 3), complex)}"])
def test_data_loaders_that_yield_nonsense(yielded, run, dynamic_model, tmp_path):
    (tmp_path / "data.py").write_text(f"import numpy as np\n\ndef load_data():\n    yield {yielded}\n")
    refused(run("run", dynamic_model, "--trt", "--data-loader-script", "data.py"))


def test_data_of_another_name(run, dynamic_model, tmp_path):
    """As in Polygraphy: taken by its place, with a warning."""
    (tmp_path / "data.py").write_text("import numpy as np\n\ndef load_data():\n    yield {'z': np.ones((1, 3), np.float32)}\n")
    outcome = run("run", dynamic_model, "--trt", "--data-loader-script", "data.py")
    assert outcome.code == 0 and "Buffer name (z) does not match expected input name (x)" in outcome.out, outcome


def test_data_of_another_shape(run, dynamic_model, tmp_path):
    """As in Polygraphy: brought into shape where that is possible, with a warning."""
    (tmp_path / "data.py").write_text("import numpy as np\n\ndef load_data():\n"
                                      "    yield {'x': np.ones((2, 3, 4), np.float32)}\n")
    no_crash(run("run", dynamic_model, "--trt", "--data-loader-script", "data.py"))


def test_no_onnxruntime(run, dynamic_model, tmp_path):
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").write_text("raise ImportError('there is no such thing')\n")
    refused(run("run", dynamic_model, "--onnxrt", env={"PYTHONPATH": str(tmp_path)}), "onnxruntime",
            "install")


@pytest.mark.parametrize("interpreter", ["/bin/true", "/bin/false", "/bin/cat", "/dev/null", "/tmp"])
def test_something_else_as_python(interpreter, run, dynamic_model):
    refused(run("run", dynamic_model, "--onnxrt", env={"ULPSCOPE_PYTHON": interpreter}))
