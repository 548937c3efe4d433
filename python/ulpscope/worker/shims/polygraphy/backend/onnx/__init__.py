"""Loaders of ONNX models, where the Python package onnx is installed."""

from __future__ import annotations

from typing import Any, Iterable, Optional, Union

from ... import constants, util
from ...exception import PolygraphyException
from ..base import BaseLoader, immediate


class OnnxFromPath(BaseLoader):
    def __init__(self, path: str, external_data_dir: Optional[str] = None, ignore_external_data: bool = False) -> None:
        self._path, self._folder, self._ignore = path, external_data_dir, ignore_external_data

    def call_impl(self) -> Any:
        import onnx

        model = onnx.load(self._path, load_external_data=self._folder is None and not self._ignore)
        if self._folder is not None and not self._ignore:
            onnx.external_data_helper.load_external_data_for_model(model, self._folder)
        return model


class ModifyOutputs(BaseLoader):
    """Other outputs: names, or ``constants.MARK_ALL`` for all outputs of all nodes."""

    def __init__(
        self,
        model: Any,
        outputs: Union[str, Iterable[str], None] = None,
        exclude_outputs: Optional[Iterable[str]] = None,
        copy: bool = False,
    ) -> None:
        self._model, self._wanted, self._excluded, self._copy = model, outputs, list(exclude_outputs or []), copy

    def call_impl(self) -> Any:
        import onnx

        model, _ = util.invoke_if_callable(self._model)
        if self._copy:
            kept, model = model, onnx.ModelProto()
            model.CopyFrom(kept)
        graph = model.graph
        known = {info.name: info for info in [*graph.input, *graph.value_info, *graph.output]}
        made = [name for node in graph.node if node.op_type != "Constant" for name in node.output if name]
        if self._wanted is None:
            names = [info.name for info in graph.output]
        elif self._wanted == constants.MARK_ALL:
            names = made
        else:
            names = list(self._wanted)
            missing = [name for name in names if name not in made and name not in known]
            if missing:
                raise PolygraphyException(f"The following outputs were not found: {missing}.\nNote: Available tensors: {made}")
        infos = [known.get(name) or onnx.ValueInfoProto(name=name) for name in names if name not in self._excluded]
        del graph.output[:]
        graph.output.extend(infos)
        return model


class BytesFromOnnx(BaseLoader):
    def __init__(self, model: Any) -> None:
        self._model = model

    def call_impl(self) -> bytes:
        content: bytes = util.invoke_if_callable(self._model)[0].SerializeToString()
        return content


class SaveOnnx(BaseLoader):
    def __init__(self, model: Any, path: str, **kwargs: Any) -> None:
        self._model, self._path = model, path

    def call_impl(self) -> Any:
        import onnx

        model, _ = util.invoke_if_callable(self._model)
        onnx.save(model, self._path)
        return model


class GsFromOnnx(BaseLoader):
    def __init__(self, model: Any) -> None:
        self._model = model

    def call_impl(self) -> Any:
        import onnx_graphsurgeon as gs

        return gs.import_onnx(util.invoke_if_callable(self._model)[0])


class OnnxFromGs(BaseLoader):
    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def call_impl(self) -> Any:
        import onnx_graphsurgeon as gs

        return gs.export_onnx(util.invoke_if_callable(self._graph)[0])


onnx_from_path = immediate(OnnxFromPath)
bytes_from_onnx = immediate(BytesFromOnnx)
save_onnx = immediate(SaveOnnx)
modify_outputs = immediate(ModifyOutputs)
gs_from_onnx = immediate(GsFromOnnx)
onnx_from_gs = immediate(OnnxFromGs)
