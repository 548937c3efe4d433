"""Arguments of wrong types: every parameter of every public function says so, by an ulpscope.Error that names it."""

from __future__ import annotations

import inspect
import pathlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from small_models import TASK, uneven

import ulpscope
from ulpscope.polygraphy import UlpscopeRunner

CODE = ulpscope.ErrorCode
NAN = float("nan")
VALUES = (
    3, None, object(), [], b"", "nonsense", -1, NAN, 1.5, {}, {3: 4}, [3], [[1], [1, 2]], "", "a\0b", "\ud800", 2**70,
)  # fmt: skip


def run_runner(model: Any, name: Any = None, **options: Any) -> Any:
    with UlpscopeRunner(model, name, **options) as runner:
        return runner.infer({"x": np.zeros((4, 24), np.float32)})


def export(**given: Any) -> Any:
    torch = pytest.importorskip("torch")
    return ulpscope.from_torch(**{"module": torch.nn.Linear(4, 2), "args": torch.zeros(1, 4), "dynamo": False, **given})


X = {"x": np.zeros((4, 24), np.float32)}
#: What is called, and with which arguments beside the wrong one.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "search": (
        ulpscope.search,
        {"model": "m.onnx", "data": "x.npz", "threshold": 1e-2, "max_trials": 3, "progress": False},
    ),
    "convert": (ulpscope.convert, {"model": "m.onnx", "data": "x.npz"}),
    "calibrate": (ulpscope.calibrate, {"model": "m.onnx", "data": "x.npz", "progress": False}),
    "quantize": (ulpscope.quantize, {"onnx_path": "m.onnx", "calibration_data": "x.npz"}),
    "verify": (ulpscope.verify, {"model": "m.onnx", "answer": "a.json", "data": "x.npz"}),
    "report": (ulpscope.report, {"answer": "a.json"}),
    "measure_target": (ulpscope.measure_target, {"path": "t.json", "model": "m.onnx", "data": "x.npz"}),
    "from_torch": (lambda **given: export(**given), {}),
    "Engine": (ulpscope.Engine, {"model": "m.onnx"}),
    "Engine.run": (lambda **given: ulpscope.Engine("m.onnx").run(**{"inputs": X, **given}), {}),
    "Engine.bind": (lambda **given: ulpscope.Engine("m.onnx").bind(**{"inputs": X, **given}), {}),
    "Engine.device_microseconds": (lambda **given: ulpscope.Engine("m.onnx").device_microseconds(**given), {}),
    "Answer.load": (ulpscope.Answer.load, {}),
    "Answer.from_json": (ulpscope.Answer.from_json, {}),
    "Answer.at": (lambda **given: ulpscope.Answer.load("a.json").at(**given), {}),
    "Answer.save": (lambda **given: ulpscope.Answer.load("a.json").save(**given), {}),
    "Calibration": (ulpscope.Calibration, {"scales": {"x": 1.0}, "algorithm": "EntropyCalibration2"}),
    "Calibration.load": (ulpscope.Calibration.load, {}),
    "Calibration.save": (lambda **given: ulpscope.Calibration({"x": 1}, "MinMaxCalibration").save(**given), {}),
    "UlpscopeRunner": (run_runner, {"model": "m.onnx"}),
}
#: Two names of one argument: the other one is left out.
OTHER_NAMES = {"model_input": "onnx_path", "calibration_data_reader": "calibration_data"}

