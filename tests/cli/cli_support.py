"""What the tests of the program share: finding it, models, and text without dates."""
import base64
import io
import os
import pathlib
import re

import numpy as np
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]


def newest_binary(name):
    """The program that was built last, or the one that the environment names."""
    if os.environ.get("ULPSCOPE_BIN"):
        program = pathlib.Path(os.environ["ULPSCOPE_BIN"])
        return program if name == "ulpscope" else program.parent / name
    if os.environ.get("ULPSCOPE_BUILD_DIR"):
        return ROOT / os.environ["ULPSCOPE_BUILD_DIR"] / "bin" / name
    found = sorted(ROOT.glob(f"build/*/bin/{name}"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


class Outcome:
    """What a command did."""

    def __init__(self, process):
        self.code, self.out, self.err = process.returncode, process.stdout or "", process.stderr
        self.text = self.out + self.err

    def __repr__(self):
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def needs_constraints(n=256, fp16_max=65504.0):
    """x -> MatMul -> Add(65504) -> Sub(65504) -> MatMul: right in float32, wrong when the sum is stored as float16."""
    rotated = np.rot90(np.eye(n, dtype=np.float32)).reshape(1, 1, n, n)
    nodes = [helper.make_node("MatMul", ["x", "I_rot90"], ["matmul_out_0"], name="MatMul_0"),
             helper.make_node("Add", ["matmul_out_0", "fp16_max"], ["add_out_1"], name="Add"),
             helper.make_node("Sub", ["add_out_1", "fp16_max"], ["sub_out_2"], name="Sub"),
             helper.make_node("MatMul", ["sub_out_2", "I_rot90"], ["matmul_out_3"], name="MatMul_1")]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, n, n]) for name in ("x", "matmul_out_3")]
    graph = helper.make_graph(nodes, "needs_constraints", infos[:1], infos[1:],
                              [numpy_helper.from_array(np.ascontiguousarray(rotated), "I_rot90"),
                               numpy_helper.from_array(np.full((1, 1, 1, 1), fp16_max, np.float32), "fp16_max")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)


def dynamic_add():
    """sum = x + 2 with x of shape [batch, 3]."""
    nodes = [helper.make_node("Add", ["x", "two"], ["sum"], name="Add")]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in ("x", "sum")]
    graph = helper.make_graph(nodes, "dynamic", infos[:1], infos[1:],
                              [numpy_helper.from_array(np.full((1,), 2, np.float32), "two")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def encode_array(array):
    """An array as files of inputs and results hold it."""
    file = io.BytesIO()
    np.save(file, array)
    return {"array": base64.b64encode(file.getvalue()).decode(), "polygraphy_class": "ndarray"}


def without_dates(text):
    """Runner names and times differ from run to run."""
    text = re.sub(r"(-runner-N\d+)-\d\d/\d\d/\d\d-\d\d:\d\d:\d\d", r"\1", text)
    return re.sub(r"in [\d.e+-]+ ms \| Average inference time: [\d.e+-]+ ms", "in T ms", text)
