"""`ulpscope debug precision`: the loop of marking layers, writing an engine and running a check command."""
import argparse
import contextlib
import io
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from test_normalize import as_polygraphy_says, ours

from limits import HANGS

BASE = ["--fp16", "--fusion", "none"]
COMPARE = ["--val-range", "x:[1,2]", "--check-error-stat", "median"]


@pytest.fixture
def golden(run, model):
    assert run("run", model, "--onnxrt", "--val-range", "x:[1,2]", "--save-outputs", "golden.json").code == 0
    return "golden.json"


def script(folder, text):
    """A check command in Python; `engine` is the name of the engine's file."""
    path = folder / "check.py"
    path.write_text("import json, os, sys\nengine = 'polygraphy_debug.engine'\n" + text)
    return [sys.executable, str(path)]


def counts(outcome):
    return [int(n) for n in re.findall(r"Selecting (?:first|last) (\d+) layer\(s\) to run in higher precision", outcome.out)]


@pytest.mark.parametrize("words, tried, answer", [
    ([], [6, 3, 5, 4], "first 5"),
    (["--mode", "linear"], [0, 1, 2, 3, 4, 5], "first 5"),
    (["--dir", "reverse"], [6, 3, 1, 2], "last 3"),
    (["--direction", "reverse", "--mode=linear"], [0, 1, 2, 3], "last 3"),
])
def test_with_a_command_that_compares(words, tried, answer, run, binary, model, golden, tmp_path):
    outcome = run("debug", "precision", model, *BASE, *words, "--check", binary, "run", "polygraphy_debug.engine",
                  "--trt", "--load-outputs", golden, *COMPARE)
    assert outcome.code == 0, outcome
    assert counts(outcome) == tried
    assert f"To achieve acceptable accuracy, try running the {answer} layer(s) in higher precision" in outcome.out
    names = ["MatMul_0", "Add", "Sub"] if "first" in answer else ["Add", "Sub", "MatMul_1"]
    assert all(f"[I]         {name}\n" in outcome.out for name in names)
    assert not (tmp_path / "polygraphy_debug.engine").exists()


@pytest.mark.parametrize("words, tried, answer", [([], [6, 3, 5, 4], "first 5"), (["--dir", "reverse"], [6, 3, 1, 2],
                                                                                  "last 3")])
def test_judges_by_itself_with_golden_results(words, tried, answer, run, model, golden, tmp_path):
    outcome = run("debug", "precision", model, *BASE, *words, "--golden", golden, *COMPARE)
    assert outcome.code == 0 and counts(outcome) == tried and answer in outcome.out, outcome
    assert "PASSED | Output: matmul_out_3 | Required Tolerances: (atol=0.0, rtol=0.0)" in outcome.out
    assert sorted(path.name for path in tmp_path.glob("polygraphy*")) == ["polygraphy_debug_replay.json",
                                                                          "polygraphy_debug_replay_skip_current.json"]


def test_lines(run, model, tmp_path):
    check = script(tmp_path, "print('out'); print('err', file=sys.stderr)\n"
                   "sys.exit(0 if json.load(open('i.json'))['iteration'] != 1 else 3)")
    outcome = run("debug", "precision", model, *BASE, "--iter-info", "i.json", "--check", *check)
    assert outcome.code == 0
    for line in [
        r"\[I\] Using DataType\.FLOAT as higher precision",
        r"\[I\]     RUNNING \| Iteration 1 \| Approximately 3 iteration\(s\) remaining",
        r"\[I\]     Selecting first 6 layer\(s\) to run in higher precision",
        r"\[I\]     Running check command: .*check.py",
        r"\[I\]     PASSED \| Iteration 1 \| Duration .*s",
        r"\[I\]     ========== CAPTURED STDOUT ==========",
        r"\[E\]     ========== CAPTURED STDERR ==========",
        r"\[E\]     FAILED \| Iteration 2 \| Duration .*s",
        r"\[I\] Finished 4 iteration\(s\) \| Passed: 3/4 \| Pass Rate: 75.0%",
    ]:
        assert re.search(f"^{line}", outcome.out, re.M), (line, outcome)
    assert outcome.out.count("CAPTURED STDOUT") == 1, "only the failed try shows its output"
    assert not (tmp_path / "i.json").exists()


