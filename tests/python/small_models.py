"""Networks that float16 or int8 do not suit, with samples; and the program, run beside the functions."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "cli"))
from search_support import comparable, masked_attention, outputs_of, save_inputs  # noqa: E402, F401
from limits import HANGS

N = 24
#: Of a search in `uneven` that keeps layers.
TASK = {"threshold": 0.002, "objective": "smallest", "fusion": "none"}


def uneven(path: pathlib.Path, samples: int = 8) -> list[dict[str, np.ndarray]]:
    """x -> MatMul -> + 3000 -> - 3000 -> Tanh -> MatMul -> MatMul: the sum loses its digits in float16."""
    random = np.random.default_rng(3)
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w0"], ["a"], "First"), node("Add", ["a", "big"], ["b"], "Raise"),
        node("Sub", ["b", "big"], ["c"], "Lower"), node("Tanh", ["c"], ["d"], "Squash"),
        node("MatMul", ["d", "w1"], ["e"], "Second"), node("MatMul", ["e", "w2"], ["y"], "Third"),
    ]  # fmt: skip
    weights = [random.normal(0, N**-0.5, (N, N)).astype(np.float32) for _ in range(3)]
    constants = [numpy_helper.from_array(each, f"w{i}") for i, each in enumerate(weights)]
    constants.append(numpy_helper.from_array(np.full(1, 3000, np.float32), "big"))
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, N]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "uneven", infos[:1], infos[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return [{"x": np.random.default_rng(i).uniform(-1, 1, (4, N)).astype(np.float32)} for i in range(samples)]


def beyond_fp16(path: pathlib.Path, samples: int = 8) -> list[dict[str, np.ndarray]]:
    """x -> MatMul -> MatMul -> MatMul: up to 1e6 between the first two, which float16 does not hold."""
    random = np.random.default_rng(5)
    nodes = [
        helper.make_node("MatMul", [before, f"w{i}"], [after], name)
        for i, (before, after, name) in enumerate([("x", "a", "Up"), ("a", "b", "Down"), ("b", "y", "Last")])
    ]
    gains = (1e6, 1e-6, 1)
    weights = [random.normal(0, gain * N**-0.5, (N, N)).astype(np.float32) for gain in gains]
    constants = [numpy_helper.from_array(each, f"w{i}") for i, each in enumerate(weights)]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, N]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "beyond", infos[:1], infos[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return [{"x": np.random.default_rng(i).uniform(-1, 1, (4, N)).astype(np.float32)} for i in range(samples)]


def fresh(samples: int = 3) -> list[dict[str, np.ndarray]]:
    """For `uneven`; none of its own."""
    return [{"x": np.random.default_rng(100 + i).uniform(-1, 1, (4, N)).astype(np.float32)} for i in range(samples)]


def run_program(program: pathlib.Path, folder: pathlib.Path, *words: object, code: int = 0) -> str:
    environment = {**os.environ, "ULPSCOPE_PYTHON": sys.executable}
    done = subprocess.run(
        [str(program), *map(str, words)], cwd=folder, env=environment, capture_output=True, text=True, timeout=HANGS
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def same_but_for_time(text: str) -> dict:
    """An answer without what differs from run to run: seconds."""
    answer = json.loads(text)
    answer.pop("seconds")
    for trial in answer["trials"]:
        trial["cost"] = trial["cost"][:2]
    return answer


def rel_l2(candidate: np.ndarray, golden: np.ndarray) -> float:
    a, b = candidate.astype(np.float64), golden.astype(np.float64)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))
