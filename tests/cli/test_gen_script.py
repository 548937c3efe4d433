"""`run --gen-script`: what pip's Polygraphy generates, and scripts that run."""
import ast
import subprocess
import sys

import pytest

from limits import HANGS

pytest.importorskip("polygraphy")


def statements(text):
    """The program without comments, order of imports and what is imported twice."""
    lines = [ast.unparse(node) for node in ast.parse(text).body]
    imports = sorted({line for line in lines if line.startswith(("from ", "import ", "trt = ", "onnxrt = "))})

    def in_order(line):
        if not line.startswith("from ") or " import " not in line:
            return line
        head, names = line.split(" import ")
        return head + " import " + ", ".join(sorted(names.split(", ")))

    return sorted(map(in_order, imports)), [line for line in lines if line not in imports]


def python_part(text):
    return text[text.index("#!/usr/bin/env python3"):]


SAME = [
    ["--onnxrt"],
    ["--onnxrt", "--onnxrt", "--val-range", "x:[1,2]", "--iterations", "3", "--seed", "7", "--atol", "1e-3", "y:0.5",
     "--check-error-stat", "mean", "--rtol", "inf"],
    ["--onnxrt", "--onnx-outputs", "add_out_1", "sub_out_2", "--onnx-exclude-outputs", "sub_out_2", "--providers", "cpu"],
    ["--onnxrt", "--external-data-dir", ".", "--graph-optimization-level", "ORT_DISABLE_ALL"],
    ["--onnxrt", "--load-inputs", "in.json", "--load-outputs", "a.json", "b.json", "--validate", "--fail-fast"],
    ["--onnxrt", "--sequential-runners", "--warm-up", "2", "--use-subprocess", "--validate", "--save-outputs", "o.json"],
    ["--onnxrt", "--compare", "indices", "l2", "quality_metrics", "--index-tolerance", "2", "--postprocess", "top-5",
     "y:top-3,axis=1"],
    ["--onnxrt", "--data-loader-script", "s.py:load", "--compare-func-script", "s.py", "-v"],
    ["--onnxrt", "--save-heatmaps", "h", "--save-error-metrics-plot", "p", "--show-heatmaps", "--infinities-compare-equal",
     "--no-shape-check", "--error-quantile", "0.9", "-qqq"],
    ["--input-shapes", "x:[1,3]", "--trt", "--onnxrt", "--fp16", "--tf32", "--int8", "--calibration-cache", "c.cache"],
    ["--trt", "--trt-min-shapes", "x:[1,3]", "--trt-opt-shapes", "x:[2,3]", "--trt-max-shapes", "x:[4,3]", "--trt-outputs",
     "*", "--trt-exclude-outputs", "a", "--save-engine", "e.plan", "--save-tactics", "t.json"],
    ["--trt", "--trt-npps", "s.py:first", "s.py", "--layer-precisions", "Add:float32", "Sub:float16", "--tensor-dtypes",
     "x:float16", "--precision-constraints", "obey", "--trt-cpps", "s.py:edit", "--strongly-typed"],
    ["--onnxrt", "--fp-to-fp16", "--save-onnx", "a.onnx", "--save-external-data", "--external-data-size-threshold", "10",
     "--no-save-all-tensors-to-one-file", "--onnx-outputs-by-type", "MatMul", "--postprocess-func-script", "s.py",
     "--save-input-blob"],
    ["--trt", "--trt-outputs-by-type", "Conv", "--all-tensor-dtypes", "float16"],
    ["--trt", "--trt-config-script", "s.py", "--bf16"],
    ["--onnxrt", "--shape-inference", "--external-data-dir", "."],
    ["--onnxrt", "--shape-inference", "--no-onnxruntime-shape-inference", "--onnx-outputs", "*", "--save-onnx",
     "a.onnx"],
    ["--trt", "--shape-inference"],
    ["--trt", "--onnxrt", "--save-onnx", "a.onnx"],
    ["--onnxrt", "--trt", "--onnx-outputs", "add_out_1", "--save-onnx", "a.onnx"],
    ["--pluginref"],
    ["--trt", "--fp8", "--bf16", "--tf32"],
    ["--onnxrt", "--pluginref", "--onnx-outputs", "add_out_1", "--fp-to-fp16", "--save-onnx", "a.onnx"],
    ["--trt", "--int8", "--calib-base-cls", "IInt8LegacyCalibrator", "--quantile", "0.5"],
    ["--onnxrt", "--compare", "l2", "psnr", "--l2-threshold", "0.5", "y:1e-3", "--psnr-threshold", "20"],
]  # fmt: skip