def test_nothing_found_is_status_0(run, model):
    outcome = run("debug", "precision", model, *BASE, "--check", "false")
    assert outcome.code == 0 and counts(outcome) == [6]
    assert "[E]     Could not find a configuration that satisfied accuracy requirements." in outcome.out
    assert "Passed: 0/1 | Pass Rate: 0.0%" in outcome.out
    outcome = run("debug", "precision", model, *BASE, "--mode", "linear", "--check", "false")
    assert outcome.code == 0 and counts(outcome) == [0, 1, 2, 3, 4, 5, 6]


def test_only_all_layers_pass(run, model, tmp_path):
    check = script(tmp_path, "sys.exit(json.load(open('i.json'))['iteration'] > 0)")
    outcome = run("debug", "precision", model, *BASE, "--iter-info", "i.json", "--check", *check)
    assert outcome.code == 0 and counts(outcome) == [6, 3, 5]
    assert "Could not find a configuration" in outcome.out and "Nothing less than all 6 layer(s)" in outcome.out


@pytest.mark.parametrize("words, code, text, passes", [
    ([], 0, "", True), ([], 2, "", False), (["--fail-code", "2"], 2, "", False), (["--fail-code", "2", "3"], 1, "", True),
    (["--ignore-fail-code", "2"], 2, "", True), (["--ignore-fail-code", "2"], 1, "", False),
    (["--fail-regex", "bad .umber"], 1, "all good", True), (["--fail-regex", "x", "bad .umber"], 0, "a bad number", False),
    (["--fail-regex", "bad", "--fail-code", "1"], 0, "bad", True),
    (["--fail-regex", "bad", "--fail-code", "1"], 1, "bad", False),
    (["--fail-regex", "bad", "--fail-code", "1"], 1, "good", True),
    (["--fail-regex", "x.*y"], 1, "x" + "a" * 200000, True),
])
def test_what_counts_as_failure(words, code, text, passes, run, model, tmp_path):
    (tmp_path / "text").write_text(text)
    check = script(tmp_path, f"print(open('text').read()); sys.exit({code})")
    outcome = run("debug", "precision", model, *BASE, "--hide-fail-output", *words, "--check", *check)
    assert outcome.code == 0 and ("PASSED | Iteration 1" in outcome.out) == passes, outcome
    assert "CAPTURED" not in outcome.out


def test_killed_commands_fail(run, model, tmp_path):
    check = script(tmp_path, "os.kill(os.getpid(), 11)")
    assert "FAILED | Iteration 1" in run("debug", "precision", model, *BASE, "--check", *check).out
    assert "PASSED | Iteration 1" in run("debug", "precision", model, *BASE, "--ignore-fail-code", "-11", "--check",
                                         *check).out


def test_shows_output_of_passes_when_asked(run, model):
    outcome = run("debug", "precision", model, *BASE, "--show-output", "--check", "echo", "hello")
    assert outcome.out.count("hello") >= 3 and "[W]     ========== CAPTURED STDERR" in outcome.out


def test_sorts_artifacts(run, model, tmp_path):
    check = script(tmp_path, "i = json.load(open('i.json'))['iteration']\nopen('note.txt', 'w').write(str(i))\n"
                   "sys.exit(i == 1)")
    outcome = run("debug", "precision", model, *BASE, "--iter-info", "i.json", "--artifacts", "note.txt", "missing",
                  "polygraphy_debug.engine", "--art-dir", "kept", "--check", *check)
    assert outcome.code == 0
    names = {kind: sorted(path.name for path in (tmp_path / "kept" / kind).iterdir()) for kind in ("good", "bad")}
    stamp = r"_\d\d-\d\d-\d\d_\d\d-\d\d-\d\d"
    assert [bool(re.fullmatch(f"{stem}{stamp}_N1{ext}", name)) for (stem, ext), name in zip(
        [("note", r"\.txt"), ("polygraphy_debug", r"\.engine")], names["bad"], strict=True)] == [True, True]
    assert len(names["good"]) == 6 and (tmp_path / "kept" / "bad" / names["bad"][0]).read_text() == "1"
    assert "Artifact: missing does not exist, skipping." in outcome.out and "Could not clean up" not in outcome.out
    assert not (tmp_path / "note.txt").exists()


