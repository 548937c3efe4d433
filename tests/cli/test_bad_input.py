"""Bad input: one clear message (what, where, what to try) and the documented status, and nothing written is lost."""
import base64
import io
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cli_support import needs_constraints
from search_support import outputs_of

NO_DEFECT = ("defect", "Traceback (most recent", "terminate called", "Segmentation")


def fails(outcome, *texts):
    """Status 1, and a message on stderr with these texts."""
    assert outcome.code == 1, outcome
    assert "[!] " in outcome.err, outcome
    for text in texts:
        assert text in outcome.err, outcome
    for text in ("defect", "terminate called"):
        assert text not in outcome.text, outcome


@pytest.mark.parametrize("runner", ["--trt", "--onnxrt"])
def test_missing_model(runner, run):
    fails(run("run", "nothing.onnx", runner), "nothing.onnx", "no such file")


@pytest.mark.parametrize("name", ["model.txt", "model"])
def test_unknown_type_of_model(name, run, tmp_path):
    (tmp_path / name).write_text("")
    fails(run("run", name, "--trt"), name, "--model-type")


@pytest.mark.parametrize("name", ["net.graphdef", "net.hdf5", "net.uff", "net.prototxt"])
def test_types_that_are_not_read(name, run, tmp_path):
    (tmp_path / name).write_text("")
    fails(run("run", name, "--trt"), name, "ONNX")


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x08\x12\x04", b"\xff" * 100,
                                     b"PK\x03\x04" + b"\0" * 40])
@pytest.mark.parametrize("runner", ["--trt", "--onnxrt"])
def test_not_an_onnx_file(content, runner, run, tmp_path):
    (tmp_path / "m.onnx").write_bytes(content)
    fails(run("run", "m.onnx", runner), "m.onnx")


@pytest.mark.parametrize("share", [0.2, 0.5, 0.99])
def test_truncated_model(share, run, tmp_path, model):
    content = model.read_bytes()
    (tmp_path / "m.onnx").write_bytes(content[:int(len(content) * share)])
    fails(run("run", "m.onnx", "--trt"), "m.onnx")


def test_flipped_bits_never_crash(run, tmp_path):
    content = bytearray(needs_constraints(4).SerializeToString())
    random = np.random.RandomState(0)
    for _ in range(25):
        damaged = bytearray(content)
        for position in random.randint(0, len(content), 3):
            damaged[position] ^= 1 << random.randint(8)
        (tmp_path / "m.onnx").write_bytes(damaged)
        outcome = run("run", "m.onnx", "--trt")
        assert outcome.code in (0, 1), outcome
        assert not any(text in outcome.text for text in NO_DEFECT), outcome


def graph_of(*nodes, outputs=("y",), opset=13, domain=""):
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in ("x", *outputs)]
    graph = helper.make_graph(list(nodes), "g", infos[:1], infos[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, opset)], ir_version=8)


@pytest.mark.parametrize(
    "model, texts",
    [
        (graph_of(helper.make_node("Blorp", ["x"], ["y"], name="n1")), ["Blorp", "n1"]),
        (graph_of(helper.make_node("Relu", ["x"], ["y"], name="n1"), opset=999), ["999"]),
        (graph_of(helper.make_node("Relu", ["z"], ["y"], name="n1")), ["z"]),
        (graph_of(helper.make_node("Relu", ["x"], ["t"], name="n1")), ["y"]),
        (
            graph_of(
                helper.make_node("Relu", ["b"], ["a"], name="n1"),
                helper.make_node("Relu", ["a"], ["b"], name="n2"),
                helper.make_node("Relu", ["a"], ["y"], name="n3"),
            ),
            ["n1"],
        ),
        (
            graph_of(
                helper.make_node(
                    "Constant",
                    [],
                    ["y"],
                    name="n1",
                    value_floats=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0]),
                )
            ),
            ["n1", "expected FLOATS as attribute 'value_floats', got TENSOR"],
        ),
    ],
)
def test_graphs_that_make_no_sense(model, texts, run, tmp_path):
    onnx.save(model, tmp_path / "m.onnx")
    fails(run("run", "m.onnx", "--trt"), *texts)


