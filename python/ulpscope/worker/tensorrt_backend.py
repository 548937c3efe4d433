"""A real TensorRT (``--trt-backend tensorrt``): builds an engine from an ONNX file and runs it.

Written against NVIDIA's documentation for releases 8.6 to 11 and not run on a GPU by us. Releases 8.6 to 10 build weakly
typed networks with layer precisions; 11 has strongly typed networks only and refuses precision options.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Dict, List, Optional

import numpy as np

from .cuda_memory import Buffer, open_runtime
from .errors import WorkerError
from .handles import Handles
from .protocol import dtype_of

_engines = Handles()
_DEFAULT_STREAM = 0  # of CUDA

_TYPE_NAMES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BF16", "int8": "INT8", "int32": "INT32", "int64": "INT64", "bool": "BOOL",
               "fp8": "FP8", "uint8": "UINT8"}  # fmt: skip
_NAMES_OF_TYPES = {value: key for key, value in _TYPE_NAMES.items()}


def _tensorrt() -> Any:
    try:
        import tensorrt
    except ImportError as error:
        raise _refusal(str(error)) from error
    if getattr(tensorrt, "__ulpscope__", False):
        raise _refusal("only ulpscope's own stand-in is there")
    return tensorrt


def _refusal(reason: str) -> WorkerError:
    return WorkerError(
        "not_found",
        f"[tensorrt] --trt-backend tensorrt: expected NVIDIA's Python package tensorrt, got none in '{sys.executable}' ({reason}); try "
        f"'{sys.executable} -m pip install tensorrt' on a machine with an NVIDIA GPU, or leave the option out to use ulpscope's engine",
    )


def _major(trt: Any) -> int:
    return int(trt.__version__.split(".")[0])


def _flag(trt: Any, kind: str, name: str) -> Any:
    value = getattr(getattr(trt, kind), name, None)
    if value is None:
        raise WorkerError("unsupported", f"[tensorrt] TensorRT {trt.__version__} has no {kind}.{name}")
    return value


def _parse(trt: Any, builder: Any, path: str, strongly_typed: bool, logger: Any) -> Any:
    flags = 0
    if _major(trt) < 10:
        flags |= 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
    if strongly_typed and _major(trt) < 11:
        flags |= 1 << int(_flag(trt, "NetworkDefinitionCreationFlag", "STRONGLY_TYPED"))
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(path):
        errors = "; ".join(str(parser.get_error(index)) for index in range(parser.num_errors))
        raise WorkerError("invalid_file", f"[tensorrt] {path}: TensorRT's parser refuses the model: {errors}")
    return network, parser


def _configure(trt: Any, builder: Any, network: Any, precisions: List[str], constraints: str, profile: List[Any]) -> Any:
    config = builder.create_builder_config()
    if _major(trt) < 11:
        config.clear_flag(trt.BuilderFlag.TF32)
        for name in precisions:
            config.set_flag(_flag(trt, "BuilderFlag", name.upper()))
        if constraints in ("obey", "prefer"):
            config.set_flag(_flag(trt, "BuilderFlag", constraints.upper() + "_PRECISION_CONSTRAINTS"))
    elif "tf32" in precisions:
        config.set_flag(_flag(trt, "BuilderFlag", "TF32"))
    shapes = {entry["input"]: (entry["min"], entry["opt"], entry["max"]) for entry in profile}
    optimization = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        fixed = [1 if dim < 0 else dim for dim in tensor.shape]
        optimization.set_shape(tensor.name, *shapes.get(tensor.name, (fixed, fixed, fixed)))
    config.add_optimization_profile(optimization)
    return config


def _set_precisions(trt: Any, network: Any, layer_precisions: Dict[str, str]) -> List[str]:
    layers = {network.get_layer(index).name: network.get_layer(index) for index in range(network.num_layers)}
    unknown = []
    for name, precision in layer_precisions.items():
        if name not in layers:
            unknown.append(name)
        else:
            layers[name].precision = getattr(trt.DataType, _TYPE_NAMES[precision])
    return unknown


def tensorrt_open(
    server: Any,
    path: str,
    precisions: List[str],
    strongly_typed: bool = False,
    constraints: str = "none",
    layer_precisions: Optional[Dict[str, str]] = None,
    profile: Optional[List[Any]] = None,
    save_engine: str = "",
) -> Dict[str, Any]:
    """Builds an engine: its handle, inputs and outputs."""
    trt = _tensorrt()
    if not os.path.isfile(path):
        raise WorkerError("not_found", f"[tensorrt] {path}: expected an ONNX model, got no such file")
    reduced = [name for name in precisions if name != "tf32"]
    if _major(trt) >= 11 and (reduced or layer_precisions):
        raise WorkerError(
            "unsupported",
            f"[tensorrt] TensorRT {trt.__version__} has strongly typed networks only: precisions are written into the model; leave out "
            f"{', '.join('--' + name for name in reduced) or '--layer-precisions'}",
        )
    logger = trt.Logger(trt.Logger.WARNING)
    trt.init_libnvinfer_plugins(logger, "")
    builder = trt.Builder(logger)
    network, parser = _parse(trt, builder, path, strongly_typed, logger)
    config = _configure(trt, builder, network, precisions, constraints, profile or [])
    unknown = _set_precisions(trt, network, layer_precisions or {})
    plan = builder.build_serialized_network(network, config)
    del parser
    if plan is None:
        raise WorkerError("build", f"[tensorrt] {path}: TensorRT found no engine; its messages are above")
    if save_engine:
        with open(save_engine, "wb") as file:
            file.write(plan)
    runtime = trt.Runtime(logger)
    engine = runtime.deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    inputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
    outputs = [name for name in names if name not in inputs]
    state = {
        "runtime": runtime, "engine": engine, "context": context, "inputs": inputs, "outputs": outputs,
        "memory": open_runtime(),
    }  # fmt: skip

    def describe(name: str) -> Dict[str, Any]:
        return {"name": name, "dtype": _type_of(engine, name), "shape": [int(dim) for dim in engine.get_tensor_shape(name)]}

    return {
        "handle": _engines.add(state), "version": trt.__version__, "unknown_layers": unknown,
        "inputs": [describe(name) for name in inputs], "outputs": [describe(name) for name in outputs],
    }  # fmt: skip


def _type_of(engine: Any, name: str) -> str:
    return _NAMES_OF_TYPES[engine.get_tensor_dtype(name).name]


def tensorrt_run(server: Any, handle: int, inputs: List[Any]) -> Dict[str, Any]:
    """One inference: the outputs in the engine's order and the seconds it took, without copies."""
    state = _engines[handle]
    engine, context, memory = state["engine"], state["context"], state["memory"]
    buffers: Dict[str, Buffer] = {}
    feeds = dict(inputs)
    for name in state["inputs"]:
        array = np.ascontiguousarray(feeds[name])
        if not context.set_input_shape(name, array.shape):
            raise WorkerError("invalid_argument", f"[tensorrt] input '{name}': the engine has no profile for shape {array.shape}")
        buffers[name] = Buffer(memory, array.nbytes)
        buffers[name].upload(array)
    arrays: Dict[str, np.ndarray] = {}
    for name in state["outputs"]:
        shape = tuple(context.get_tensor_shape(name))
        if any(dim < 0 for dim in shape):
            raise WorkerError("unsupported", f"[tensorrt] output '{name}' has a shape that depends on values")
        arrays[name] = np.empty(shape, dtype_of(_type_of(engine, name)))
        buffers[name] = Buffer(memory, arrays[name].nbytes)
    for name, buffer in buffers.items():
        context.set_tensor_address(name, buffer.pointer)
    memory.stream_synchronize(_DEFAULT_STREAM)
    begin = time.perf_counter()
    if not context.execute_async_v3(_DEFAULT_STREAM):
        raise WorkerError("unsupported", "[tensorrt] the engine could not be run; its messages are above")
    memory.stream_synchronize(_DEFAULT_STREAM)
    seconds = time.perf_counter() - begin
    for name in state["outputs"]:
        buffers[name].download(arrays[name])
    return {"outputs": [[name, arrays[name]] for name in state["outputs"]], "seconds": seconds}


def tensorrt_close(server: Any, handle: int) -> None:
    """Frees an engine."""
    _engines.pop(handle, None)
