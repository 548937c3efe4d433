"""Tensors of torch in JSON, as Polygraphy writes them: files of torch.save, which are read without torch."""

import base64
import collections
import io
import json
import pickle
import sys
import types
import zipfile

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from search_support import outputs_of


STORAGES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
}


class Storage:
    """The elements that a tensor lies in."""

    def __init__(self, values):
        self.values = np.ascontiguousarray(values).ravel()


class Saved:
    """A tensor: some elements of a storage, and the function that torch makes it by."""

    def __init__(self, storage, offset, shape, strides, function="_rebuild_tensor_v2", module="torch._utils"):
        self.storage, self.arguments = storage, (offset, tuple(shape), tuple(strides))
        self.function = getattr(sys.modules[module], function)

    def __reduce__(self):
        return self.function, (self.storage, *self.arguments, False, collections.OrderedDict())


@pytest.fixture
def torch_names(monkeypatch):
    """Modules with the names that the pickles have, where torch is not installed."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in STORAGES.values():
        storage = type(f"{name}Storage", (), {"__module__": "torch"})
        setattr(torch, storage.__name__, storage)

    def _rebuild_tensor_v2():
        raise AssertionError("nothing of a file is called")

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)


def archive(saved, protocol=2, compression=zipfile.ZIP_STORED, byteorder="little", pickled=None):
    """What torch.save writes."""
    stream, storages = io.BytesIO(), []

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing):
            if not isinstance(thing, Storage):
                return None
            storages.append(thing)
            name = f"{STORAGES[thing.values.dtype.name]}Storage"
            return "storage", getattr(sys.modules["torch"], name), str(len(storages) - 1), "cpu", thing.values.size

    Pickler(stream, protocol).dump(saved)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as file:
        file.writestr("archive/data.pkl", stream.getvalue() if pickled is None else pickled)
        file.writestr("archive/byteorder", byteorder)
        for i, storage in enumerate(storages):
            file.writestr(f"archive/data/{i}", storage.values.tobytes())
    return {"tensor": base64.b64encode(made.getvalue()).decode(), "polygraphy_class": "Tensor"}


def save_model(path, arrays):
    """Identities."""
    nodes, inputs, outputs = [], [], []
    for name, array in arrays.items():
        kind = (
            TensorProto.BFLOAT16 if array.dtype == ml_dtypes.bfloat16 else helper.np_dtype_to_tensor_dtype(array.dtype)
        )
        nodes.append(helper.make_node("Identity", [name], [f"{name}_out"]))
        inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
        outputs.append(helper.make_tensor_value_info(f"{name}_out", kind, array.shape))
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("protocol", [2, 4])
def test_tensors_of_torch_are_read(run, tmp_path, torch_names, protocol, compression):
    random = np.random.RandomState(5)
    tensors, arrays = {}, {}
    for name in STORAGES:
        dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        values = (random.randint(0, 2, 24) if name == "bool" else random.uniform(0, 99, 24)).astype(dtype)
        arrays[f"{name}_all"] = values.reshape(2, 3, 4)
        tensors[f"{name}_all"] = Saved(Storage(values), 0, (2, 3, 4), (12, 4, 1))
        arrays[f"{name}_turned"] = values[4:].reshape(5, 4).T  # A view: other strides, and not from the start.
        tensors[f"{name}_turned"] = Saved(Storage(values), 4, (4, 5), (1, 4))
        arrays[f"{name}_one"] = values[7].reshape(())
        tensors[f"{name}_one"] = Saved(Storage(values), 7, (), ())
    arrays["empty"], tensors["empty"] = (
        np.zeros((0, 3), np.float32),
        Saved(Storage(np.zeros(0, np.float32)), 0, (0, 3), (3, 1)),
    )
    save_model(tmp_path / "m.onnx", arrays)
    written = {name: archive(tensor, protocol, compression) for name, tensor in tensors.items()}
    (tmp_path / "in.json").write_text(json.dumps([written]))
    outcome = run("run", "m.onnx", "--trt", "--load-inputs", "in.json", "--save-outputs", "o.json")
    assert outcome.code == 0, outcome
    outputs = outputs_of(tmp_path / "o.json")[0]
    for name, array in arrays.items():
        found = outputs[f"{name}_out"]
        assert found.shape == array.shape and np.array_equal(found, array.astype(found.dtype)), name


def test_what_torch_itself_saves_is_read(run, tmp_path):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(12, dtype=torch.float32).reshape(3, 4).T
    stream = io.BytesIO()
    torch.save(tensor, stream)
    save_model(tmp_path / "m.onnx", {"x": tensor.numpy()})
    value = {"tensor": base64.b64encode(stream.getvalue()).decode(), "polygraphy_class": "Tensor"}
    (tmp_path / "in.json").write_text(json.dumps([{"x": value}]))
    outcome = run("run", "m.onnx", "--trt", "--load-inputs", "in.json", "--save-outputs", "o.json")
    assert outcome.code == 0, outcome
    assert np.array_equal(outputs_of(tmp_path / "o.json")[0]["x_out"], tensor.numpy())


def hostile():
    four = Storage(np.arange(4, dtype=np.float32))
    good = pickle.dumps(7, 2)
    return {
        "behind its elements": (Saved(four, 1, (2, 2), (2, 1)), {}, "the tensor does not fit its elements"),
        "before them": (Saved(four, -1, (2, 2), (2, 1)), {}, "the tensor does not fit its elements"),
        "huge strides": (Saved(four, 0, (2, 2), (2**62, 1)), {}, "the tensor does not fit its elements"),
        "more than there is": (Saved(four, 0, (2**40,), (0,)), {}, "with all its elements in the file"),
        "another function": (
            Saved(four, 0, (4,), (1,), "system", "os"),
            {},
            "torch.save writes it, got 'posix system'",
        ),
        "no tensor": (four, {"pickled": good}, "got something else"),
        "cut off": (four, {"pickled": good[:-1]}, "the pickle of the tensor is damaged"),
        "too long": (four, {"pickled": pickle.dumps("x" * 5000, 2)}, "a pickle of more than one tensor"),
        "deep": (four, {"pickled": b"\x80\x02)" + b"\x85" * 2000 + b"."}, "something nested"),
        "from the other end": (Saved(four, 0, (4,), (1,)), {"byteorder": "big"}, "expected little-endian elements"),
    }


@pytest.mark.parametrize(
    "case",
    [
        "behind its elements",
        "before them",
        "huge strides",
        "more than there is",
        "another function",
        "no tensor",
        "cut off",
        "too long",
        "deep",
        "from the other end",
    ],
)
def test_what_is_no_tensor_is_refused(run, tmp_path, torch_names, case):
    saved, options, words = hostile()[case]
    save_model(tmp_path / "m.onnx", {"x": np.zeros(4, np.float32)})
    (tmp_path / "in.json").write_text(json.dumps([{"x": archive(saved, **options)}]))
    outcome = run("run", "m.onnx", "--trt", "--load-inputs", "in.json")
    assert outcome.code == 1 and words in outcome.text and "in.json: iteration 0: input 'x'" in outcome.text, outcome
