"""What the program says about itself, exit statuses of command lines, and where log lines go."""
import os
import pathlib
import re
import subprocess

import pytest

from limits import HANGS

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ["run", "template trt-network", "template trt-config", "template onnx-gs"]


def test_version(run):
    outcome = run("--version")
    version = re.search(r"^project\(ulpscope VERSION (\S+) ", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
    assert outcome.code == 0 and re.fullmatch(rf"ulpscope {re.escape(version)}( \(commit [0-9a-f]+(-dirty)?\))?\n", outcome.out)


def test_help_lists_all_tools(run):
    for flag in ("-h", "--help"):
        outcome = run(flag)
        assert outcome.code == 0 and outcome.err == ""
        for tool in TOOLS:
            assert f"  {tool} " in outcome.out


@pytest.mark.parametrize("tool", TOOLS)
def test_help_of_tools(tool, run):
    outcome = run(*tool.split(), "--help")
    assert outcome.code == 0 and outcome.out.startswith(f"usage: ulpscope {tool} ")
    assert "Logging:\n  Options related to logging and debug output\n" in outcome.out


def test_help_is_grouped_as_in_polygraphy(run, polygraphy):
    def groups(text):
        return [line[:-1] for line in text.splitlines() if re.fullmatch(r"[A-Z][^ ].*:", line)]

    mine = groups(run("run", "--help-all").out)
    theirs = [g for g in groups(polygraphy("run", "--help").out) if "TensorFlow" not in g and "`" not in g]
    missing = [group for group in theirs if group not in mine]
    # These are one group here: writing, loading and running engines.
    assert set(missing) <= {"TensorRT Engine Saving", "TensorRT Inference"}


@pytest.mark.parametrize("words, message", [
    ([], "expected a tool"),
    (["walk"], "invalid choice: 'walk'"),
    (["template"], "invalid choice: 'template'"),
    (["run", "m.onnx", "--atol"], "argument --atol/--abs-tol: expected at least one argument"),
    (["run", "m.onnx", "--rtol", "--trt"], "argument --rtol/--rel-tol: expected at least one argument"),
    (["run", "m.onnx", "--save-inputs"], "argument --save-inputs/--save-input-data: expected one argument"),
    (["run", "m.onnx", "--precision-constraints", "maybe"],
     "invalid choice: 'maybe' (choose from 'prefer', 'obey', 'none')"),
    (["run", "m.onnx", "--fusion", "some"], "invalid choice: 'some'"),
    (["run", "m.onnx", "--seed", "x"], "argument --seed: invalid int value: 'x'"),
    (["run", "m.onnx", "--save-tactics", "a", "--load-tactics", "b"],
     "argument --load-tactics/--load-tactic-replay: not allowed with argument --save-tactics/--save-tactic-replay"),
    (["run", "m.onnx", "--load-inputs", "a", "--data-loader-script", "b"], "not allowed with argument"),
    (["run", "m.onnx", "--strict-types", "--precision-constraints", "prefer"], "not allowed with argument"),
    (["run", "m.onnx", "--fp16=1"], "argument --fp16: ignored explicit argument '1'"),
    (["run", "m.onnx", "--fp"], "ambiguous option: --fp could match"),
    (["template", "onnx-gs", "-o", "x.py"], "the following arguments are required: MODEL"),
])
def test_malformed_command_lines(words, message, run):
    outcome = run(*words)
    assert outcome.code == 2, outcome
    assert outcome.err.startswith("usage: ulpscope") and message in outcome.err, outcome
    assert outcome.out == ""


@pytest.mark.parametrize("words, meant", [
    (["search", "m.onnx", "--fp16"], "'ulpscope precision search'"),
    (["bisect", "m.onnx"], "'ulpscope precision bisect'"),
    (["debug", "search"], "'ulpscope precision search'"),
    (["data", "x.json"], "'ulpscope inspect data'"),
    (["template"], "'ulpscope template trt-network' or 'ulpscope template trt-config' or 'ulpscope template onnx-gs'"),
    (["precision", "serach"], "'ulpscope precision search'?"),
    (["precison", "search"], "'ulpscope precision search'"),
    (["rn"], "'ulpscope run'"), (["conver", "m.onnx"], "'ulpscope convert'"),
])
def test_a_tool_is_suggested(words, meant, run):
    outcome = run(*words)
    assert outcome.code == 2 and f"; did you mean {meant}" in outcome.err, outcome


def test_options_that_contradict_each_other_are_found_before_the_model_is_read(run):
    outcome = run("precision", "search", "missing.onnx", "--fp16", "--metric", "rel-l2")
    assert outcome.code == 2 and "argument --metric: needs --threshold X" in outcome.err and outcome.out == "", outcome


def test_unknown_options(run):
    outcome = run("run", "m.onnx", "--nothing", "of", "this", "--trt")
    assert outcome.code == 1
    assert outcome.out == "[E] Unrecognized Options: ['--nothing', 'of', 'this']\n"


def test_an_option_is_suggested(run):
    assert "['--ansver']; did you mean '--answer'?" in run("convert", "m.onnx", "--ansver", "a.json").out


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["precision", "search", "m.onnx", "--half"], "--fp16"),
        (["precision", "search", "m.onnx", "--fp16", "-o", "a.json"], "--save-answer"),
        (["precision", "search", "m.onnx", "--fp16", "--answer=a.json"], "--save-answer"),
        (["precision", "search", "m.onnx", "--fp16", "--tolerance", "0.1"], "--threshold"),
        (["run", "m.onnx", "--trt", "--samples", "x.npz"], "--load-inputs"),
        (["verify", "m.onnx", "--answer", "a.json", "-o", "v.json"], "--save-json"),
    ],
)
def test_names_of_other_tools_are_known(run, words, meant):
    assert f"; did you mean '{meant}'?\n" in run(*words).out


