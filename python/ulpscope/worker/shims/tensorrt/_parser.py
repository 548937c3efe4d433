"""OnnxParser: the program reads the model and describes it."""

from __future__ import annotations

import os
from typing import Any, Dict, List

import numpy as np

from ._base import Object, bridge, flag_methods
from ._enums import OnnxParserFlag
from ._network import INetworkDefinition


class ParserError(Object):
    """Why a model was not read."""

    def __init__(self, text: str, error: Exception) -> None:
        self._text = text
        self._error = error

    def desc(self) -> str:
        return self._text

    def code(self) -> int:
        return 0

    def node(self) -> int:
        return -1

    def file(self) -> str:
        return ""

    def line(self) -> int:
        return 0

    def func(self) -> str:
        return ""

    def __str__(self) -> str:
        return self._text


class OnnxParser(Object):
    """Fills an empty network with an ONNX model."""

    flags: int = 1

    def __init__(self, network: INetworkDefinition, logger: Any = None) -> None:
        self._network = network
        self._errors: List[ParserError] = []

    def _fill(self, method: str, args: Dict[str, Any]) -> bool:
        if self._network.num_layers or self._network.num_inputs:
            raise RuntimeError("expected an empty network to read a model into, got one that has layers; create another network")
        self._network._load(bridge.ask(method, args))
        return True

    def parse_from_file(self, path: str) -> bool:
        """True; an unreadable model is an exception that says what is wrong."""
        return self._fill("import_path", {"path": os.fspath(path)})

    def parse(self, model: bytes, path: str = "") -> bool:
        return self._fill("import_bytes", {"data": np.frombuffer(model, np.uint8)})

    def parse_with_weight_descriptors(self, model: bytes) -> bool:
        return self.parse(model)

    def supports_model(self, model: bytes, path: str = "") -> Any:
        return True, []

    def supports_operator(self, op_name: str) -> bool:
        return True

    set_flag, clear_flag, get_flag = flag_methods("flags", OnnxParserFlag)

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        return self._errors[index]

    def clear_errors(self) -> None:
        self._errors.clear()
