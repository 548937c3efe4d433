"""Options of `run` that change the model before it is run, write inputs and models, and edit results."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cli_support import needs_constraints


def outputs_of(path):
    return [output.name for output in onnx.load(path).graph.output]


@pytest.fixture
def external_model(tmp_path):
    """Weights in another folder than the model."""
    model = needs_constraints(32)
    (tmp_path / "weights").mkdir()
    onnx.save(model, tmp_path / "weights" / "e.onnx", save_as_external_data=True, location="e.bin", size_threshold=16)
    (tmp_path / "weights" / "e.onnx").rename(tmp_path / "e.onnx")
    return tmp_path / "e.onnx"


def test_the_reference_is_exact(run, tmp_path):
    """The nearest float32 to float64 by NumPy, where sums in float32 would be off."""
    json, comparator = pytest.importorskip("polygraphy.json"), pytest.importorskip("polygraphy.comparator")
    weight = np.random.default_rng(1).normal(size=(512, 8)).astype(np.float32)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, size]) for name, size in (("x", 512), ("y", 8))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", infos[:1], infos[1:], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    outcome = run("run", "m.onnx", "--pluginref", "--save-inputs", "in.json", "--save-outputs", "out.json")
    assert outcome.code == 0 and "pluginref-runner-N0" in outcome.out, outcome
    ((_, (result,)),) = comparator.RunResults.load(str(tmp_path / "out.json"))
    x = json.load_json(str(tmp_path / "in.json"))[0]["x"]
    exact = (x.astype(np.float64) @ weight.astype(np.float64)).astype(np.float32)
    # Another order of the sum in float64 may round one in 2^29 the other way.
    assert np.count_nonzero(result["y"] != exact) <= 1


def test_the_reference_takes_every_operator(run, model, tmp_path):
    outcome = run("run", model, "--pluginref", "--trt", "--onnxrt", "--onnx-outputs", "sub_out_2", "--trt-outputs", "sub_out_2", "--atol", "1e-2",
                  "--fp16", "--precision-constraints", "obey", "--layer-precisions", "Add:float32", "Sub:float32", "MatMul_0:float32")
    assert outcome.code == 0 and outcome.out.count("pluginref-runner-N0") > 2 and "Outputs: ['sub_out_2']" in outcome.out, outcome
    (tmp_path / "net.py").write_text("")
    outcome = run("run", "net.py", "--pluginref")
    assert outcome.code == 1 and "[model] --pluginref: expected an ONNX model" in outcome.err, outcome


def test_outputs_by_type(run, model, tmp_path):
    outcome = run("run", model, "--onnxrt", "--trt", "--onnx-outputs-by-type", "matmul", "--trt-outputs-by-type", "MatMul",
                  "--save-outputs", "o.json", "--atol", "1e-2", "--val-range", "x:[1,2]")
    assert outcome.code == 0 and "Outputs: ['matmul_out_0', 'matmul_out_3']" in outcome.out, outcome
    # Beside outputs by name.
    outcome = run("run", model, "--trt", "--onnxrt", "--trt-outputs-by-type", "Sub", "--trt-outputs", "add_out_1",
                  "--onnx-outputs-by-type", "Sub", "--onnx-outputs", "add_out_1", "--atol", "1e-2")
    assert outcome.code == 0 and "Outputs: ['add_out_1', 'sub_out_2']" in outcome.out, outcome


def test_fp_to_fp16(run, model, tmp_path):
    """Both runners are given the converted model, and it can be written."""
    words = ["--val-range", "x:[1,2]", "--check-error-stat", "median"]
    assert run("run", model, "--onnxrt", *words, "--save-outputs", "golden.json").code == 0
    outcome = run("run", model, "--onnxrt", *words, "--fp-to-fp16", "--load-outputs", "golden.json", "--save-onnx", "half.onnx")
    assert "Converting float tensors to float16" in outcome.out and "[!]" not in outcome.text, outcome
    half = onnx.load(tmp_path / "half.onnx")
    assert all(each.data_type == TensorProto.FLOAT16 for each in half.graph.initializer)
    assert half.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
    outcome = run("run", model, "--trt", *words, "--fp-to-fp16", "--save-outputs", "first.json")
    assert outcome.code == 0, outcome
    exact = ["--load-outputs", "first.json", "--atol", "0", "--rtol", "0"]
    assert run("run", "half.onnx", "--trt", *words, *exact).code == 0
    assert not list(tmp_path.glob(".ulpscope*"))


def test_save_onnx(run, polygraphy, model, tmp_path):
    assert run("run", model, "--onnxrt", "--onnx-outputs", "sub_out_2", "matmul_out_3", "--save-onnx", "new/cut.onnx").code == 0
    assert outputs_of(tmp_path / "new" / "cut.onnx") == ["sub_out_2", "matmul_out_3"]
    theirs = polygraphy("run", model, "--onnxrt", "--onnx-outputs", "*", "--save-onnx", "theirs.onnx")
    assert theirs.code == 0 and run("run", model, "--onnxrt", "--onnx-outputs", "*", "--save-onnx", "mine.onnx").code == 0
    assert outputs_of(tmp_path / "mine.onnx") == outputs_of(tmp_path / "theirs.onnx")


def test_save_external_data(run, external_model, tmp_path):
    """Weights come from another folder and go to a third; the result runs and gives the same."""
    words = ["run", external_model, "--onnxrt", "--external-data-dir", "weights"]
    assert run(*words, "--save-outputs", "o.json").code == 0
    assert run(*words, "--save-onnx", "out/all.onnx").code == 0
    assert run(*words, "--save-onnx", "out/split.onnx", "--save-external-data", "--external-data-size-threshold", "16").code == 0
    assert run(*words, "--save-onnx", "out/named.onnx", "--save-external-data", "w.bin", "--external-data-size-threshold", "16").code == 0
    assert run(*words, "--save-onnx", "many/m.onnx", "--save-external-data", "--external-data-size-threshold", "16",
               "--no-save-all-tensors-to-one-file").code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["all.onnx", "named.onnx", "split.onnx", "split.onnx.data",
                                                                        "w.bin"]
    assert (tmp_path / "out" / "split.onnx.data").stat().st_size >= 4 * 32 * 32
    assert {"I_rot90", "m.onnx"} <= {path.name for path in (tmp_path / "many").iterdir()}
    for saved in ("out/all.onnx", "out/split.onnx", "out/named.onnx", "many/m.onnx"):
        outcome = run("run", saved, "--onnxrt", "--load-outputs", "o.json", "--atol", "0", "--rtol", "0")
        assert outcome.code == 0, (saved, outcome)


def test_save_input_blob(run, polygraphy, model, tmp_path):
    words = ["run", model, "--onnxrt", "--iterations", "2", "--seed", "5", "--save-input-blob"]
    assert run(*words, "mine").code == polygraphy(*words, "theirs").code == 0
    for index in range(2):
        mine, theirs = (np.fromfile(tmp_path / who / f"{index:010d}" / "x.bin", np.float32) for who in ("mine", "theirs"))
        assert mine.size == 256 * 256 and (mine == theirs).all()
    assert run(*words).code == 0 and (tmp_path / "0000000001" / "x.bin").stat().st_size == 4 * 256 * 256


POSTPROCESS = """
def postprocess_outputs(result):
    for name in result:
        result[name] = result[name].round(1)
    return result