@pytest.mark.parametrize("dashes", ["\u2013", "\u2014", "\u2212", "\u2013-", "-\u2013", "\u2015", "\u2012\u2012"])
@pytest.mark.parametrize("words", [["--onnxrt"], ["--onnx-outputs", "y", "--trt"], ["--fusion=none"]])
def test_dashes_of_a_text_are_hyphens(run, words, dashes):
    typed = [dashes + word[2:] if word == words[-1] else word for word in words]
    outcome = run("run", "m.onnx", *typed)
    said = f"'{typed[-1]}' begins with a dash of a text, not with two hyphens: did you mean '{words[-1]}'?"
    assert outcome.code == 1 and said in outcome.out, outcome


def test_what_begins_with_a_dash_of_a_text_may_be_a_name(run):
    outcome = run("run", "m.onnx", "--trt", "--onnx-outputs", "\u2212x")
    assert "Unrecognized" not in outcome.text and "m.onnx" in outcome.err, outcome


@pytest.mark.parametrize("group", ["inspect", "precision", "template"])
def test_help_of_a_group_lists_its_tools(run, group):
    for word in ("-h", "--help"):
        outcome = run(group, word)
        listed = [line for line in outcome.out.splitlines() if line.startswith(f"  {group} ")]
        assert outcome.code == 0 and outcome.out.startswith(f"usage: ulpscope {group}") and len(listed) >= 3, outcome


def test_nothing_to_do_is_no_failure(run):
    outcome = run("run")
    assert outcome.code == 0
    assert "[W] No runners have been selected. Inference will not be run! Try --trt" in outcome.out
    assert run("run", "--silent").code == 0


@pytest.mark.parametrize("runner", ["--trt", "--onnxrt"])
def test_runner_without_a_model(runner, run):
    outcome = run("run", runner)
    assert outcome.code == 1
    assert outcome.err.startswith("[!] One or more runners was specified, but no model file was provided.")