@pytest.mark.parametrize("words", SAME, ids=lambda words: words[-1])
def test_as_polygraphy(words, run, polygraphy, model, tmp_path):
    (tmp_path / "s.py").write_text("")
    mine = run("run", model, *words, "--gen-script", "-")
    theirs = polygraphy("run", model, *words, "--gen-script", "-")
    assert mine.code == theirs.code == 0, (mine, theirs)
    assert statements(python_part(mine.out)) == statements(python_part(theirs.out))


def test_script_as_model(run, polygraphy, tmp_path):
    (tmp_path / "net.py").write_text("")
    mine = run("run", "net.py:made", "--trt", "--gen", "-")
    theirs = polygraphy("run", "net.py:made", "--trt", "--gen", "-")
    assert mine.code == theirs.code == 0, (mine, theirs)
    assert statements(mine.out) == statements(python_part(theirs.out))


def execute(path, cwd):
    return subprocess.run([sys.executable, str(path)], cwd=cwd, text=True, capture_output=True, timeout=HANGS)


def test_scripts_run(run, model, tmp_path):
    """The script does what the command does: the same inputs, the same verdict."""
    words = ["--onnxrt", "--onnx-outputs", "*", "--val-range", "x:[1,2]", "--iterations", "2", "--save-inputs", "in.json",
             "--save-outputs", "out.json", "--validate"]
    assert run("run", model, *words, "--gen-script", "deep/first.py").code == 0
    assert not (tmp_path / "out.json").exists()
    outcome = execute(tmp_path / "deep" / "first.py", tmp_path)
    assert outcome.returncode == 0, outcome
    assert run("run", model, *words[:-5], "--load-outputs", "out.json", "--atol", "0", "--rtol", "0").code == 0
    again = ["--onnxrt", "--onnx-outputs", "*", "--load-inputs", "in.json", "--load-outputs", "out.json"]
    assert run("run", model, *again, "--gen-script", "again.py").code == 0
    assert execute(tmp_path / "again.py", tmp_path).returncode == 0
    # Other inputs: other outputs.
    assert run("run", model, *again[:3], "--load-outputs", "out.json", "--gen-script", "other.py").code == 0
    outcome = execute(tmp_path / "other.py", tmp_path)
    assert outcome.returncode != 0 and "FAILED" in outcome.stdout + outcome.stderr, outcome


def test_names_that_need_quoting(run, tmp_path, model):
    name = "it's \"a\" model\\.onnx"
    (tmp_path / name).write_bytes(model.read_bytes())
    assert run("run", name, "--onnxrt", "--gen-script", "g.py").code == 0
    assert execute(tmp_path / "g.py", tmp_path).returncode == 0


def test_the_script_is_all_on_stdout(run, model):
    """Also where the first thing to say is about an option that is accepted alone."""
    outcome = run("run", model, "--trt", "--sparse-weights", "--fusion", "none", "--gen-script", "-")
    assert outcome.code == 0 and outcome.out.startswith("#!/usr/bin/env python3\n"), outcome
    ast.parse(outcome.out)
    assert "--sparse-weights has no effect" in outcome.err and "--fusion is left out" in outcome.err, outcome


def test_own_options_are_left_out(run, model, tmp_path):
    outcome = run("run", model, "--trt", "--fp16", "--assume-lowest", "--fusion", "none", "--gen-script", "g.py")
    assert outcome.code == 0 and "--assume-lowest is left out" in outcome.out and "--fusion is left out" in outcome.out
    text = (tmp_path / "g.py").read_text()
    assert "fp16=True" in text and "lowest" not in text.split("\n", 3)[3]
    outcome = run("run", model, "--trt", "--clamp-constants", "x", "--gen-script", "g.py")
    assert "--clamp-constants is left out" in outcome.out and "`convert --repair-only`" in outcome.out, outcome
    formats = ["--int4", "--nvfp4", "--mxfp8", "--formats", "fp8-weights"]
    outcome = run("run", model, "--trt", "--fp16", *formats, "--gen-script", "g.py")
    assert outcome.code == 0
    for option in ("--int4", "--nvfp4", "--mxfp8", "--formats"):
        assert f"{option} is left out" in outcome.out
    assert "CreateTrtConfig(fp16=True)" in (tmp_path / "g.py").read_text()
    outcome = run("run", model, "--trt", "--fp16", "--fp8", "--weights-only", "--gen-script", "g.py")
    assert outcome.code == 0 and "--weights-only is left out" in outcome.out, outcome
    assert "CreateTrtConfig(fp16=True)" in (tmp_path / "g.py").read_text()


