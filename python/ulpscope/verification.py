"""Whether an answer holds on other data, and in other runtimes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Union

from .answer import Answer, Judgement, OutputError, as_answer
from .arguments import FilePath, checked
from .criterion import USUAL_METRIC, Metric, PerOutput, make_criterion
from .data import Arrays, Data, Source, outputs_of, samples_in, samples_of
from .errors import Error, ErrorCode, invalid_argument, warn
from .native import _core, assign
from .progress import Watcher, watched
from .worker.onnxruntime_backend import TYPES, open_session
from .worker.protocol import dtype_of

if TYPE_CHECKING:
    from .data import Model


@dataclass(frozen=True)
class Check:
    """The verdict on an answer."""

    passed: bool  #: Whether every output of every sample is within the tolerance.
    error: float  #: Of the runner, in the unit of the metric: the worst output and sample.
    predicted: float  #: The same of ulpscope's emulation of the answer, on the same samples.
    used: float  #: `error` as a share of the tolerance; infinite where values are not finite.
    per_output: dict[str, OutputError]  #: The worst sample of every output.
    problem: str  #: Why `used` is infinite, for people; else empty.
    runner: str
    samples: int
    #: Whose results the runner's are held against: "ulpscope", those of the runner in float32 by its name, or "given".
    golden: str
    #: By how much the runner's own float32 differs from ulpscope's, as a share of the tolerance; 0 where nobody looked.
    float32_used: float


@checked
def verify(
    model: Model,
    answer: Union[Answer, FilePath],
    data: Optional[Data] = None,
    runner: str = "ulpscope",
    *,
    golden: Optional[Data] = None,
    metric: Metric = USUAL_METRIC,
    threshold: Optional[PerOutput] = None,
    rtol: Optional[PerOutput] = None,
    atol: Optional[PerOutput] = None,
    progress: Watcher = None,
    threads: int = 0,
    backend: str = "cpu",
    memory_limit: int = 0,
) -> Check:
    """Judges the outputs of the answer's network on samples, by the tolerance of the search.

    model:   that of the answer: a path, bytes, or an onnx.ModelProto. answer: of ulpscope.search, or its file.
    data:    samples that the search has not seen; see ulpscope.Data. None: the files that the search read, with a
             warning; an Error where there are none.
    runner:  who runs it: "ulpscope" (the emulation), or the typed model in "onnxruntime" (CPU), "onnxruntime-cuda" or
             "tensorrt".
    golden:  exact outputs, one per sample. None: of the model in float32, on the same runner.
    metric, threshold, rtol, atol: instead of the tolerance of the search. threads: 0: one per core.
    progress: as in ulpscope.search: samples that were begun.
    backend: "cuda" runs the answer's network on the GPU; `predicted` is what the CPU says.
    memory_limit: as in ulpscope.Engine, of what ulpscope runs: other runners take what they need.

    Raises Error: INVALID_ARGUMENT for an answer of another model or without a tolerance, and samples that do not fit;
    NOT_FOUND for a runner that is not installed; UNSUPPORTED for one that refuses the typed model, or does not run it,
    with what it says. Ctrl-C: KeyboardInterrupt.

    >>> answer = ulpscope.search("model.onnx", samples, threshold=1e-2, objective="smallest", fusion="none")
    >>> check = ulpscope.verify("model.onnx", answer, fresh, runner="onnxruntime")
    >>> check.passed, check.error <= 1e-2, list(check.per_output)
    (True, True, ['y'])
    """
    if runner.startswith("onnxrt"):  # as the command line calls it
        runner = runner.replace("onnxrt", "onnxruntime", 1)
    if runner not in _RUNNERS:
        raise invalid_argument(f"[verify] runner: expected {', '.join(_RUNNERS)}, got {runner!r}")
    answer = as_answer(answer)
    options = answer._native.model_options()
    assign(options, threads=threads, memory_limit=memory_limit)
    source = Source(model)
    loaded = source.load(options)
    samples = samples_of(data, loaded) if data is not None else _samples_of_search(answer, loaded)
    exact = [] if golden is None else outputs_of(golden, loaded)
    criterion = make_criterion(metric, threshold, rtol, atol) or answer._criterion
    origin, float32_used = "ulpscope" if golden is None else "given", 0.0
    with watched(progress) as report:

        def judge(on: _core.Model, outputs: list[Arrays], exact: list[Arrays]) -> Judgement:
            return Judgement.from_dict(_core.verify(on, answer._native, samples, criterion, exact, outputs, report))

        predicted = judged = judge(loaded, [], exact)
        if backend != "cpu":
            options.backend = backend
            judged = judge(Source(model).load(options), [], exact)
        run = _RUNNERS[runner]
        if run is not None:
            # ONNX Runtime drops a Relu in front of a quantizer to fp8.
            left_out = ["ReluQuantRewrite"] if "fp8" in answer._values["precisions"] else []
            run_file = _with_errors(run(left_out), runner)
            with tempfile.TemporaryDirectory(prefix="ulpscope-") as folder:
                if golden is None:
                    try:
                        own = run_file(source.file_in(folder), f"'{source.name}'", samples)
                        float32_used = judge(loaded, own, []).used
                        origin, exact = runner, own
                    except Error as error:
                        warn(
                            "[verify] the model in float32 gives nothing to compare with on %s, so that its results "
                            "are held against ulpscope's: %s",
                            runner, error,
                        )  # fmt: skip
                path = os.path.join(folder, "typed.onnx")
                choice = _core.ConvertOptions()
                choice.answer = answer._native
                choice.verify = False
                _core.convert(loaded, path, samples, choice, report)
                outputs = run_file(path, f"the typed model of '{source.name}'", samples)
            judged = judge(loaded, outputs, exact)
    per_output = {each.output: each for each in judged.outputs}
    return Check(
        judged.passed, judged.error, predicted.error, judged.used, per_output, judged.problem, runner, len(samples),
        origin, float32_used,
    )  # fmt: skip


def _samples_of_search(answer: Answer, model: _core.Model) -> list[Arrays]:
    samples = samples_in(answer._native.inputs, model)
    if samples is None:
        raise invalid_argument(
            "[verify] data: expected samples, since the answer names no files of inputs that are there; "
            "try data=[{'INPUT': array}]"
        )
    warn(
        "[verify] The inputs are those of the search, since none were given: they say nothing about other data; "
        "try fresh ones as data"
    )
    return samples


_RunFile = Callable[[str, list[Arrays]], list[Arrays]]


def _missing(runner: str, what: str) -> Error:
    return Error(ErrorCode.NOT_FOUND, f"[verify] runner '{runner}': {what}")


def _with_errors(run: _RunFile, runner: str) -> Callable[[str, str, list[Arrays]], list[Arrays]]:
    """`run` for a file that messages name otherwise: whatever it raises is an Error that says what was run."""

    def call(path: str, model: str, samples: list[Arrays]) -> list[Arrays]:
        try:
            return run(path, samples)
        except Error:
            raise
        except Exception as error:  # Of other programs, which have no base in common.
            raise Error(
                ErrorCode.UNSUPPORTED,
                f"[verify] runner '{runner}': expected it to run {model}, got {type(error).__name__}: {error}; "
                "try another runner ('ulpscope' runs it), or another release of it; ulpscope.convert(..., out=FILE) "
                "writes the typed model",
            ) from error

    return call


def _onnxruntime(name: str, provider: str, left_out: list[str]) -> _RunFile:
    try:
        import onnxruntime
    except ImportError as error:
        raise _missing(name, "onnxruntime is not installed; try pip install onnxruntime") from error
    if provider not in onnxruntime.get_available_providers():
        raise _missing(name, f"this onnxruntime has no {provider}; try pip install onnxruntime-gpu")

    def run(path: str, samples: list[Arrays]) -> list[Arrays]:
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        session = open_session(onnxruntime, path, settings, [provider], left_out)
        if provider not in session.get_providers():
            raise _missing(name, f"{provider} does not start here; is there a GPU with its driver?")
        inputs = {each.name: each.type for each in session.get_inputs()}
        names = [each.name for each in session.get_outputs()]
        results: list[Arrays] = []
        for sample in samples:
            feed = {key: _as_type(sample[key], type_) for key, type_ in inputs.items()}
            results.append(dict(zip(names, session.run(names, feed))))
        return results

    return run


def _as_type(array: Any, type_: str) -> Any:
    return array.astype(dtype_of(TYPES[type_]), copy=False) if type_ in TYPES else array


def _tensorrt(_left_out: list[str]) -> _RunFile:
    try:
        import tensorrt  # noqa: F401
        from polygraphy.backend.trt import EngineFromNetwork, NetworkFromOnnxPath, TrtRunner
    except ImportError as error:
        raise _missing("tensorrt", f"{error}; try pip install tensorrt polygraphy, on a machine with a GPU") from error

    def run(path: str, samples: list[Arrays]) -> list[Arrays]:
        network = NetworkFromOnnxPath(path, strongly_typed=True)
        results: list[Arrays] = []
        with TrtRunner(EngineFromNetwork(network)) as active:
            for sample in samples:
                results.append({name: array.copy() for name, array in active.infer(dict(sample)).items()})
        return results

    return run


_RUNNERS: dict[str, Optional[Callable[[list[str]], _RunFile]]] = {
    "ulpscope": None,
    "onnxruntime": lambda left_out: _onnxruntime("onnxruntime", "CPUExecutionProvider", left_out),
    "onnxruntime-cuda": lambda left_out: _onnxruntime("onnxruntime-cuda", "CUDAExecutionProvider", left_out),
    "tensorrt": _tensorrt,
}