def renamed(result):
    return {"only": result["matmul_out_3"][0, 0, :2]}

def nothing(result):
    pass

def bad(result):
    raise KeyError("no such output")
"""


def test_postprocess_script(run, model, tmp_path):
    (tmp_path / "p.py").write_text(POSTPROCESS)
    assert run("run", model, "--onnxrt", "--save-outputs", "o.json").code == 0
    # Rounded to 0.1, other inputs differ by multiples of it.
    outcome = run("run", model, "--onnxrt", "--load-outputs", "o.json", "--postprocess-func-script", "p.py", "--postprocess",
                  "top-1", "--atol", "0", "--rtol", "0")
    assert outcome.code == 0 and "'--postprocess/--postprocess-func' will be ignored" in outcome.out, outcome
    outcome = run("run", model, "--onnxrt", "--onnxrt", "--postprocess-func-script", "p.py:renamed")
    assert outcome.code == 0 and "'only' (dtype=float32, shape=(2, 256))" in outcome.out, outcome
    outcome = run("run", model, "--onnxrt", "--onnxrt", "--postprocess-func-script", "p.py:nothing")
    assert outcome.code == 1 and "expected an IterationResult or a dict" in outcome.text, outcome
    outcome = run("run", model, "--onnxrt", "--onnxrt", "--postprocess-func-script", "p.py:bad")
    assert outcome.code == 1 and "no such output" in outcome.text and "p.py" in outcome.text, outcome


def test_all_tensor_types(run, model, tmp_path):
    outcome = run("run", model, "--trt", "--fp16", "--all-tensor-dtypes", "float16", "--save-outputs", "o.json")
    assert outcome.code == 0, outcome
    assert "matmul_out_3 [dtype=float16" in outcome.out and "x [dtype=float16" in outcome.out, outcome
    # Types that are given by name win; integers stay what they are.
    outcome = run("run", model, "--trt", "--fp16", "--all-tensor-dtypes", "float16", "--tensor-dtypes", "x:float32")
    assert "matmul_out_3 [dtype=float16" in outcome.out and "x [dtype=float32" in outcome.out, outcome
    graph = helper.make_graph([helper.make_node("Gather", ["w", "i"], ["y"], name="g")], "g",
                              [helper.make_tensor_value_info("i", TensorProto.INT64, [2])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
                              [numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "g.onnx")
    outcome = run("run", "g.onnx", "--trt", "--all-tensor-dtypes", "float16")
    assert outcome.code == 0 and "i [dtype=int64" in outcome.out and "y [dtype=float16" in outcome.out, outcome


def test_tolerances_are_printed_as_they_were_given(run, model):
    runners = ["run", model, "--onnxrt", "--onnxrt"]
    outcome = run(*runners, "--atol", "1", "--rtol", "0.50", "matmul_out_3:2")
    assert "Difference is within tolerance (rel=2, abs=1)" in outcome.out, outcome
    outcome = run(*runners, "--atol", "1.0", "--rtol", "5e-1")
    assert "Difference is within tolerance (rel=0.5, abs=1.0)" in outcome.out, outcome
    assert "Difference is within tolerance (rel=1e-05, abs=1e-05)" in run(*runners).out


def test_a_postprocessing_that_nobody_can_read_is_refused_before_anything_runs(run, model):
    outcome = run("run", model, "--onnxrt", "--onnxrt", "--postprocess", "top-x")
    assert outcome.code == 1 and "--postprocess: expected top-K" in outcome.err, outcome
    assert "Inference" not in outcome.out


def test_no_data_is_said(run, model, tmp_path):
    (tmp_path / "none.json").write_text("[]")
    for words in (["--iterations", "0"], ["--load-inputs", "none.json"]):
        outcome = run("run", model, "--onnxrt", "--trt", *words)
        assert outcome.code == 0 and outcome.out.count("[W] Data loader did not yield any input data.") == 1, outcome
    assert "did not yield" not in run("run", model, "--onnxrt").out


@pytest.mark.parametrize("words, says", [
    (["--onnx-outputs-by-type", "Conv"], "the model has no node of type 'Conv'; it has Add, MatMul, Sub"),
    (["--trt", "--trt-outputs-by-type", "Conv"], "the network has no layer of type 'Conv'"),
    (["--trt", "--all-tensor-dtypes", "float99"], "--all-tensor-dtypes"),
    (["--save-onnx", "/proc/no/such.onnx"], "/proc/no/such.onnx"),
    (["--save-onnx", "s.onnx", "--save-external-data", "sub/w.bin"], "expected a file name"),
    (["--save-onnx", "s.onnx", "--onnx-outputs", "nobody"], "nobody"),
    (["--postprocess-func-script", "nothing.py"], "nothing.py"),
    (["--save-input-blob", "file/below"], "file"),
])
def test_bad_input(words, says, run, model, tmp_path):
    (tmp_path / "file").write_text("")
    outcome = run("run", model, "--onnxrt", *words)
    assert outcome.code == 1 and says in outcome.text, outcome


def test_models_that_are_none(run, model, tmp_path):
    assert run("run", model, "--trt", "--save-engine", "a.plan").code == 0
    outcome = run("run", "a.plan", "--trt", "--save-onnx", "b.onnx")
    assert outcome.code == 1 and "expected an ONNX model" in outcome.text, outcome
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x07 nothing")
    outcome = run("run", "bad.onnx", "--onnxrt", "--fp-to-fp16")
    assert outcome.code == 1 and "bad.onnx" in outcome.text, outcome
