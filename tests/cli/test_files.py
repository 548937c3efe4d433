"""Files go both ways between ulpscope and pip's Polygraphy, and both print the same about the same data."""
import json
import re

import numpy as np
import pytest

from cli_support import without_dates

pytest.importorskip("polygraphy")


def comparison_lines(text):
    """What both say about a comparison, as sorted normalized lines: 0.53 marks comparison lines with `simple | `,
    shows the iteration of a single one, one level less, and the outputs' statistics at the end."""
    text = without_dates(text)
    text = text[text.index("Accuracy Comparison"):].replace("simple | ", "")
    lines = [re.sub(r"^\[\w\]\s*", "", line).strip() for line in text.splitlines()]
    skip = ("Iteration: ", "Accuracy Comparison", "PASSED | Runtime", "FAILED | Runtime", "Loading", "Saving")
    return sorted(line for line in lines if line and not line.startswith(skip))


@pytest.fixture
def golden(run, model):
    outcome = run("run", model, "--onnxrt", "--val-range", "x:[1,2]", "--save-inputs", "in.json", "--save-outputs",
                  "out.json")
    assert outcome.code == 0, outcome


@pytest.mark.parametrize("words", [
    [],
    ["--check-error-stat", "max", "--atol", "0.5"],
    ["--check-error-stat", "mean", "--rtol", "matmul_out_3:10.0"],
    ["--check-error-stat", "quantile", "--error-quantile", "0.9"],
    ["--check-error-stat", "median", "--atol", "1.5", "-v"],
    ["--atol", "3.0", "-v"],
])
@pytest.mark.parametrize("data", [["--load-inputs", "in.json"], ["--val-range", "x:[1,3]"], ["--seed", "7"]])
def test_same_lines(words, data, run, polygraphy, model, golden):
    """The same model against the same saved results, with the same and with other inputs."""
    arguments = ["run", model, "--onnxrt", "--load-outputs", "out.json", *data, *words]
    mine, theirs = run(*arguments), polygraphy(*arguments)
    assert mine.code == theirs.code, (mine, theirs)
    keep = lambda text: [line for line in comparison_lines(text) if not line.startswith(("Loaded", "Successfully"))]
    assert keep(mine.out) == keep(theirs.out)


def test_polygraphy_reads_ours(run, polygraphy, model, golden):
    outcome = polygraphy("run", model, "--onnxrt", "--load-inputs", "in.json", "--load-outputs", "out.json",
                         "--atol", "0",
                         "--rtol", "0")
    assert outcome.code == 0, outcome


def test_we_read_polygraphys(run, polygraphy, model):
    outcome = polygraphy("run", model, "--onnxrt", "--iterations", "2", "--val-range", "x:[1,2]", "--save-inputs",
                         "in.json",
                         "--save-outputs", "out.json")
    assert outcome.code == 0, outcome
    outcome = run("run", model, "--onnxrt", "--load-inputs", "in.json", "--load-outputs", "out.json", "--atol", "0",
                  "--rtol", "0")
    assert outcome.code == 0 and "Passed: 2/2 iterations" in outcome.out, outcome
    # The numbers that we draw are NumPy's.
    outcome = run("run", model, "--onnxrt", "--iterations", "2", "--val-range", "x:[1,2]", "--load-outputs", "out.json",
                  "--atol", "0", "--rtol", "0")
    assert outcome.code == 0, outcome


def test_any_name_holds_json(run, model, tmp_path):
    assert run("run", model, "--trt", "--save-results", "golden.pkl", "--save-input-data", "inputs").code == 0
    results = json.loads((tmp_path / "golden.pkl").read_text())
    assert results["polygraphy_class"] == "RunResults" and len(json.loads((tmp_path / "inputs").read_text())) == 1
    assert run("run", model, "--trt", "--load-input-data", "inputs", "--load-results", "golden.pkl").code == 0


NUMBERED = [f"{i:010}.json" for i in range(3)]


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("words", [[], ["--sequential-runners"]])
def test_iterations_make_a_folder(words, prepared, run, polygraphy, model, tmp_path):
    """The same files as Polygraphy's, which each reads from the other."""
    for who, name in ((run, "mine"), (polygraphy, "theirs")):
        if prepared:
            (tmp_path / name / "out").mkdir(parents=True)
        outcome = who("run", model, "--onnxrt", "--onnxrt", "--iterations", "3", "--val-range", "x:[1,2]", *words,
                      "--save-inputs", f"{name}/in", "--save-outputs", f"{name}/out")
        assert outcome.code == 0, outcome
        assert sorted(path.name for path in (tmp_path / name / "in").iterdir()) == NUMBERED
        assert sorted(path.name for path in (tmp_path / name / "out").iterdir()) == NUMBERED
    for file in NUMBERED:
        read = lambda path: json.loads((tmp_path / path).read_text())
        assert read(f"mine/in/{file}") == read(f"theirs/in/{file}")
        mine, theirs = read(f"mine/out/{file}")["lst"], read(f"theirs/out/{file}")["lst"]
        assert [len(iterations) for _, iterations in mine] == [len(iterations) for _, iterations in theirs] == [1, 1]
    for who, name in ((run, "theirs"), (polygraphy, "mine")):
        outcome = who("run", model, "--onnxrt", "--load-inputs", f"{name}/in", "--load-outputs", f"{name}/out", "--atol",
                      "0", "--rtol", "0")
        assert outcome.code == 0 and "Passed: 3/3 iterations | Pass Rate: 100.00%" in outcome.out, outcome