def save_inputs(path, feed):
    import base64
    import io
    import json

    def encode(array):
        file = io.BytesIO()
        np.save(file, array)
        return {"array": base64.b64encode(file.getvalue()).decode(), "polygraphy_class": "ndarray"}

    path.write_text(json.dumps([{name: encode(array) for name, array in feed.items()}]))


@pytest.mark.parametrize("feed, texts", [
    ({}, ["x"]),
    ({"x": np.zeros((2, 4), np.float32)}, ["x"]),
    ({"x": np.array(["a"])}, []),
])
def test_inputs_that_do_not_fit(feed, texts, run, dynamic_model, tmp_path):
    save_inputs(tmp_path / "in.json", feed)
    fails(run("run", dynamic_model, "--trt", "--load-inputs", "in.json"), *texts)


def test_unknown_operators_behind_the_outputs(run, tmp_path):
    nodes = [helper.make_node("Neg", ["x"], ["a"], name="neg"),
             helper.make_node("Weird", ["a"], ["b"], name="weird", domain="my.domain"),
             helper.make_node("Relu", ["b"], ["y"], name="relu")]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", infos[:1], infos[1:]), opset_imports=domains, ir_version=8),
              tmp_path / "m.onnx")
    for outputs in ([], ["--trt-outputs", "b"], ["--trt-outputs", "a", "y"], ["--trt-outputs", "mark", "all"]):
        fails(run("run", "m.onnx", "--trt", *outputs), "operator 'Weird' (domain 'my.domain') of node 'weird'", "--trt-outputs")
    for option in ("--trt-outputs", "--onnx-outputs"):
        outcome = run("run", "m.onnx", "--trt", option, "a", "--save-outputs", "o.json", "--save-inputs", "i.json")
        assert outcome.code == 0 and "2 of 3 nodes are left out" in outcome.out and "Weird" in outcome.out, outcome
        (output,) = outputs_of(tmp_path / "o.json")
        (inputs,) = json.loads((tmp_path / "i.json").read_text())
        x = np.load(io.BytesIO(base64.b64decode(inputs["x"]["array"])))
        assert list(output) == ["a"]
        np.testing.assert_array_equal(output["a"], -x)


def test_nan_in_inputs_is_data(run, dynamic_model, tmp_path):
    save_inputs(tmp_path / "in.json", {"x": np.array([[1, np.nan, np.inf]], np.float32)})
    outcome = run("run", dynamic_model, "--trt", "--load-inputs", "in.json", "--validate")
    assert outcome.code == 1 and "NaN Detected" in outcome.out and "Inf Detected" in outcome.out, outcome


@pytest.mark.parametrize("shape", ["x:[2]", "x:[2,5]", "x:[a,b,c]", "x:[2,3,4]"])
def test_impossible_shapes(shape, run, dynamic_model):
    """As in Polygraphy: a warning, and the shape that the model gives."""
    outcome = run("run", dynamic_model, "--trt", "--input-shapes", shape)
    assert outcome.code == 0 and "[W] " in outcome.out and "'x'" in outcome.out.replace(": x ", " 'x' "), outcome


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", "nonsense",
                                     '[{"x": {"array": "!!!", "polygraphy_class": "ndarray"}}]',
                                     '[{"x": {"array": "k05VTVBZ", "polygraphy_class": "ndarray"}}]', "\x80\x04pickle"])
@pytest.mark.parametrize("option", ["--load-inputs", "--load-outputs"])
def test_malformed_json(content, option, run, dynamic_model, tmp_path):
    (tmp_path / "bad.json").write_text(content, encoding="latin-1")
    fails(run("run", dynamic_model, "--trt", option, "bad.json"), "bad.json")


@pytest.mark.parametrize("option", ["--load-inputs", "--load-outputs", "--load-tactics", "--trt-npps",
                                    "--data-loader-script", "--trt-config-script"])
def test_files_that_are_missing(option, run, dynamic_model):
    fails(run("run", dynamic_model, "--trt", option, "missing.py"), "missing.py")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"replay": 3}', '{"replay": {}}'])
