"""The C++ library as Python sees it: every type of every signature has a form in Python."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import ulpscope
from ulpscope import _core


def signatures():
    """(name, text) of all functions, methods and properties of the extension module."""
    for name, value in vars(_core).items():
        if inspect.isclass(value):
            for member, each in vars(value).items():
                for part in (
                    each,
                    getattr(each, "fget", None),
                    getattr(each, "fset", None),
                    getattr(each, "__func__", None),
                ):
                    if getattr(part, "__doc__", None) and not member.startswith("__"):
                        yield f"{name}.{member}", part.__doc__
        elif callable(value) and value.__doc__:
            yield name, value.__doc__


def test_no_signature_has_a_type_of_cpp():
    """What nanobind has no conversion for stands there as C++, and raises TypeError when it is called."""
    found = dict(signatures())
    assert len(found) > 60, found
    assert {name: text for name, text in found.items() if "::" in text} == {}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    from test_given_constants import scaled

    return ulpscope.Engine(scaled(), threads=1)


def test_every_member_of_an_engine_answers(engine):
    assert engine.device_microseconds([[2]]) is None  # the CPU has no clock of its own
    assert engine.run({"x": np.float32([1, 2])})["y"].tolist() == [2, 6]
    assert repr(engine) and engine.inputs and engine.outputs and engine.layers and engine.defaults
    native = engine._engine
    for name in ("inputs", "outputs", "defaults", "layers"):
        assert getattr(native, name)()
    assert native.device_microseconds(shapes=[[2]]) is None