def test_engines_stay_when_asked(run, model, tmp_path):
    outcome = run("debug", "precision", model, *BASE, "--iter-artifact", "e.plan", "--no-remove-intermediate", "--check",
                  "test", "-s", "e.plan")
    assert outcome.code == 0 and "FAILED" not in outcome.out and (tmp_path / "e.plan").exists()
    outcome = run("debug", "precision", model, *BASE, "--iter-artifact", "e.plan", "--check", "true")
    assert outcome.code == 1 and "e.plan already exists, refusing to overwrite" in outcome.err


def test_replay(run, model, tmp_path):
    check = script(tmp_path, "i = json.load(open('i.json'))['iteration']\nopen('asked', 'a').write(str(i))\nsys.exit(i == 1)")
    words = ["debug", "precision", model, *BASE, "--iter-info", "i.json"]
    first = run(*words, "--save-debug-replay", "r.json", "--check", *check)
    replay = json.loads((tmp_path / "r.json").read_text())
    assert [entry["success"] for entry in replay.values()] == [True, False, True, True]
    assert json.loads((tmp_path / "r_skip_current.json").read_text())["_N3"]["success"] is False
    (tmp_path / "asked").unlink()
    del replay["_N3"]
    (tmp_path / "r.json").write_text(json.dumps(replay))
    again = run(*words, "--load-debug-replay", "r.json", "--save-debug-replay", "s.json", "--check", *check)
    assert (tmp_path / "asked").read_text() == "3"
    assert again.out.count("Loading iteration information from debug replay: success=") == 3
    assert [line for line in first.out.splitlines() if "try running" in line] == [
        line for line in again.out.splitlines() if "try running" in line]
    assert len(json.loads((tmp_path / "s.json").read_text())) == 4


def test_polygraphy_reads_the_replay_and_we_read_its(run, model, tmp_path):
    pytest.importorskip("polygraphy")
    from polygraphy.json import load_json, save_json
    from polygraphy.tools.debug.subtool.iterative_debug_args import IterationContext

    assert run("debug", "precision", model, *BASE, "--check", "true").code == 0
    loaded = load_json(str(tmp_path / "polygraphy_debug_replay.json"))
    assert list(loaded) == ["_N0", "_N1", "_N2"] and all(entry.success for entry in loaded.values())
    save_json({f"_N{i}": IterationContext({}, {"iteration": i}, i == 0) for i in range(9)}, str(tmp_path / "theirs.json"))
    outcome = run("debug", "precision", model, *BASE, "--load-debug-replay", "theirs.json", "--check", "true")
    assert outcome.code == 0 and "Passed: 1/3" in outcome.out


@pytest.mark.parametrize("text", ["", "[]", "{\"a\": 1}", "{\"_N0\": {\"state\": {}}}", "{\"_N0\": {\"success\": 1}}"])
def test_damaged_replays(text, run, model, tmp_path):
    (tmp_path / "r.json").write_text(text)
    outcome = run("debug", "precision", model, *BASE, "--load-debug-replay", "r.json", "--check", "true")
    assert outcome.code == 1 and "[replay] 'r.json'" in outcome.err