def test_malformed_tactics(content, run, dynamic_model, tmp_path):
    (tmp_path / "t.json").write_text(content)
    outcome = run("run", dynamic_model, "--trt", "--load-tactics", "t.json")
    assert outcome.code in (0, 1) and "defect" not in outcome.text, outcome
    if content != '{"replay": {}}':
        fails(outcome, "tactic")


@pytest.mark.parametrize("damage", ["empty", "text", "truncated", "flipped"])
def test_malformed_plan(damage, run, dynamic_model, tmp_path):
    assert run("run", dynamic_model, "--trt", "--save-engine", "e.plan").code == 0
    plan = tmp_path / "e.plan"
    content = bytearray(plan.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 4
    damaged = {"empty": b"", "text": b"hello" * 50, "truncated": bytes(content[:-7]), "flipped": bytes(content)}
    plan.write_bytes(damaged[damage])
    fails(run("run", "e.plan", "--trt"), "e.plan")


@pytest.mark.parametrize("body, text", [
    ("raise ValueError('oh no')", "oh no"),
    ("import sys; sys.exit(3)", "exit"),
    ("import os; os._exit(4)", ""),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", ""),
    ("return 1 / 0", "division by zero"),
])
def test_scripts_that_fail(body, text, run, dynamic_model, tmp_path):
    (tmp_path / "bad.py").write_text(f"def postprocess(network):\n    {body}\n\ndef load_data():\n    {body}\n"
                                     f"    yield {{}}\n\ndef load_network():\n    {body}\n")
    fails(run("run", dynamic_model, "--trt", "--trt-npps", "bad.py"), text)
    fails(run("run", dynamic_model, "--trt", "--data-loader-script", "bad.py"), text)
    fails(run("run", "bad.py", "--trt"), text)


def test_script_that_hangs(run, dynamic_model, tmp_path):
    (tmp_path / "slow.py").write_text("import time\n\ndef postprocess(network):\n    time.sleep(1000)\n")
    fails(run("run", dynamic_model, "--trt", "--trt-npps", "slow.py", "--python-time-limit", "1"), "slow.py")


@pytest.mark.parametrize("content, text", [("def postprocess(network:\n", "SyntaxError"), ("x = 1\n", "postprocess"),
                                           ("import nothing_of_that_name\n", "nothing_of_that_name")])
def test_scripts_that_do_not_load(content, text, run, dynamic_model, tmp_path):
    (tmp_path / "bad.py").write_text(content)
    fails(run("run", dynamic_model, "--trt", "--trt-npps", "bad.py"), text)


@pytest.mark.parametrize("returned", ["None", "3", "(1, 2)"])
def test_network_scripts_that_return_something_else(returned, run, tmp_path):
    (tmp_path / "net.py").write_text(f"def load_network():\n    return {returned}\n")
    fails(run("run", "net.py", "--trt"))


def test_no_python(run, dynamic_model):
    env = {"ULPSCOPE_PYTHON": "/nonexistent/python"}
    fails(run("run", dynamic_model, "--onnxrt", env=env), "/nonexistent/python", "install")


def test_unwritable_folder(run, dynamic_model, tmp_path):
    if os.geteuid() == 0:
        (tmp_path / "file").write_text("")
        target = "file/out.json"
    else:
        (tmp_path / "closed").mkdir(mode=0o500)
        target = "closed/out.json"
    for option in ("--save-outputs", "--save-inputs", "--save-engine", "--save-tactics"):
        fails(run("run", dynamic_model, "--trt", option, target), target.split("/")[0])


@pytest.mark.parametrize("option", ["--save-outputs", "--save-inputs", "--save-tactics", "--save-engine"])
def test_full_disk(option, run, dynamic_model):
    if not pathlib.Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    fails(run("run", dynamic_model, "--trt", option, "/dev/full"), "/dev/full", "No space left")


@pytest.mark.parametrize("free,words", [
    (2, ["run", "m.onnx", "--trt", "--save-engine", "disk/file"]),
    (2, ["convert", "m.onnx", "--fp16", "-o", "disk/file", "--no-python-checks"]),
    (0, ["precision", "search", "m.onnx", "--fp16", "--journal", "j.jsonl", "--save-answer", "disk/file"]),
    (0, ["precision", "search", "m.onnx", "--fp16", "--journal", "disk/file", "--save-answer", "a.json"]),
], ids=["engine", "model", "answer", "journal"])
def test_a_disk_that_fills_up(free, words, binary, tmp_path):
    """So many pages of four are free: what was there stays, nothing half-written does."""
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*alone, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False).returncode != 0:
        pytest.skip("this system lets nobody mount a small disk (unshare --user --mount)")
    onnx.save(needs_constraints(256), tmp_path / "m.onnx")
    (tmp_path / "disk").mkdir()
    script = ("mount -t tmpfs -o size=16k tmpfs disk && echo kept > disk/file && "
              f"head -c {4096 * (3 - free)} /dev/zero > disk/other\n"
              '"$@"\necho "status $?"; cat disk/file; ls -A disk')
    done = subprocess.run([*alone, "sh", "-c", script, "sh", str(binary), *words], cwd=tmp_path, capture_output=True, text=True,
                          check=False)
    assert done.stdout.endswith("status 1\nkept\nfile\nother\n"), done
    assert "cannot write it: No space left on device" in done.stderr, done
    assert not any(word in done.stderr for word in NO_DEFECT), done
    if "j.jsonl" in words:
        assert len((tmp_path / "j.jsonl").read_text().splitlines()) > 1  # to go on from