@pytest.mark.parametrize("older, newer", [
    (["--trt", "--strict-types", "--timing-cache", "t", "--layer-precisions", "Add:fp16"],
     ["--trt", "--precision-constraints", "obey", "--save-timing-cache", "t", "--layer-precisions", "Add:float16"]),
    (["--onnxrt", "--float-min", "-1", "--float-max", "2.5"], ["--onnxrt", "--val-range", "[-1,2.5]"]),
    (["--onnxrt", "--data-loader-script", "s.py", "--data-loader-func-name", "feed", "--seed=-1"],
     ["--onnxrt", "--data-loader-script", "s.py:feed", "--seed=-1"]),
    (["--trt", "--sparse-weights"], ["--trt"]),
])  # fmt: skip
def test_our_words_and_those_of_older_releases(older, newer, run, polygraphy, model, tmp_path):
    (tmp_path / "s.py").write_text("")
    mine = run("run", model, *older, "--gen-script", "-")
    theirs = polygraphy("run", model, *newer, "--gen-script", "-")
    assert mine.code == theirs.code == 0, (mine, theirs)
    assert statements(python_part(mine.out)) == statements(python_part(theirs.out))
    assert "is left out" not in mine.text


def test_an_answer_becomes_layer_precisions(run, model, answer, tmp_path):
    kept = {layer["name"] for layer in answer["layers"]}
    assert kept
    outcome = run("run", model, "--trt", "--answer", "a.json", "--gen-script", "g.py")
    assert outcome.code == 0 and "--answer is left out" not in outcome.out, outcome
    text = (tmp_path / "g.py").read_text()
    assert "fp16=True" in text and "precision_constraints='obey'" in text
    assert all(f"'{name}': trt.float32" in text for name in kept)


def test_says_what_to_install(run, model, tmp_path):
    package = tmp_path / "without" / "polygraphy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ModuleNotFoundError('No module', name='polygraphy')")
    outcome = run("run", model, "--trt", "--gen-script", "-", env={"PYTHONPATH": str(package.parent)})
    assert outcome.code == 1 and "ulpscope[scripts]" in outcome.err and "pip install polygraphy" in outcome.err, outcome
    assert outcome.out == ""


@pytest.mark.parametrize("words, code, says", [
    (["nothing.onnx", "--onnxrt", "--gen-script", "-"], 1, "no such file"),
    (["--onnxrt", "--gen-script", "-"], 1, "no model file was provided"),
    (["MODEL", "--onnxrt", "--gen-script"], 2, "expected one argument"),
    (["MODEL", "--onnxrt", "--atol", "much", "--gen-script", "-"], 1, "--atol"),
    (["MODEL", "--trt", "--layer-precisions", "Add:float33", "--gen-script", "-"], 1, "--layer-precisions"),
    (["MODEL", "--onnxrt", "--gen-script", "/proc/no/g.py"], 1, "/proc/no"),
])
def test_bad_input(words, code, says, run, model):
    outcome = run("run", *[model if word == "MODEL" else word for word in words])
    assert outcome.code == code and says in outcome.text, outcome
    assert "PolygraphyException" not in outcome.out


def test_short_names_of_calibrators(run, model):
    outcome = run("run", model, "--trt", "--int8", "--calib-base-cls", "max", "--gen-script", "-")
    assert outcome.code == 0 and "BaseClass=trt.IInt8MinMaxCalibrator" in outcome.out, outcome
    outcome = run("run", model, "--trt", "--int8", "--calib-base-cls", "maximal", "--gen-script", "-")
    assert outcome.code == 1 and "did you mean" in outcome.text, outcome