def test_command_is_framed(run, dynamic_model, binary):
    outcome = run("run", dynamic_model, "--trt", "--seed=3")
    assert outcome.code == 0, outcome
    command = f"{binary} run {dynamic_model} --trt --seed=3"
    lines = outcome.out.splitlines()
    assert lines[0] == f"[I] RUNNING | Command: {command}"
    assert re.fullmatch(r"\[I\] PASSED \| Runtime: \d+\.\d{3}s \| Command: " + re.escape(command), lines[-1])


def test_failures_are_framed_too(run):
    outcome = run("run", "nothing.onnx", "--trt")
    assert outcome.code == 1
    assert re.match(r"\[E\] FAILED \| Runtime: ", outcome.out.splitlines()[-1])


@pytest.mark.parametrize("flags, present, absent", [
    ([], ["[I] RUNNING", "Inference Input", "[I] PASSED |"], []),
    (["-q"], ["[I] RUNNING", "[I] PASSED |"], ["Inference Input"]),
    (["-qq"], ["[I] PASSED |"], ["[I] RUNNING"]),
    (["-qqq"], [], ["[I]"]),
    (["--verbosity", "warning"], [], ["[I]"]),
    (["-v", "--verbosity", "warning"], [], ["[I]", "[V]"]),
    (["-v"], ["[V] "], []),
    (["--silent"], [], ["["]),
    (["--log-format", "timestamp", "no-colors"], ["[I] ("], []),
    (["--log-format", "line-info"], ["[I] RUNNING"], []),
])
def test_levels_and_formats(flags, present, absent, run, dynamic_model):
    outcome = run("run", dynamic_model, "--trt", "--input-shapes", "x:[2,3]", *flags)
    assert outcome.code == 0 and outcome.err == "", outcome
    for text in present:
        assert text in outcome.out, outcome
    for text in absent:
        assert text not in outcome.out, outcome


def test_further_lines_of_a_message_are_aligned(run, dynamic_model):
    outcome = run("run", dynamic_model, "--trt", "--input-shapes", "x:[2,3]")
    assert "\n    ---- Inference Input(s) ----\n    {x [dtype=float32, shape=(2, 3)]}\n" in outcome.out


def test_unknown_level(run):
    outcome = run("run", "--verbosity", "loud")
    assert outcome.code == 1 and "--verbosity" in outcome.err and "LOUD" in outcome.err


def test_log_file(run, dynamic_model, tmp_path):
    outcome = run("run", dynamic_model, "--trt", "--log-file", "new/folder/run.log")
    assert outcome.code == 0
    assert (tmp_path / "new/folder/run.log").read_text() == outcome.out


def test_log_file_that_cannot_be_written(run, dynamic_model, tmp_path):
    (tmp_path / "file").write_text("")
    outcome = run("run", dynamic_model, "--trt", "--log-file", "file/run.log")
    assert outcome.code == 1 and "--log-file" in outcome.err


def test_full_standard_output(run, dynamic_model):
    if not pathlib.Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with open("/dev/full", "w") as full:
        outcome = run("run", dynamic_model, "--trt", stdout=full)
    assert outcome.code == 1 and "could not be written" in outcome.err


def test_no_colors_without_a_terminal(run, dynamic_model):
    assert "\x1b" not in run("run", dynamic_model, "--trt", "-v").text


def test_ignored_options_say_so(run, dynamic_model):
    outcome = run("run", dynamic_model, "--trt", "--pool-limit", "workspace:1G", "--sparse-weights", "--tactic-sources")
    assert outcome.code == 0, outcome
    for name in ("--pool-limit", "--sparse-weights", "--tactic-sources"):
        assert outcome.out.count(f"[W] [options] {name} has no effect: ") == 1


@pytest.mark.parametrize("words", [["--tf"], ["--opset", "11"]])
def test_refused_options_say_what_to_do(words, run, dynamic_model):
    outcome = run("run", dynamic_model, "--trt", *words)
    assert outcome.code == 1 and f"[!] [options] {words[0]}: " in outcome.err, outcome


