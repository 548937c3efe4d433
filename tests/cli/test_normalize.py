"""Command lines mean the same to ulpscope and to Polygraphy's `run`, for options that both have."""
import argparse
import contextlib
import io
import json
import subprocess

import pytest

from limits import HANGS

pytest.importorskip("polygraphy")

COMMAND_LINES = """
m.onnx
m.onnx --onnxrt
m.onnx --onnxrt --onnxrt --trt
--trt m.onnx --onnxrt
--onnxrt --trt -- m.onnx
m.onnx --trt -- extra
m.onnx -v -vv -q
m.onnx -vvq --onnxrt
m.onnx --verbose --quiet --quiet
m.onnx --atol 1e-3 out:1e-2 --rtol 1e-4
m.onnx --atol=1e-3 --rtol=out:1 --trt
--atol=1 m.onnx
--atol 1 m.onnx
--val-range x:[1,2] [0,1] --trt
m.onnx --val-range [-1,2] x:[-3,-1] --seed -5
m.onnx --atol -1 -.5 -2.5e3
m.onnx --atol -1e-3
m.onnx --atol=-1e-3
m.onnx --atol -inf
m.onnx --seed -5 --iterations 3
m.onnx --iters 3
m.onnx --load-inputs a.json b.json --load-results c.json
m.onnx --load-inputs a.json --load-inputs b.json
m.onnx --trt-min-shapes x:[1] y:[2] --trt-min-shapes x:[3] --trt-max-shapes x:[4] y:[9]
m.onnx --layer-precisions a:b:float16 c:float32 --precision-constraints obey --fp16
m.onnx --layer-prec a:float16 --precision-c prefer
m.onnx --onnx-outputs mark all --trt-outputs mark all
m.onnx --onnx-exclude-outputs a --trt-exclude a b
m.onnx --prec obey
m.onnx --precision obey
m.onnx --check max out:mean
m.onnx --check-e median
m.onnx --check-a
m.onnx --load a
m.onnx --load-t a
m.onnx --load-o a b
m.onnx --save-t a
m.onnx --save-tactics a
m.onnx --save-tactics a --load-tactics b
m.onnx --save-tactic-replay a --load-tactic-replay b
m.onnx --load-inputs a --data-loader-script b.py
m.onnx --data b.py
m.onnx --data-loader-s b.py
m.onnx --trt-npps a.py b.py:f --trt-cpps c.py
m.onnx --trt-net a.py
m.onnx --trt-config-script a.py
m.onnx --trt-config a.py
m.onnx --trt-o mark all
m.onnx --trt
m.onnx --tr
m.onnx --fp
m.onnx --fp1
m.onnx --fp16=1
m.onnx --fp16=
m.onnx --strong
m.onnx --int8 --tf32 --bf16 --fp8
m.onnx --ta all
m.onnx --tactic-sources
m.onnx --tactic-sources --fp16
m.onnx --tactic-sources a b
m.onnx --save-external-data
m.onnx --save-external-data f --fp16
m.onnx --ext dir
m.onnx --external dir
m.onnx --external-data-d dir
m.onnx --validate --fail-fast --no-shape-check
m.onnx --val
m.onnx --vali
m.onnx --val-r [0,1]
m.onnx --fail
m.onnx --warm 3
m.onnx --warm-up
m.onnx --warm-up x
m.onnx --warm-up 1.5
m.onnx --warm-up=2
m.onnx --atol
m.onnx --atol --rtol 1
m.onnx --precision-constraints
m.onnx --precision-constraints sometimes
m.onnx --compare simple indices
m.onnx --compare nothing
m.onnx --compare-func indices
m.onnx --compare-func-s a.py
m.onnx --log-format timestamp no-colors
m.onnx --log-format loud
m.onnx --log-file a/b.log --silent
m.onnx --model-type engine --input-shapes x:[1,2] y:[]
m.onnx --model-type elf
m.onnx --inputs x:[1,2]
m.onnx --input-s x:[1,2]
m.onnx --post top-5 out:top-3,axis=1
m.onnx --postprocess top-5
m.onnx --postprocess-func top-5
m.onnx --unknown
m.onnx --unknown value --trt
--unknown value --trt
m.onnx second.onnx
m.onnx --trt second.onnx third
m.onnx --unknown=value
m.onnx -x
m.onnx -vx
m.onnx -5
-5 --trt
m.onnx --trt -- -5
m.onnx --trt -- --fp16
-- m.onnx
--
m.onnx --save-outputs -
m.onnx --save-outputs=
m.onnx --save-inputs= --save-results a=b
m.onnx --save-outputs=a=b
m.onnx --log-file 'a b'
m.onnx '--atol 1'
'--my model.onnx'
m.onnx --providers cpu cuda --pool-limit workspace:1G --profiling-verbosity detailed
m.onnx --error-quantile 0.9 --infinities-compare-equal --index-tolerance 1 out:2
m.onnx --save-engine e.plan --calibration-cache c.cache --calib-base-cls IInt8MinMaxCalibrator
m.onnx --tensor-datatypes x:float16 --tensor-formats x:[linear,chw4]
m.onnx --use-subprocess --seed 1 --seed 2
m.onnx --help
m.onnx --atol --help
m.onnx --hel
""".strip().splitlines()