def test_asks_without_a_command(binary, model, tmp_path):
    def answered(text):
        return subprocess.run([str(binary), "debug", "precision", str(model), *BASE], cwd=tmp_path, text=True, input=text,
                              capture_output=True, timeout=HANGS)

    done = answered("Pass\n\nmaybe\nfail\nP\np\n")
    assert done.returncode == 0 and "Passed: 3/4" in done.stdout
    assert ">>> Did 'polygraphy_debug.engine' [p]ass or [f]ail? " in done.stdout
    assert done.stdout.count(">>> Please choose either: 'p' or 'f': ") == 2
    assert "Starting interactive debugging session since no `--check` command was provided" in done.stdout
    ended = answered("p\n")
    assert ended.returncode == 1 and "got the end of the input" in ended.stderr
    assert not (tmp_path / "polygraphy_debug.engine").exists()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("ignores", [False, True])
def test_interrupted(name, ignores, binary, model, tmp_path):
    """The replay stays, what the try made goes, and so does the command."""
    trap = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if ignores else ""
    check = script(tmp_path, trap + "i = json.load(open('i.json'))['iteration']\n"
                   "if i == 1:\n import time; open('pid', 'w').write(str(os.getpid())); time.sleep(10000)")
    process = subprocess.Popen([str(binary), "debug", "precision", str(model), *BASE, "--iter-info", "i.json", "--check",
                                *check], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(getattr(signal, name))
    assert process.wait(timeout=HANGS) == 130
    pid = int((tmp_path / "pid").read_text())
    assert not pathlib.Path(f"/proc/{pid}").exists() or "Z" in pathlib.Path(f"/proc/{pid}/stat").read_text()
    assert json.loads((tmp_path / "polygraphy_debug_replay.json").read_text()).keys() == {"_N0"}
    skip = json.loads((tmp_path / "polygraphy_debug_replay_skip_current.json").read_text())
    assert [entry["success"] for entry in skip.values()] == [True, False]
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"needs_constraints.onnx", "check.py", "pid", "polygraphy_debug_replay.json",
                    "polygraphy_debug_replay_skip_current.json"}


@pytest.mark.parametrize("words, code, message", [
    (["--check", "true"], 1, "Please enable at least one precision besides float32"),
    (["--int8", "-p", "float16", "--check", "true"], 1, "Please also specify `--fp16`"),
    ([*BASE, "--strongly-typed", "--check", "true"], 1, "strongly typed"),
    ([*BASE, "--check", "no-such-command"], 1, "'no-such-command'"),
    ([*BASE, "--check"], 2, "argument --check/--check-inference: expected a command"),
    ([*BASE, "--golden", "g.json", "--check", "true"], 2, "not allowed with argument --check"),
    ([*BASE, "--golden", "g.json"], 1, "g.json"),
    ([*BASE, "--fail-code", "x", "--check", "true"], 2, "invalid int value: 'x'"),
    ([*BASE, "--fail-code", "1", "--ignore-fail-code", "2", "--check", "true"], 2, "not allowed with argument"),
    ([*BASE, "--show-output", "--hide-fail-output", "--check", "true"], 2, "not allowed with argument"),
    ([*BASE, "--fail-regex", "(", "--check", "true"], 1, "--fail-regex '('"),
    ([*BASE, "--mode", "both", "--check", "true"], 2, "invalid choice: 'both'"),
    ([*BASE, "--iter-artifact", "/proc/none/e.plan", "--check", "true"], 1, "/proc/none"),
    ([*BASE, "--unknown", "--check", "true"], 1, "Unrecognized Options: ['--unknown']"),
])
def test_refusals(words, code, message, run, model, tmp_path):
    outcome = run("debug", "precision", model, *words)
    assert outcome.code == code and message in outcome.text, outcome
    assert not (tmp_path / "polygraphy_debug.engine").exists()


def test_engines_are_refused(run, tmp_path):
    (tmp_path / "e.engine").write_bytes(b"")
    outcome = run("debug", "precision", "e.engine", *BASE, "--check", "true")
    assert outcome.code == 1 and "got an engine" in outcome.err


