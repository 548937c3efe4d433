"""Tensors whose class gives them without Python (DLPack 1.3, `__dlpack_c_exchange_api__`), made with ctypes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from onnx import helper

import networks
import ulpscope
from dlpack_support import Tensor, new_capsule

GIVE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
LOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
STREAM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
DELETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("delete", DELETE),
        ("flags", ctypes.c_uint64), ("tensor", Tensor),
    ]  # fmt: skip


class Exchange(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("earlier", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p), ("give", GIVE), ("take", ctypes.c_void_p), ("look", LOOK), ("stream", STREAM),
    ]  # fmt: skip


class Offering:
    """Counts who asks for it. `code`: what its class's function returns; others than 0 mean that it refuses."""

    code = 0

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.given, self.deleted, self.asked = values, 0, 0, 0
        self._kept: list[Any] = []

    def tensor(self) -> Tensor:
        shape = (ctypes.c_int64 * self.values.ndim)(*self.values.shape)
        self._kept.append(shape)
        return Tensor(self.values.ctypes.data, 1, 0, self.values.ndim, 2, 32, 1, shape, None, 0)

    def __dlpack__(self, **options: Any) -> Any:
        self.asked += 1
        return self.values.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@GIVE
def give(one: Any, to: Any) -> int:
    if type(one).code != 0:
        return type(one).code

    def delete(_: Any) -> None:
        one.deleted += 1

    managed = Managed(1, 3, None, DELETE(delete), 0, one.tensor())
    one._kept.append(managed)
    one.given += 1
    to[0] = ctypes.addressof(managed)
    return 0


@LOOK
def look(one: Any, to: Any) -> int:
    tensor = one.tensor()
    ctypes.memmove(to, ctypes.addressof(tensor), ctypes.sizeof(Tensor))
    return 0


@STREAM
def stream(kind: int, device: int, to: Any) -> int:
    return -1


def offering(major: int = 1, earlier: Exchange | None = None, code: int = 0) -> type[Offering]:
    """A class of its own each time, with what it offers."""
    exchange = Exchange(
        major, 3, None if earlier is None else ctypes.addressof(earlier), None, give, None, look, stream
    )
    name = b"dlpack_exchange_api"
    capsule = new_capsule(ctypes.addressof(exchange), name, None)
    kept = (exchange, earlier, name)
    return type("One", (Offering,), {"__dlpack_c_exchange_api__": capsule, "kept": kept, "code": code})


@pytest.fixture
def engine(tmp_path):
    path = tmp_path / "relu.onnx"
    path.write_bytes(networks.model_of([helper.make_node("Relu", ["x"], ["z"])], {"x": values()}))
    return ulpscope.Engine(path)


def ran(engine: ulpscope.Engine, one: Offering) -> None:
    for _ in range(3):  # The class is known from the second time on.
        one.values[:] = np.random.default_rng(one.given + one.asked).standard_normal((2, 3))
        result = engine.run({"x": one}, outputs="device")["z"]
        np.testing.assert_array_equal(np.from_dlpack(result), np.maximum(one.values, 0))


def values() -> np.ndarray:
    return np.zeros((2, 3), np.float32)


def test_its_class_gives_it_and_gets_it_back(engine):
    one = offering()(values())
    ran(engine, one)
    assert (one.given, one.deleted, one.asked) == (3, 3, 0)


def test_an_earlier_version_of_what_is_offered_serves(engine):
    earlier = Exchange(1, 3, None, None, give, None, look, stream)
    one = offering(major=2, earlier=earlier)(values())
    ran(engine, one)
    assert (one.given, one.asked) == (3, 0)


@pytest.mark.parametrize("made", [offering(major=2), offering(code=-1)], ids=["unknown version", "refuses"])
def test_otherwise_the_method_is_asked(engine, made):
    one = made(values())
    ran(engine, one)
    assert (one.given, one.asked) == (0, 3)