@pytest.mark.parametrize("tool, text", [("trt-network", "def load_network"), ("trt-config", "def load_config"),
                                        ("onnx-gs", "import onnx_graphsurgeon")])
def test_templates(tool, text, run, tmp_path):
    outcome = run("template", tool, "some/model.onnx", "-o", "scripts/start.py")
    assert outcome.code == 0, outcome
    script = (tmp_path / "scripts/start.py").read_text()
    assert text in script
    compile(script, "start.py", "exec")
    again = run("template", tool, "some/model.onnx", "--output", "-").out
    by_whom = "# Template auto-generated by "  # Polygraphy, with the time of day.
    assert [line for line in again.splitlines() if by_whom not in line] == [
        line for line in script.splitlines() if by_whom not in line
    ]


def test_the_configuration_template_takes_the_options_of_run(run, model, tmp_path):
    outcome = run("template", "trt-config", "--fp16", "--precision-constraints", "obey", "--trt-min-shapes",
                  "x:[1,1,256,256]", "--trt-opt-shapes", "x:[1,1,256,256]", "--trt-max-shapes", "x:[1,1,256,256]",
                  "-o", "config.py")
    assert outcome.code == 0, outcome
    words = ["run", model, "--trt", "--layer-precisions", "Add:float16", "MatMul_0:float32", "-v"]
    script = run(*words, "--trt-config-script", "config.py")
    options = run(*words, "--fp16", "--precision-constraints", "obey")
    rows = [[line for line in each.out.splitlines() if "] |" in line] for each in (script, options)]
    assert script.code == 0 and rows[0] == rows[1] and "fp16: requested (obey)" in script.out, script
    assert run("template", "trt-config", "--int8", "--calibration-cache", "c.cache", "--seed", "3", "-o", "-").out.count(
        "calibrator=Calibrator(data_loader=data_loader, cache='c.cache')") == 1


@pytest.mark.parametrize("words", [["debug", "-v", "precision"], ["debug", "-vv", "--silent", "precision"],
                                   ["debug", "--log-file", "l.txt", "precision"]])
def test_options_before_the_second_word_of_a_tool(words, run, model):
    """As Polygraphy's own tests type them."""
    outcome = run(*words, model, "--fp16", "--mode", "linear", "--direction", "forward", "--check", "true")
    assert outcome.code == 0, outcome
    assert ("Pass Rate: 100.0%" in outcome.out) == ("--silent" not in words)
    assert run("inspect", "-v", "model", model).code == 0
    assert run("template", "-v", "onnx-gs", model, "-o", "-").code == 0
    outcome = run("debug", "-v", "precison", model)
    assert outcome.code == 2 and "invalid choice" in outcome.err


def test_template_needs_an_output(run):
    outcome = run("template", "trt-config", "m.onnx")
    assert outcome.code == 2 and "-o" in outcome.err


def test_ctrl_c(binary, dynamic_model, tmp_path):
    """Clean message, status 130, no partial files."""
    import signal
    import time

    log = tmp_path / "out.txt"
    with open(log, "w") as out:
        process = subprocess.Popen([str(binary), "run", str(dynamic_model), "--trt", "--iterations", "100000000",
                                    "--save-outputs", "o.json"], cwd=tmp_path, stdout=out,
                                   stderr=subprocess.PIPE, text=True)
        while "Activating" not in log.read_text():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANGS)
    assert process.returncode == 130, err
    assert "Interrupted." in err and "Traceback" not in err
    assert sorted(os.listdir(tmp_path)) == ["dynamic.onnx", "out.txt"]


def test_no_python_is_started_for_the_engine_alone(run, dynamic_model):
    outcome = run("run", dynamic_model, "--trt", env={"ULPSCOPE_PYTHON": "/nonexistent", "PATH": "/nonexistent"})
    assert outcome.code == 0, outcome