@pytest.mark.parametrize("words", [
    ["run", "m.onnx", "--trt", "--save-engine", "file"],
    ["convert", "m.onnx", "--fp16", "-o", "file", "--no-python-checks"],
    ["precision", "search", "m.onnx", "--fp16", "--journal", "j.jsonl", "--save-answer", "file"],
    ["precision", "search", "m.onnx", "--fp16", "--journal", "file", "--save-answer", "a.json"],
], ids=["engine", "model", "answer", "journal"])
def test_a_file_size_limit(words, binary, tmp_path):
    """As a disk that is full: what was there stays, nothing half-written does, and a message says why."""
    onnx.save(needs_constraints(256), tmp_path / "m.onnx")
    (tmp_path / "file").write_text("kept")
    environment = dict(os.environ)
    environment.setdefault("ULPSCOPE_PYTHON", sys.executable)
    limit = 2000
    process = subprocess.run(
        [str(binary), *words, *([] if words[0] != "precision" else ["--metric", "rel-l2", "--threshold", "1e-2"])],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    text = process.stdout + process.stderr
    assert process.returncode == 1 and "File too large" in text and "defect" not in text, (process.returncode, text)
    assert (tmp_path / "file").read_text() == "kept" or "journal" in text
    assert {path.name for path in tmp_path.iterdir()} <= {"m.onnx", "file", "j.jsonl", "a.json"}
    if "j.jsonl" in words:
        assert len((tmp_path / "j.jsonl").read_text().splitlines()) > 1  # to go on from


def test_a_failed_run_leaves_older_files_whole(run, dynamic_model, tmp_path):
    assert run("run", dynamic_model, "--trt", "--save-outputs", "o.json").code == 0
    before = (tmp_path / "o.json").read_bytes()
    assert run("run", "missing.onnx", "--trt", "--save-outputs", "o.json").code == 1
    assert (tmp_path / "o.json").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dynamic.onnx", "o.json"]


@pytest.mark.parametrize("words, text", [
    (["--atol", "small"], "--atol"),
    (["--check-error-stat", "mode"], "Invalid choice for check_error_stat"),
    (["--val-range", "5"], "--val-range"),
    (["--val-range", "[1,2,3]"], "--val-range"),
    (["--postprocess", "bottom-5"], "--postprocess"),
    (["--threads", "-1"], "--threads: expected 0 (one per core) to 1024, got -1"),
    (["--memory-limit", "0.5"], "Could not convert 0.5 to a number of bytes; --memory-limit takes 1 or more bytes such as"),
    (["--memory-limit", "-1"], "Could not convert -1 to a number of bytes; --memory-limit takes 1 or more bytes such as"),
    (["--memory-limit", "1Q"], "Could not convert 1Q to a number of bytes; --memory-limit takes 1 or more bytes such as"),
    (["--memory-limit", "1e30"], "Could not convert 1e30 to a number of bytes; --memory-limit takes 1 or more bytes such as"),
    (["--iterations", "-1"], "--iterations"),
    (["--target", "abacus"], "abacus"),
    (["--tensor-dtypes", "nothing:float16"], "nothing"),
    (["--compare", "psnr", "--psnr-threshold", "loud"], "--psnr-threshold"),
    (["--calibration-cache", "c"], "--int8"),
])
def test_values_that_make_no_sense(words, text, run, dynamic_model):
    fails(run("run", dynamic_model, "--trt", "--trt", *words), text)


@pytest.mark.parametrize("words", [
    ["run", "m.onnx"],
    ["run", "m.onnx", "--trt"],
    ["run", "m.onnx", "--onnxrt"],
    ["convert", "m.onnx", "--fp16", "-o", "new"],
    ["inspect", "model", "m.onnx"],
    ["precision", "search", "m.onnx", "--fp16", "--save-answer", "new"],
    ["precision", "bisect", "m.onnx", "--fp16", "--golden", "g.json"],
    ["debug", "precision", "m.onnx", "--fp16", "--golden", "g.json"],
    ["verify", "m.onnx", "--answer", "a.json"],
    ["target", "measure", "-o", "new.json"],
])
def test_more_threads_than_any_machine_has(words, run, tmp_path):
    """None of them is started: systems end programs that want too many."""
    onnx.save(needs_constraints(8), tmp_path / "m.onnx")
    if words[0] == "verify":
        assert run("precision", "search", "m.onnx", "--fp16", "--save-answer", "a.json").code == 0
    before = sorted(path.name for path in tmp_path.iterdir())
    outcome = run(*words, "--threads", "100000")
    assert outcome.code == (4 if words[0] == "verify" else 1), outcome
    assert "[options] --threads: expected 0 (one per core) to 1024, got 100000" in outcome.err, outcome
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def unreadable_names(place):
    """A product whose input, output, value in between or weights have a name that is no UTF-8."""
    nodes = [helper.make_node("Relu", ["input_"], ["between_"], name="relu"),
             helper.make_node("MatMul", ["between_", "weights_"], ["output_"], name="product")]  # fmt: skip
    graph = helper.make_graph(
        nodes, "graph", [helper.make_tensor_value_info("input_", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("output_", TensorProto.FLOAT, [2, 4])],
        [onnx.numpy_helper.from_array(np.ones((3, 4), np.float32), "weights_")],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return made.replace(f"{place}_".encode(), f"{place}".encode() + b"\xff")


@pytest.mark.parametrize("place", ["input", "between", "weights", "output"])
def test_tensors_whose_names_are_no_utf8(run, tmp_path, place):
    """The program takes them; what Python would have to name, it does not."""
    import ulpscope

    (tmp_path / "m.onnx").write_bytes(unreadable_names(place))
    outcome = run("run", "m.onnx", "--trt", "--fp16", "--save-outputs", "o.json")
    assert outcome.code == 0, outcome
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx")
    assert outcome.code == 0 and "equal in every bit" in outcome.text, outcome
    compared = run("run", "m.onnx", "--trt", "--onnxrt")
    shown = f"'{place}\N{REPLACEMENT CHARACTER}'"
    if place in ("input", "output"):
        fails(compared, f"expected names in UTF-8, got {shown}")
        assert "Traceback" not in compared.text and "UnicodeDecodeError" not in compared.text, compared
    else:
        assert compared.code == 0, compared
    for use in (lambda m: ulpscope.Engine(m), lambda m: ulpscope.convert(m, precision="fp16"),
                lambda m: ulpscope.search(m, [{}], precisions=["fp16"], threshold=1e-3)):  # fmt: skip
        if place in ("input", "output"):
            with pytest.raises(ulpscope.Error, match="expected a name in UTF-8") as caught:
                use(tmp_path / "m.onnx")
            assert shown in str(caught.value)
    if place in ("between", "weights"):
        ulpscope.convert(tmp_path / "m.onnx", precision="fp16")
        (product,) = ulpscope.Engine(tmp_path / "m.onnx").run([np.ones((2, 3), np.float32)]).values()
        assert (product == 3).all()