PATHS, TEXTS, NUMBERS, NAMES, DATA = (str,), (str,), (int, float), (str, list), (str, list, dict)
#: What parameters take, as the documentation says it. None goes where it is the default.
TYPES: dict[str, tuple[type, ...]] = {
    "model": (str, bytes), "onnx_path": (str, bytes), "model_input": (str, bytes), "answer": PATHS, "compare": PATHS,
    "data": DATA, "hold_out": (*DATA, bool), "golden": DATA, "calibration_data": DATA, "calibration_data_reader": DATA,
    "calibration": (str, dict), "path": PATHS, "out": PATHS, "typed": PATHS, "target": PATHS, "journal": PATHS,
    "calibration_cache_path": PATHS, "output_path": PATHS, "model_output": PATHS,
    "precisions": NAMES, "precision": NAMES, "fallback": NAMES, "keep": NAMES, "lower": NAMES,
    "op_types_to_quantize": NAMES, "op_types_to_exclude": NAMES, "nodes_to_quantize": NAMES, "nodes_to_exclude": NAMES,
    "metric": TEXTS, "objective": TEXTS, "fusion": TEXTS, "backend": TEXTS, "ray": TEXTS, "method": TEXTS, "runner": TEXTS,
    "name": TEXTS, "text": TEXTS, "algorithm": TEXTS, "quantize_mode": TEXTS, "calibration_method": TEXTS,
    "accumulation": TEXTS, "attention": TEXTS,
    "weight_scales": TEXTS, "mx_scale_rule": TEXTS, "calibration_inputs": DATA,
    "calibrate_method": TEXTS, "high_precision_dtype": TEXTS,
    "threshold": (*NUMBERS, dict), "rtol": (*NUMBERS, dict), "atol": (*NUMBERS, dict), "margin": NUMBERS,
    "bits": NUMBERS, "time_limit": NUMBERS, "quantile": NUMBERS, "threads": (int,), "max_trials": (int,),
    "memory_limit": (int,),
    "ray_workers": (int,), "samples": (int,), "trial": (int,),
    "measure": (bool,), "resume": (bool,), "shrink": (bool,), "repair": (bool,), "relax": (bool,),
    "verify": (bool,), "bias_correction": (bool,),
    "layer_precisions": (dict,), "io_types": (dict,), "scales": (dict,), "progress": (bool,), "inputs": (list, dict), "shapes": (list,),
    "outputs": (str, dict), "stream": (int,),
    "module": (), "args": (), "kwargs": (dict,), "input_names": (list,), "output_names": (list,), "opset_version": (int,),
}  # fmt: skip


def parameters_of(name: str) -> dict[str, inspect.Parameter]:
    if name == "UlpscopeRunner":
        return parameters_of("Engine") | dict(inspect.signature(UlpscopeRunner).parameters)
    owner: Any = ulpscope
    for part in name.split("."):
        owner = getattr(owner, part)
    return dict(inspect.signature(owner).parameters)


def cases() -> Iterator[tuple[str, str]]:
    for name in CALLS:
        for parameter, each in parameters_of(name).items():
            if parameter != "self" and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
                yield name, parameter


def test_every_public_function_is_called():
    functions = {name for name in ulpscope.__all__ if isinstance(getattr(ulpscope, name), types.FunctionType)}
    assert functions <= CALLS.keys()


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("arguments")
    samples = uneven(folder / "m.onnx", 4)
    np.savez(folder / "x.npz", x=np.stack([each["x"] for each in samples]))
    ulpscope.search(folder / "m.onnx", samples, progress=False, **TASK).save(folder / "a.json")
    return folder


@pytest.mark.parametrize(("function", "parameter"), list(cases()))
def test_wrong_types_are_named(place, monkeypatch, function, parameter):
    monkeypatch.chdir(place)
    call, given = CALLS[function]
    given = {name: value for name, value in given.items() if name != OTHER_NAMES.get(parameter)}
    for value in VALUES:
        if parameter == "ray" and isinstance(value, str):
            continue  # An address, which is tried.
        no_path = TYPES[parameter] is PATHS and value in ("", "a\0b")
        text_is_none = isinstance(value, str) and ("\ud800" in value or no_path)
        optional = value is None and parameters_of(function)[parameter].default is None
        legal = optional or (isinstance(value, TYPES[parameter]) and value == value and not text_is_none)
        legal |= parameter == "args"  # What suits the module.
        if legal:
            try:
                call(**{**given, parameter: value})
            except ulpscope.Error:
                pass  # It says what is wrong with it; other tests look at that.
            continue
        with pytest.raises(ulpscope.Error) as caught:
            call(**{**given, parameter: value})
        message = str(caught.value)
        assert caught.value.code == CODE.INVALID_ARGUMENT, (value, message)
        assert parameter in message and "expected" in message and ", got" in message, (value, message)


@pytest.mark.parametrize(("function", "parameter"), [each for each in cases() if bool in TYPES[each[1]]])
@pytest.mark.parametrize("flag", [np.True_, np.False_])
def test_flags_of_numpy(place, monkeypatch, function, parameter, flag):
    monkeypatch.chdir(place)
    call, given = CALLS[function]

    def outcome(value: Any) -> Any:
        try:
            return type(call(**{**given, parameter: value}))
        except ulpscope.Error as error:
            return str(error)

    assert outcome(flag) == outcome(bool(flag))