BOOLEAN = {argparse._StoreTrueAction, argparse._StoreFalseAction}


def polygraphy_parser():
    from polygraphy.tools.run import Run

    return Run().setup_parser(argparse.ArgumentParser(prog="polygraphy").add_subparsers(dest="tools"))


@pytest.fixture(scope="module")
def parser():
    return polygraphy_parser()


def words_of(line):
    import shlex

    return shlex.split(line)


def theirs(parser, words):
    """(options by canonical name, runners, model, unrecognized), "help", or "error"."""
    err = io.StringIO()
    try:
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
            given, unknown = parser.parse_known_args(words, argparse.Namespace(runners=[]))
    except SystemExit as end:
        return "help" if end.code == 0 else "error"
    defaults = {a.dest: a.default for a in parser._actions}
    options = {}
    for action in parser._actions:
        value = getattr(given, action.dest, None)
        if not action.option_strings or action.dest in ("runners", "help") or value == defaults[action.dest]:
            continue
        name = action.option_strings[0]
        if type(action) in BOOLEAN:
            value = True
        options[name] = value
    return options, [f"--{name}" for name in given.runners], given.model_file, unknown


def ours(program, words):
    process = subprocess.run([str(program), *words], text=True, capture_output=True, timeout=HANGS)
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    if "error" in found:
        return "error"
    if found["help"]:
        return "help"
    return found


def as_polygraphy_says(name, value, action):
    """Our list of words in the form that argparse gives."""
    if isinstance(value, list) and not isinstance(action, argparse._AppendAction) and action.nargs in (None, "?"):
        value = value[0] if value else action.const
    if isinstance(action, argparse._AppendAction) and action.nargs == "?":
        value = [value[0] if value else action.const]
    return action.type(value) if action.type in (int, float) and isinstance(value, str) else value


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_agrees_with_polygraphy(line, parser, dump_arguments):
    words = words_of(line)
    expected = theirs(parser, words)
    found = ours(dump_arguments, words)
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
        return
    options, runners, model, unknown = expected
    actions = {a.option_strings[0]: a for a in parser._actions if a.option_strings}
    assert found["unrecognized"] == unknown
    assert found["model"] == model
    mine = {name: as_polygraphy_says(name, value, actions[name]) for name, value in found["options"].items()}
    assert mine == options
    if not unknown:
        assert found["runners"] == runners


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_parser_loses_nothing(line, dump_arguments):
    """What normalization found is what the parser sets."""
    found = ours(dump_arguments, words_of(line))
    if isinstance(found, str) or found["unrecognized"]:
        return
    parsed = found["parsed"]
    assert parsed.get("MODEL") == found["model"]
    for name, value in parsed.items():
        if name == "MODEL":
            continue
        wanted = found["options"][name]
        if wanted == []:  # Given without its optional value: set to an empty text.
            wanted = [""]
        assert value == (int(wanted[0]) if isinstance(value, int) and isinstance(wanted, list) else wanted), name


def test_both_have_the_options(parser, dump_arguments, binary):
    """Every option of Polygraphy's run is known: done, ignored with a reason, or refused with a reason."""
    text = subprocess.run([str(binary), "run", "--help-all"], text=True, capture_output=True).stdout
    known = {word.strip(",") for word in text.split() if word.startswith("-")}
    missing = [a.option_strings for a in parser._actions if not set(a.option_strings) <= known]
    assert not missing


@pytest.mark.parametrize("prefix, name", [("--iter", "--iterations"), ("--load-i", "--load-inputs"), ("--pool",
                                                                                                      "--pool-limit"),
                                          ("--layer", "--layer-precisions"), ("--fus", "--fusion"),
                                          ("--tar", "--target"), ("--th", "--threads")])
def test_prefixes_beyond_argparse(prefix, name, dump_arguments):
    """A prefix of several names of one option, and of options of our own."""
    value = {"--fusion": "none"}.get(name, "3")
    assert list(ours(dump_arguments, ["m.onnx", prefix, value])["options"]) == [name]


@pytest.mark.parametrize("words", [["--hint"], ["--s", "1"], ["--load", "x"]])
def test_ambiguous_prefixes_are_usage_errors(words, run):
    outcome = run("run", "m.onnx", *words)
    if outcome.code == 1:
        assert "Unrecognized Options" in outcome.out
    else:
        assert outcome.code == 2 and "ambiguous option" in outcome.err and outcome.err.startswith("usage: ")