def test_builds_that_fail_are_failed_tries(run, model, tmp_path):
    """bfloat16 is not enabled, so that no engine obeys unless Sub is marked."""
    outcome = run("debug", "precision", model, *BASE, "--layer-precisions", "Sub:bfloat16", "--check", "true")
    assert outcome.code == 0 and "first 5 layer(s)" in outcome.out
    assert outcome.out.count("Failed to create network or engine, continuing to the next iteration.") == 2


COMMAND_LINES = """
m.onnx --check true
m.onnx --fp16 --check run --fp16 -x --atol 1 more
m.onnx --mode linear --dir reverse -p float16 --fp16 --check a
m.onnx -pfloat16 --direction forward --check-inference a b
m.onnx --check=true
m.onnx --check=true --fp16
m.onnx --fail-code 1 2 -11 --check a --fail-code 3
m.onnx --fail-returncode 1 --fail-regex a b --show-output --check a
m.onnx --ignore-fail-code 1 --hide-fail-output
m.onnx --ignore-fail-code 1 --fail-code 2
m.onnx --show-output --hide-fail-output
m.onnx --fail-code x
m.onnx --fail-code
m.onnx --artifacts a b --art-dir d --check a
m.onnx --artifacts-dir d --iter-artifact e --no-remove-intermediate --iter-info i
m.onnx --intermediate-artifact e --iteration-info i --load-debug-replay r --save-debug-replay s
m.onnx --mode sideways
m.onnx --dir up
m.onnx -p int8
m.onnx --precision-constraints prefer --layer-precisions a:float16 --int8 --calibration-cache c
m.onnx --load-inputs a b --trt-outputs mark all --trt-npps a.py
m.onnx --check a --help
m.onnx --help
--fp16 --check m.onnx
m.onnx -- --check a
""".strip().splitlines()


@pytest.fixture(scope="module")
def parser():
    pytest.importorskip("polygraphy")
    from polygraphy.tools.debug.subtool.precision import Precision

    return Precision().setup_parser(argparse.ArgumentParser(prog="polygraphy").add_subparsers(dest="tools"))


def theirs(parser, words):
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            given, unknown = parser.parse_known_args(words)
    except SystemExit as end:
        return "help" if end.code == 0 else "error"
    options = {}
    for action in parser._actions:
        value = getattr(given, action.dest, None)
        if action.option_strings and action.dest != "help" and value != action.default:
            plain = isinstance(action, argparse._StoreTrueAction | argparse._StoreFalseAction)
            options[action.option_strings[0]] = True if plain else value
    return options, given.model_file, unknown


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_command_lines_mean_what_they_mean_to_polygraphy(line, parser, dump_arguments):
    words = shlex.split(line)
    expected, found = theirs(parser, words), ours(dump_arguments, ["@debug-precision", *words])
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
        return
    options, model, unknown = expected
    actions = {action.option_strings[0]: action for action in parser._actions if action.option_strings}
    mine = {name: as_polygraphy_says(name, value, actions[name]) for name, value in found["options"].items()}
    for name in ("--fail-code", "--ignore-fail-code"):
        if name in mine:
            mine[name] = [int(value) for value in mine[name]]
    defaults = {action.option_strings[0]: action.default for action in parser._actions if action.option_strings}
    assert {name: value for name, value in mine.items() if value is True or value != defaults[name]} == options
    assert (found["model"], found["unrecognized"]) == (model, unknown)


def test_all_of_polygraphys_options_are_known(parser, binary):
    text = subprocess.run([str(binary), "debug", "precision", "--help-all"], text=True, capture_output=True).stdout
    known = {word.strip(",") for word in text.split() if word.startswith("-")}
    assert not [action.option_strings for action in parser._actions if not set(action.option_strings) <= known]


def test_environment_is_handed_on(run, model):
    assert os.environ.get("PATH")
    outcome = run("debug", "precision", model, *BASE, "--check", "sh", "-c", "test \"$MARK\" = yes", env={"MARK": "yes"})
    assert outcome.code == 0 and "FAILED" not in outcome.out
