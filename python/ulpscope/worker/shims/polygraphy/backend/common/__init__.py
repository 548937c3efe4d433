"""Loaders of bytes and of other scripts."""

from __future__ import annotations

from typing import Any, Optional

from ... import mod, util
from ..base import BaseLoader, immediate


class BytesFromPath(BaseLoader):
    def __init__(self, path: str) -> None:
        self._path = path

    def call_impl(self) -> bytes:
        content: bytes = util.load_file(self._path)
        return content


class SaveBytes(BaseLoader):
    def __init__(self, obj: Any, path: str) -> None:
        self._bytes, self._path = obj, path

    def call_impl(self) -> bytes:
        content: bytes = util.invoke_if_callable(self._bytes)[0]
        util.save_file(content, self._path)
        return content


class InvokeFromScript(BaseLoader):
    def __init__(self, path: str, name: Optional[str] = None) -> None:
        self._path, self._name = path, name

    def call_impl(self, *args: Any, **kwargs: Any) -> Any:
        path, name = self._path, self._name
        if name is None:
            path, _, name = path.rpartition(":")
        return mod.import_from_script(path, name)(*args, **kwargs)


bytes_from_path = immediate(BytesFromPath)
save_bytes = immediate(SaveBytes)


def invoke_from_script(path: str, name: Optional[str] = None, *args: Any, **kwargs: Any) -> Any:
    return InvokeFromScript(path, name)(*args, **kwargs)
