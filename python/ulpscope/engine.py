"""Runs ONNX models with the precisions of a GPU, emulated exactly."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, List, Iterable, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from .arguments import FilePath, Precision, checked, shown
from .data import Source, precisions_of
from .device import BoundRun, is_dlpack, is_on_device, stream_finder, stream_of
from .errors import invalid_argument
from .native import _core, assign

if TYPE_CHECKING:
    from .answer import Answer
    from .calibration import Calibration
    from .data import Model


class TensorSpec(NamedTuple):
    """An input or output of a model."""

    name: str
    dtype: np.dtype[Any]
    shape: Optional[Tuple[int, ...]]  #: None: not even the rank is known; -1 is a dynamic dimension.


def _specs(specs: Iterable[_core.Spec]) -> Tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, dtype, None if shape is None else tuple(shape)) for name, dtype, shape in specs)


class Layer(NamedTuple):
    """What became of a layer."""

    name: str
    op: str
    precision: str  #: "fp32", "tf32", "fp16", "bf16"; the type of its output if it does not compute in floats.
    reason: str  #: Why it does.
    nodes: List[str]  #: The ONNX nodes that it came from.


def _array(value: Any, spec: TensorSpec, where: str) -> np.ndarray[Any, Any]:
    try:
        if value is not None:
            return np.asarray(value, dtype=spec.dtype)
    except (TypeError, ValueError, OverflowError):
        pass
    raise invalid_argument(
        f"[run] {where}input '{spec.name}': expected an array of {spec.dtype.name}, or numbers, got {shown(value)}"
    )


def _typed(value: Any, spec: TensorSpec, where: str) -> Any:
    return value if is_dlpack(value) or isinstance(value, (np.ndarray, np.generic)) else _array(value, spec, where)


def _scales_of(calibration: Optional[Union[Calibration, Mapping[str, float], FilePath]]) -> Dict[str, float]:
    if isinstance(calibration, (str, os.PathLike)):
        from .calibration import Calibration  # Late, as few engines have one.

        calibration = Calibration.load(calibration)
    return {name: float(scale) for name, scale in (calibration or {}).items()}


class Engine:
    """A model that is ready to run.

    model:            a path, the bytes of a serialized model, or an onnx.ModelProto.
    answer:           of ulpscope.search (or its file), for this model: its precisions, layers, repairs, int8 scales and fusion. The results
                      are those of `ulpscope run` with the words of the answer, bit for bit.
    precision:        without an answer: what layers compute in: "fp32", "tf32", "fp16" or "bf16". Anything but "fp32" is taken wherever a
                      layer has such a form ("lowest everywhere"), however small the gain.
    layer_precisions: layers that differ, {name: "float32", "float16", "bfloat16", "int8", "fp8", "int4-64", ...}: by
                      the name of a layer, else by ONNX node, operator or pattern. Obeyed, or the build fails. Scales of
                      blocks are those of the largest weights.
    calibration:      scales of what layers in int8, fp8 and nvfp4 read: of ulpscope.calibrate, {tensor: scale}, or a
                      calibration cache. Formats for weights alone, mxfp8 and mxfp4 need none.
    fusion:           which neighboring layers become one group, in which nothing is rounded: "none", "pointwise" or
                      "full".
    accumulation:     what products of fp16 and bf16 are added up in: "fp32", or as a Hopper GPU does, which is slow:
                      "hopper", "hopper-fast".
    attention:        what the second product of an attention in one group reads: "normalized", its probabilities, or
                      "flash": exponentials, by the sum of which the results are divided, as flash attention on
                      GPUs does.
    threads:          0: one per core. Results are bitwise the same for every number.
    backend:          who computes: "cpu", or "cuda": an NVIDIA GPU of sm_80 or later.
    memory_limit:     bytes of tensors and prepared weights that are held at a time, as far as one layer allows; 0: no limit. Weights
                      give way and are prepared again: slower, with the same results.

    Raises ulpscope.Error: for a file that is missing, malformed or has an unknown operator; for an unknown layer or
    option; for a precision that cannot be obeyed; for an answer of another model, or with other options.

    >>> engine = ulpscope.Engine("model.onnx", precision="fp16", layer_precisions={"Add": "float32"})
    >>> engine.run(samples[0])["y"].shape
    (1, 8)
    """

    @checked
    def __init__(
        self,
        model: Model,
        *,
        answer: Optional[Union[Answer, FilePath]] = None,
        precision: Optional[Precision] = None,
        layer_precisions: Optional[Mapping[str, str]] = None,
        calibration: Optional[Union[Calibration, Mapping[str, float], FilePath]] = None,
        fusion: Optional[str] = None,
        accumulation: Optional[str] = None,
        attention: Optional[str] = None,
        threads: int = 0,
        backend: str = "cpu",
        memory_limit: int = 0,
    ) -> None:
        source = Source(model)
        self._where = "" if source.path is None else f"{source.path}: "  # In front of messages.
        if answer is not None:
            said = (precision, layer_precisions, calibration, fusion, accumulation, attention)
            if any(each is not None for each in said):
                raise invalid_argument(
                    "[engine] answer: it says the precisions, layers, scales, fusion, accumulation and attention; "
                    "expected no others beside it"
                )
            from .answer import as_answer

            answer = as_answer(answer)
            options = answer._native.model_options()
            assign(options, threads=threads, backend=backend, memory_limit=memory_limit)
            self._engine = _core.Engine.from_answer(source.load(options), answer._native)
        else:
            given = _core.EngineOptions()
            assign(
                given, precision="fp32" if precision is None else precisions_of(precision, "precision")[0],
                layer_precisions=dict(layer_precisions or {}), scales=_scales_of(calibration),
                fusion="full" if fusion is None else fusion,
                accumulation="fp32" if accumulation is None else accumulation,
                attention="normalized" if attention is None else attention,
                threads=threads, backend=backend, memory_limit=memory_limit,
            )  # fmt: skip
            if source.path is None:
                self._engine = _core.Engine.from_bytes(source.bytes, given)
            else:
                self._engine = _core.Engine.from_file(source.path, given)
        self._inputs = _specs(self._engine.inputs())
        self._outputs = _specs(self._engine.outputs())
        self._defaults = _specs(self._engine.defaults())

    @property
    def inputs(self) -> Tuple[TensorSpec, ...]:
        """The inputs, in the model's order."""
        return self._inputs

    @property
    def outputs(self) -> Tuple[TensorSpec, ...]:
        """The outputs, in the model's order."""
        return self._outputs

    @property
    def defaults(self) -> Tuple[TensorSpec, ...]:
        """Initializers that are inputs of the model's graph, too: `run` takes other values for them, by name."""
        return self._defaults

    @property
    def layers(self) -> List[Layer]:
        """The layers in the order of execution, with their precisions."""
        return [Layer(*layer) for layer in self._engine.layers()]

    def run(
        self,
        inputs: Union[Mapping[str, Any], Sequence[Any]],
        outputs: Union[str, Mapping[str, Any]] = "host",
        stream: Any = None,
    ) -> Dict[str, Any]:
        """One inference: {output name: array}.

        inputs:  {name: array}, or arrays in the model's order. Arrays must have exactly the model's types; numbers and
                 lists are converted. bfloat16 is that of ml_dtypes. Those of `defaults` may be among them, by name; the
                 first run that gives others than the runs before takes longer, since the engine is prepared for it.
                 Tensors of DLPack (torch, CuPy, JAX), row-major, are read where they are: on the CPU or, with the
                 backend "cuda", on its device.
        outputs: "host": NumPy arrays. "device": an ulpscope.DeviceTensor each, on the engine's device, for from_dlpack
                 of torch, CuPy, JAX and NumPy. {name: tensor}: the results go into these tensors of DLPack, which are
                 on the engine's device and share memory with nothing else.
        stream:  of CUDA, for tensors on a device: the run begins when what it has is done, and what it gets behind the
                 run begins when that is done; nobody waits. A stream of torch or CuPy, one with __cuda_stream__, or its
                 handle. None: torch's or CuPy's current one where tensors are theirs, else CUDA's default stream.

        Raises ulpscope.Error naming the input or output that does not fit.
        """
        values = self._ordered(inputs)
        on_host = isinstance(outputs, str) and outputs == "host"
        if not on_host or any(map(is_on_device, inputs.values() if isinstance(inputs, Mapping) else values)):
            return self._run_on_device(inputs, values, outputs, stream)
        if stream is not None:
            stream_of(stream, (), self._where)  # Nobody's here, but it has to be one.
        typed = [_typed(value, spec, self._where) for value, spec in zip(values, self._inputs)]
        results = self._engine.run(typed + values[len(typed) :], self._given(inputs))
        return {spec.name: array for spec, array in zip(self._outputs, results)}

    def bind(
        self,
        inputs: Union[Mapping[str, Any], Sequence[Any]],
        outputs: Optional[Mapping[str, Any]] = None,
        stream: Any = None,
    ) -> BoundRun:
        """Runs between fixed tensors: `bound.run()` reads what is in the inputs then, and writes the outputs, on a
        device as one recorded graph. It keeps the tensors.

        inputs:  as of `run`: tensors of DLPack or arrays, which the caller may fill again between the runs.
        outputs: {name: tensor} as of `run`; None: the engine makes them, in `bound.outputs`. On the CPU it runs once
                 for that.
        stream:  as of `run`, for what is done here.

        Raises ulpscope.Error as `run` does.

        >>> bound = ulpscope.Engine("model.onnx").bind(samples[0])  # or tensors of torch
        >>> bound.run()["y"].shape
        (1, 8)
        """
        named = self._named(inputs, self._ordered(inputs))
        return BoundRun(self._engine, named, {} if outputs is None else self._tensors(outputs), stream, self._where)

    def _run_on_device(self, inputs: Any, values: List[Any], outputs: Any, stream: Any) -> Dict[str, Any]:
        named = self._named(inputs, values)
        if isinstance(outputs, Mapping):
            return BoundRun(self._engine, named, self._tensors(outputs), stream, self._where).run(stream)
        if not isinstance(outputs, str) or outputs not in ("host", "device"):
            raise invalid_argument(
                f"[run] {self._where}outputs: expected 'host', 'device' or tensors by name, got {shown(outputs)}"
            )
        results = _core.run_on_device(self._engine, named, stream_finder(stream, self._where))
        ordered = {spec.name: results[spec.name] for spec in self._outputs}
        return ordered if outputs == "device" else {name: tensor.numpy() for name, tensor in ordered.items()}

    def _given(self, inputs: Any) -> Dict[str, Any]:
        """The values of `defaults` among the inputs."""
        return {
            spec.name: _typed(inputs[spec.name], spec, self._where)
            for spec in self._defaults
            if isinstance(inputs, Mapping) and spec.name in inputs
        }

    def _named(self, inputs: Any, values: List[Any]) -> Dict[str, Any]:
        if len(values) != len(self._inputs):
            raise invalid_argument(f"[run] {self._where}expected {len(self._inputs)} inputs, got {len(values)}")
        typed = {spec.name: _typed(value, spec, self._where) for spec, value in zip(self._inputs, values)}
        return {**typed, **self._given(inputs)}

    def _tensors(self, outputs: Mapping[str, Any]) -> Mapping[str, Any]:
        if not isinstance(outputs, Mapping):
            raise invalid_argument(f"[run] {self._where}outputs: expected tensors by name, got {shown(outputs)}")
        for name, tensor in outputs.items():
            if not hasattr(tensor, "__dlpack__"):
                raise invalid_argument(
                    f"[run] {self._where}output '{name}': expected a tensor with __dlpack__, got {shown(tensor)}"
                )
        if not outputs:
            names = ", ".join(repr(spec.name) for spec in self._outputs)
            raise invalid_argument(f"[run] {self._where}outputs: expected {names}, got none")
        return outputs

    @checked
    def device_microseconds(self, shapes: Sequence[Sequence[int]]) -> Optional[float]:
        """Microseconds of one run on the device for inputs of these shapes (in the model's order), which are there already:
        the least of several. None on the CPU, and where the CPU computes in between."""
        return self._engine.device_microseconds([list(shape) for shape in shapes])

    def _ordered(self, inputs: Union[Mapping[str, Any], Sequence[Any]]) -> List[Any]:
        names = [spec.name for spec in self._inputs]
        if not isinstance(inputs, Mapping):
            if not isinstance(inputs, Iterable) or isinstance(inputs, (str, bytes, np.ndarray)):
                example = ", ".join(f"{name!r}: array" for name in names)
                raise invalid_argument(
                    f"[run] {self._where}inputs: expected arrays by name, or in the model's order, got "
                    f"{shown(inputs)}; try {{{example}}}"
                )
            return list(inputs)
        if set(names) != set(inputs) - {spec.name for spec in self._defaults}:
            raise invalid_argument(
                f"[run] {self._where}inputs: expected {', '.join(map(repr, names))}, "
                f"got {', '.join(map(repr, inputs)) or 'none'}"
            )
        return [inputs[name] for name in names]

    def __repr__(self) -> str:
        return (
            f"<ulpscope.Engine inputs={[spec.name for spec in self._inputs]} outputs={[s.name for s in self._outputs]}>"
        )