def test_folders_are_not_written_into_twice(run, polygraphy, model, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.json").write_text("{}")
    for who in (run, polygraphy):
        outcome = who("run", model, "--onnxrt", "--iterations", "2", "--save-outputs", "out")
        assert outcome.code == 1 and "not empty" in outcome.err, outcome
    # One iteration goes into a folder that is there, and into a file where nothing is.
    (tmp_path / "out" / "old.json").unlink()
    assert run("run", model, "--onnxrt", "--save-outputs", "out").code == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == NUMBERED[:1]
    # A file stays a file.
    (tmp_path / "file").touch()
    assert run("run", model, "--onnxrt", "--iterations", "3", "--save-inputs", "file").code == 0
    assert len(json.loads((tmp_path / "file").read_text())) == 3


def test_sequential_runners_read_files(run, polygraphy, model, tmp_path):
    assert run("run", model, "--onnxrt", "--iterations", "2", "--save-outputs", "out").code == 0
    for who in (run, polygraphy):
        words = ["run", model, "--onnxrt", "--iterations", "2", "--load-outputs", "out"]
        assert who(*words).code == 0
        outcome = who(*words, "--sequential-runners")
        assert outcome.code == 1 and "directory" in outcome.text, outcome
        assert who(*words, "--sequential-runners", "--gen-script", "script.py").code == 0


def test_runner_names(run, model, tmp_path):
    assert run("run", model, "--onnxrt", "--trt", "--onnxrt", "--save-outputs", "o.json").code == 0
    names = [name for name, _ in json.loads((tmp_path / "o.json").read_text())["lst"]]
    date = r"-\d\d/\d\d/\d\d-\d\d:\d\d:\d\d"
    for name, pattern in zip(names, ["onnxrt-runner-N0", "trt-runner-N0", "onnxrt-runner-N1"]):
        assert re.fullmatch(pattern + date, name)


def test_iterations_and_warm_up(run, model):
    outcome = run("run", model, "--onnxrt", "--trt", "--iterations", "3", "--warm-up", "2")
    assert outcome.code == 0, outcome
    assert outcome.out.count("Running 2 warm-up run(s)") == 2
    assert outcome.out.count("Completed 3 iteration(s) in ") == 2
    assert "Passed: 3/3 iterations | Pass Rate: 100.00%" in outcome.out


def test_dynamic_shapes(run, dynamic_model):
    shapes = lambda outcome: re.findall(r"x \[dtype=float32, shape=(\(.*?\))\]", outcome.out)
    assert shapes(run("run", dynamic_model, "--trt", "--input-shapes", "x:[5,3]")) == ["(5, 3)"]
    outcome = run("run", dynamic_model, "--trt")
    assert shapes(outcome) == ["(1, 3)"] and "[W]" in outcome.out
    outcome = run("run", dynamic_model, "--trt", "--onnxrt", "--trt-min-shapes", "x:[2,3]", "--trt-opt-shapes",
                  "x:[4,3]",
                  "--trt-max-shapes", "x:[8,3]")
    assert outcome.code == 0 and shapes(outcome) == ["(2, 3)"] * 2, outcome
    outcome = run("run", dynamic_model, "--trt", "--trt-min-shapes", "x:[9,3]", "--trt-max-shapes", "x:[8,3]")
    assert outcome.code == 1 and "min <= opt <= max" in outcome.err, outcome


def test_configs_of_scripts_have_a_profile(run, dynamic_model, tmp_path):
    """As those of Polygraphy: dynamic dimensions are 1 unless a profile says otherwise."""
    (tmp_path / "one.py").write_text("from polygraphy.backend.trt import create_config\n\ndef load_config(builder, network):\n"
                                     "    return create_config(builder, network)\n")
    (tmp_path / "none.py").write_text("def load_config(builder, network):\n    return builder.create_builder_config()\n")
    words = ["run", dynamic_model, "--trt", "--trt-config-script"]
    outcome = run(*words, "one.py")
    assert outcome.code == 0 and "Will use shape: [1, 3] for min/opt/max" in outcome.text, outcome
    outcome = run(*words, "one.py", "--input-shapes", "x:[5,3]")
    assert outcome.code == 1 and "between the minimum and maximum of a profile" in outcome.err, outcome
    assert run(*words, "none.py", "--input-shapes", "x:[5,3]").code == 0


def test_data_loader_script(run, dynamic_model, tmp_path):
    (tmp_path / "data.py").write_text("import numpy as np\n\ndef load_data():\n    for i in range(3):\n"
                                      "        yield {'x': np.full((i + 1, 3), i, np.float32)}\n")
    outcome = run("run", dynamic_model, "--trt", "--onnxrt", "--data-loader-script", "data.py", "--save-outputs",
                  "o.json",
                  "--seed", "3")
    assert outcome.code == 0 and "Passed: 3/3" in outcome.out, outcome
    assert "[W] [options] --seed has no effect" in outcome.out
    outcome = run("run", dynamic_model, "--trt", "--data-loader-script", "data.py:load_data", "--load-outputs",
                  "o.json")
    assert outcome.code == 0, outcome


@pytest.mark.parametrize("verdict, code", [("True", 0), ("False", 1)])
def test_compare_func_script(verdict, code, run, dynamic_model, tmp_path):
    (tmp_path / "cmp.py").write_text("def compare_outputs(a, b):\n    assert list(a) == ['sum'] and a.runner_name\n"
                                     f"    return {{'sum': {verdict}}}\n")
    outcome = run("run", dynamic_model, "--trt", "--onnxrt", "--compare-func-script", "cmp.py")
    assert outcome.code == code, outcome


def test_postprocess_and_indices(run, dynamic_model):
    outcome = run("run", dynamic_model, "--trt", "--onnxrt", "--postprocess", "top-2", "--compare", "indices",
                  "--index-tolerance", "1")
    assert outcome.code == 0, outcome
    assert "PASSED | Difference is within index tolerance (1)" in outcome.out


def test_validate(run, model, tmp_path):
    outcome = run("run", model, "--trt", "--validate")
    assert outcome.code == 0 and "PASSED | Output Validation" in outcome.out, outcome
    outcome = run("run", model, "--trt", "--validate", "--val-range", "[1e39,1e39]")
    assert outcome.code == 1 and "Inf Detected" in outcome.out and "FAILED | Output Validation" in outcome.out, outcome


def test_outputs_by_name(run, model):
    outcome = run("run", model, "--trt", "--onnxrt", "--trt-outputs", "add_out_1", "sub_out_2", "--onnx-outputs", "*",
                  "--onnx-exclude-outputs", "matmul_out_0", "--val-range", "[1,2]")
    assert outcome.code == 0 and "All outputs matched | Outputs: ['add_out_1', 'sub_out_2']" in outcome.out, outcome
    outcome = run("run", model, "--trt", "--trt-outputs", "mark", "all", "--trt-exclude-outputs", "matmul_out_3", "-q",
                  "--save-outputs", "o.json")
    assert outcome.code == 0, outcome
    outcome = run("run", model, "--trt", "--trt-outputs", "nothing")
    assert outcome.code == 1 and "nothing" in outcome.err, outcome


def test_two_result_files_without_a_runner(run, model):
    assert run("run", model, "--trt", "--save-outputs", "a.json").code == 0
    assert run("run", model, "--trt", "--save-outputs", "b.json", "--seed", "2").code == 0
    assert run("run", "--load-outputs", "a.json", "a.json").code == 0
    assert run("run", "--load-outputs", "a.json", "b.json").code == 1


def test_saved_values_are_those_that_numpy_draws(run, dynamic_model, tmp_path):
    import base64
    import io

    assert run("run", dynamic_model, "--trt", "--input-shapes", "x:[4,3]", "--seed", "5", "--iterations", "2",
               "--save-inputs", "i.json").code == 0
    for i, feed in enumerate(json.loads((tmp_path / "i.json").read_text())):
        array = np.load(io.BytesIO(base64.b64decode(feed["x"]["array"])))
        assert np.array_equal(array, np.random.RandomState(5 + i).random_sample((4, 3)).astype(np.float32))


@pytest.mark.parametrize("judge,code", [
    ("CompareFunc.simple(atol=1e-2)", 0), ("CompareFunc.simple(atol={'': 1e-9}, rtol=1e-9)", 1), ("CompareFunc.indices()", 1),
    ("SimpleCompareFunc(check_error_stat='mean', atol=1e-2, rtol=0)", 0), ("PsnrCompareFunc(20)", 0), ("L2CompareFunc(1e-9)", 1),
])
def test_scripts_compare_with_the_functions_of_the_module(run, polygraphy, tmp_path, model, judge, code):
    """Outputs that are off by 1e-3."""
    (tmp_path / "cmp.py").write_text("from polygraphy.comparator import *\n\ndef compare_outputs(first, second):\n"
                                     "    for name in list(second.keys()):\n        second[name] = second[name] + second[name].dtype.type(1e-3)\n"
                                     f"    return {judge}(first, second)\n")
    for who in (run, polygraphy):
        outcome = who("run", model, "--onnxrt", "--onnxrt", "--compare-func-script", "cmp.py")
        assert outcome.code == code and (code == 0 or "FAILED | " in outcome.text), outcome
