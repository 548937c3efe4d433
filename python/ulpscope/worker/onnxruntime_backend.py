"""ONNX Runtime sessions."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional

import numpy as np

from .errors import WorkerError, missing_package, package
from .handles import Handles

_sessions = Handles()

TYPES = {  #: ulpscope's names of types, by those of ONNX Runtime.
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16", "tensor(bfloat16)": "bfloat16",
    "tensor(int8)": "int8", "tensor(uint8)": "uint8", "tensor(int16)": "int16", "tensor(uint16)": "uint16", "tensor(int32)": "int32",
    "tensor(uint32)": "uint32", "tensor(int64)": "int64", "tensor(uint64)": "uint64", "tensor(bool)": "bool",
}  # fmt: skip


def _onnxruntime(purpose: str = "for --onnxrt") -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        if getattr(error, "name", None) not in (None, "onnxruntime"):
            raise missing_package(str(error.name), "for ONNX Runtime") from error
        raise missing_package("onnxruntime", purpose) from error
    return onnxruntime


def find_providers(wanted: List[str], available: List[str]) -> List[str]:
    """Full names of providers from parts of names, in any case."""
    result: List[str] = []
    for part in wanted or ["cpu"]:
        exact = [name for name in available if name.lower() in (part.lower(), part.lower() + "executionprovider")]
        found = exact or [name for name in available if part.lower() in name.lower()]
        if not found:
            hint = "; try pip install onnxruntime-gpu" if part.lower() in "cudaexecutionprovider" else ""
            raise WorkerError(
                "invalid_argument", f"[onnxrt] providers: expected part of one of {', '.join(available)}, got '{part}'{hint}"
            )
        if found[0] not in result:
            result.append(found[0])
    return result


def _bindings(values: Any) -> List[Dict[str, Any]]:
    result = []
    for value in values:
        if value.type not in TYPES:
            raise WorkerError("unsupported", f"[onnxrt] '{value.name}': expected a tensor of numbers or bools, got {value.type}")
        shape = [dim if isinstance(dim, int) and dim >= 0 else -1 for dim in value.shape]
        result.append({"name": value.name, "dtype": TYPES[value.type], "shape": shape})
    return result


def _with_tensor_outputs(source: Any) -> bytes:
    """The model with the tensors that go into sequences and maps instead of these, and without strings: what the
    importer of ulpscope takes for the outputs."""
    onnx = package("onnx", "for outputs that are sequences or maps")
    model = onnx.load_model_from_string(source) if isinstance(source, bytes) else onnx.load(source, load_external_data=False)
    producer = {output: node for node in model.graph.node for output in node.output if output}

    def tensors(name: str) -> List[str]:
        node = producer.get(name)
        if node is None:
            return []
        if node.op_type in ("ZipMap", "SplitToSequence"):
            return [node.input[0]]
        if node.op_type == "SequenceConstruct":
            return list(node.input)
        if node.op_type == "SequenceInsert" and len(node.input) == 2:
            return [*tensors(node.input[0]), node.input[1]]
        return tensors(node.input[0]) if node.op_type == "Identity" else []

    kept, made = [], []
    for output in model.graph.output:
        is_tensor = output.type.HasField("tensor_type") and output.type.tensor_type.elem_type != onnx.TensorProto.STRING
        if is_tensor or not output.type.WhichOneof("value"):
            kept.append(output)
        else:
            made += tensors(output.name)
    names = {output.name for output in kept}
    kept += [onnx.helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(made) if name not in names]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    return bytes(model.SerializeToString())


def onnxruntime_operators(server: Any) -> List[str]:
    """"domain::name" of every operator that ONNX Runtime has a definition of; "" is the domain ai.onnx."""
    _onnxruntime("for operators that ulpscope does not have")
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return sorted({f"{schema.domain}::{schema.name}" for schema in state.get_all_operator_schema()})


def open_session(ort: Any, source: Any, options: Any, providers: List[str], left_out: List[str]) -> Any:
    """ONNX Runtime 1.31 makes integer products of float8 ones, and refuses what it made: those it then leaves alone.

    left_out: names of optimizations that are not done.
    """
    try:
        return ort.InferenceSession(source, options, providers=providers, disabled_optimizers=left_out)
    except Exception as error:  # noqa: BLE001 - as below
        if "float8" not in str(error):
            raise
        return ort.InferenceSession(
            source, options, providers=providers, disabled_optimizers=[*left_out, "QDQSelectorActionTransformer"]
        )


def onnxruntime_open(
    server: Any,
    path: str = "",
    model: Optional[np.ndarray] = None,
    external_data_dir: str = "",
    providers: Optional[List[str]] = None,
    threads: int = 0,
    optimize: bool = True,
    left_out: Optional[List[str]] = None,
) -> Dict[str, Any]:
    """A session for a model by path, or by bytes (then `path` is for messages): its handle, inputs and outputs.

    left_out: names of optimizations that are not done.
    """
    ort = _onnxruntime()
    if model is None and not os.path.isfile(path):
        raise WorkerError("not_found", f"[onnxrt] {path}: expected an ONNX model, got no such file")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if threads:
        options.intra_op_num_threads = int(threads)
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    source: Any = path if model is None else bytes(model)
    if isinstance(source, bytes) and external_data_dir:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.path.abspath(external_data_dir))
    chosen = find_providers(providers or [], ort.get_available_providers())
    try:
        session = open_session(ort, source, options, chosen, left_out or [])
        if any(value.type not in TYPES for value in session.get_outputs()):
            if not isinstance(source, bytes):
                folder = external_data_dir or os.path.dirname(os.path.abspath(source))
                options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
            session = open_session(ort, _with_tensor_outputs(source), options, chosen, left_out or [])
    except WorkerError:
        raise
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions have no common base
        # It knows some operators of other runtimes by name alone.
        no_kernel = "NOT_IMPLEMENTED" in str(error)
        newer = "only *guarantees* support" in str(error)  # than it, an opset.
        hint = (
            "; what is ahead of it can be run: try --trt-outputs or --onnx-outputs with names of tensors there"
            if no_kernel
            else ""
        )
        raise WorkerError(
            "unsupported" if no_kernel or newer else "invalid_file",
            f"[onnxrt] {path or 'model'}: ONNX Runtime refuses the model: {error}{hint}",
        ) from None
    result = {
        "inputs": _bindings(session.get_inputs()),
        "defaults": _bindings(session.get_overridable_initializers()),
        "outputs": _bindings(session.get_outputs()),
        "providers": session.get_providers(),
    }
    return {"handle": _sessions.add(session), "version": ort.__version__, **result}


def onnxruntime_run(server: Any, handle: int, inputs: List[Any]) -> Dict[str, Any]:
    """One inference: the outputs in the model's order and the seconds it took."""
    ort = _onnxruntime()
    session = _sessions[handle]
    known = [*session.get_inputs(), *session.get_overridable_initializers()]
    types = {value.name: TYPES[value.type] for value in known}
    feeds = {name: _ort_value(ort, array, types.get(name, "")) for name, array in inputs}
    names = [value.name for value in session.get_outputs()]
    try:
        begin = time.perf_counter()
        values = session.run_with_ort_values(names, feeds)
        seconds = time.perf_counter() - begin
        outputs = [_array(value) for value in values]
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions have no common base
        raise WorkerError("invalid_argument", f"[onnxrt] inference: {error}") from None
    return {"outputs": [[name, array] for name, array in zip(names, outputs)], "seconds": seconds}


def _ort_value(ort: Any, array: np.ndarray, type_name: str) -> Any:
    array = np.ascontiguousarray(array).reshape(array.shape)
    if type_name == "bfloat16":
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), 16)
    return ort.OrtValue.ortvalue_from_numpy(array)


def _array(value: Any) -> np.ndarray:
    if value.data_type() != "tensor(bfloat16)":
        array: np.ndarray = value.numpy()
        return array
    from .protocol import dtype_of

    raw = np.frombuffer(bytes(_buffer(value)), np.uint16).reshape(value.shape())
    return raw.view(dtype_of("bfloat16"))


def _buffer(value: Any) -> Any:
    import ctypes

    size = 2 * int(np.prod(value.shape(), dtype=np.int64))
    return (ctypes.c_char * size).from_address(value.data_ptr())


def onnxruntime_close(server: Any, handle: int) -> None:
    """Frees a session."""
    _sessions.pop(handle, None)