@pytest.mark.parametrize("parameter", ["threads", "metric", "keep"])
def test_flags_of_numpy_are_flags_alone(place, monkeypatch, parameter):
    monkeypatch.chdir(place)
    call, given = CALLS["search"]
    with pytest.raises(ulpscope.Error, match=f"{parameter}: expected"):
        call(**{**given, parameter: np.True_})
    for other in (np.array(True), np.array([True]), 1, np.int8(1), "True"):
        with pytest.raises(ulpscope.Error, match="shrink: expected True or False"):
            ulpscope.search("m.onnx", "x.npz", shrink=other)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: ulpscope.search("m.onnx", "x.npz", tolerance=1),
     r"search\(\) got an unexpected keyword argument 'tolerance'; did you mean 'threshold'\?"),
    (lambda: ulpscope.convert("m.onnx", precisions="fp16"), r"convert\(\) got .*; did you mean 'precision'\?"),
    (lambda: ulpscope.Engine("m.onnx", layer_precision={}), r"Engine\(\) got .*; did you mean 'layer_precisions'\?"),
    (lambda: ulpscope.search(modle="m.onnx"), r"search\(\) missing .* 'model'; did you mean 'model' by 'modle'\?"),
    (lambda: ulpscope.verify(), r"verify\(\) missing a required argument: 'model'$"),
    (lambda: ulpscope.verify("m.onnx", "a.json", xyzzy=1), r"verify\(\) got an unexpected .* 'xyzzy'$"),
])  # fmt: skip
def test_names_of_arguments(call, message):
    with pytest.raises(TypeError, match=r"ulpscope\." + message):
        call()


def test_an_unknown_metric_is_named_without_a_threshold(place, monkeypatch):
    monkeypatch.chdir(place)
    for threshold in (None, 0.1):
        with pytest.raises(ulpscope.Error, match="metric: expected one of rel-l2, .*, got 'mse'") as caught:
            ulpscope.search("m.onnx", "x.npz", metric="mse", threshold=threshold)
        assert str(caught.value).count(",") == 8, caught.value


@pytest.mark.parametrize("named", [np.float16, np.dtype("float16"), [np.float16], ("float16",), "FP16", ["fp16"]])
def test_precisions_are_named_or_types_of_numpy(place, monkeypatch, named):
    monkeypatch.chdir(place)
    call, given = CALLS["search"]
    answer = call(**{**given, "precisions": named})
    assert answer._native.precisions == ["fp16"]
    typed, report = ulpscope.convert("m.onnx", precision=named, data="x.npz")
    assert report.lowered > 0


@pytest.mark.parametrize(("named", "said"), [
    ([None], r"\[precisions\] expected precisions \('fp16', .*\) or types of NumPy, got None"),
    ([3], r"\[precisions\] expected precisions .*, got 3"),
    (None, r"precisions: expected a precision, or several, or types of NumPy, got None; try \['fp16'\]"),
    ([np.float64], "expected tf32, fp16, .*, got 'float64'"),
])  # fmt: skip
def test_what_names_no_precision(place, monkeypatch, named, said):
    monkeypatch.chdir(place)
    call, given = CALLS["search"]
    with pytest.raises(ulpscope.Error, match=said):
        call(**{**given, "precisions": named})


def test_an_answer_beside_other_precisions_is_refused(place, monkeypatch):
    """The file would be that of the answer, and nothing would say so."""
    monkeypatch.chdir(place)
    call, given = CALLS["search"]
    answer = call(**given)
    with pytest.raises(ulpscope.Error, match="lowers layers to fp16 and holds for that alone, got 'bf16' beside it"):
        ulpscope.convert("m.onnx", answer, precision="bf16", data="x.npz")
    assert ulpscope.convert("m.onnx", answer, precision=np.float16, data="x.npz")[1].lowered > 0


@pytest.mark.parametrize("function", ["search", "convert", "verify"])
def test_samples_that_lack_an_input_are_numbered(place, monkeypatch, function):
    monkeypatch.chdir(place)
    call, given = CALLS["search"]
    answer = call(**given)
    (name,) = np.load("x.npz").files
    samples = [{name: np.load("x.npz")[name][0]}, {}]
    calls = {
        "search": lambda: ulpscope.search("m.onnx", samples, precisions=["fp16"], progress=False),
        "convert": lambda: ulpscope.convert("m.onnx", answer, data=samples),
        "verify": lambda: ulpscope.verify("m.onnx", answer, samples),
    }
    with pytest.raises(ulpscope.Error, match=f"sample 1: Input tensor: {name} | Does not exist"):
        calls[function]()
