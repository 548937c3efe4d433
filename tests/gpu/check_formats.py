"""Holds products of fp8, and by weights of a few bits, on a GPU against the CPU and NumPy: check_formats.py PROGRAM

PROGRAM is `ulpscope`; Python needs numpy, onnx and ml_dtypes. The files have elements behind DequantizeLinear:

- fp8 on both sides, outputs in fp16, bf16 and fp32: every bit of the CPU's under `--accumulation hopper` (the GPU's
  default) and `hopper-fast`, on a Hopper GPU. On others the errors are held against each other.
- Weights of int4, int8 and fp8 beside fp16: rows of one 1 give the bits of fp16(element * scale); random rows are as
  near to a float64 product of these as a rounding to fp16 allows, for few and for many rows.

One line per check; exits 1 when one does not hold or a run fails.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
from check_models import RunFailed, read_outputs
from onnx import TensorProto, helper

FLOATS = {"fp32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
NUMPY = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
ELEMENTS = {"int4": TensorProto.INT4, "int8": TensorProto.INT8, "fp8": TensorProto.FLOAT8E4M3FN}


def tensor(name: str, kind: int, array: np.ndarray) -> onnx.TensorProto:
    if kind == TensorProto.INT4:
        codes = (array.astype(np.int64).ravel() & 15).astype(np.uint8)
        codes = np.append(codes, np.zeros(codes.size % 2, np.uint8))
        return helper.make_tensor(name, kind, array.shape, (codes[::2] | codes[1::2] << 4).tobytes(), raw=True)
    types = {TensorProto.INT8: np.int8, TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn, TensorProto.INT64: np.int64}
    types |= {FLOATS[name]: NUMPY[name] for name in FLOATS}
    return helper.make_tensor(name, kind, array.shape, array.astype(types[kind]).tobytes(), raw=True)


def save(path: pathlib.Path, nodes: list, kind: str, x: tuple, y: tuple, weights: list) -> pathlib.Path:
    graph = helper.make_graph(
        nodes, "formats", [helper.make_tensor_value_info("x", FLOATS[kind], x)],
        [helper.make_tensor_value_info("y", FLOATS[kind], y)], weights,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def fp8_model(path: pathlib.Path, kind: str, m: int, k: int, n: int, tail: str, positive: bool,
              channels: bool) -> pathlib.Path:  # fmt: skip
    """relu(x w + b), or sigmoid(x w), of fp8 elements; beside it the inputs."""
    random = np.random.default_rng(m + k + n)
    node, number = helper.make_node, FLOATS[kind]
    w = random.normal(0, 60, (k, n))
    w = np.clip(np.abs(w) if positive else w, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    x = np.abs(random.normal(0, 1, (m, k))) if positive else random.normal(0, 1, (m, k))
    nodes = [node("QuantizeLinear", ["x", "sx", "zero"], ["xq"]),
             node("DequantizeLinear", ["xq", "sx", "zero"], ["xd"]),
             node("DequantizeLinear", ["w", "sw"], ["wd"], axis=1), node("MatMul", ["xd", "wd"], ["p"])]  # fmt: skip
    nodes += {"bias": [node("Add", ["p", "b"], ["s"]), node("Relu", ["s"], ["y"])],
              "sigmoid": [node("Sigmoid", ["p"], ["y"])], "none": [node("Identity", ["p"], ["y"])]}[tail]  # fmt: skip
    scales = random.uniform(0.001, 0.01, n) if channels else np.array(0.0031)
    weights = [tensor("sx", number, np.array(0.0123)), tensor("sw", number, scales),
               tensor("zero", ELEMENTS["fp8"], np.array(0)), tensor("w", ELEMENTS["fp8"], w)]  # fmt: skip
    if tail == "bias":
        weights.append(tensor("b", number, random.normal(0, 1, n)))
    np.savez(path.with_suffix(".npz"), x=x.astype(np.float32 if kind == "bf16" else NUMPY[kind]))
    return save(path, nodes, kind, (m, k), (m, n), weights)


def weights_model(path: pathlib.Path, kind: str, block: int, rows: int, k: int, n: int, transposed: bool,
                  one: bool) -> tuple[pathlib.Path, np.ndarray, np.ndarray]:  # fmt: skip
    """x w, w of elements in blocks of k or, without, per column; also x and fp16(element * scale)."""
    random = np.random.default_rng(rows + k + n + block)
    if kind == "int4":
        q = random.integers(-8, 8, (k, n)).astype(np.float32)
    elif kind == "int8":
        q = random.integers(-128, 128, (k, n)).astype(np.float32)
    else:
        q = np.clip(random.normal(0, 60, (k, n)), -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    s = random.uniform(0.001, 0.02, (k // block if block else 1, n)).astype(np.float16)
    w = (q * np.repeat(s.astype(np.float32), block or k, axis=0)).astype(np.float16)
    x = np.zeros((rows, k), np.float16)
    if one:
        x[np.arange(rows), random.integers(0, k, rows)] = 1
    else:
        x[:] = random.normal(0, 1, (rows, k))
    axis = 0 if block else 1
    scales = s if block else s[0]
    attributes = {"axis": 1 - axis if transposed else axis} | ({"block_size": block} if block else {})
    weights = [tensor("w", ELEMENTS[kind], q.T if transposed else q),
               tensor("s", TensorProto.FLOAT16, scales.T if transposed and block else scales)]  # fmt: skip
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["d"], **attributes)]
    product = "Gemm" if transposed else "MatMul"
    nodes.append(helper.make_node(product, ["x", "d"], ["y"], **({"transB": 1} if transposed else {})))
    np.savez(path.with_suffix(".npz"), x=x)
    return save(path, nodes, "fp16", (rows, k), (rows, n), weights), x, w


class Checks:
    def __init__(self, program: str, folder: pathlib.Path, hopper: bool) -> None:
        self.program, self.folder, self.hopper, self.failed = program, folder, hopper, 0

    def run(self, model: pathlib.Path, *words: str) -> np.ndarray:
        path = self.folder / "outputs.json"
        path.unlink(missing_ok=True)
        command = [self.program, "run", str(model), "--trt", *words]
        command += ["--load-inputs", str(model.with_suffix(".npz")), "--save-outputs", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RunFailed((done.stderr or done.stdout).strip().splitlines()[-1])
        return read_outputs(path)["y"]

    def say(self, holds: bool, text: str) -> None:
        self.failed += not holds
        print(f"{'ok    ' if holds else 'FAILED'} {text}", flush=True)

    def fp8(self, kind: str, m: int, k: int, n: int, tail: str, positive: bool, channels: bool = False) -> None:
        model = fp8_model(self.folder / "fp8.onnx", kind, m, k, n, tail, positive, channels)
        words = [] if kind == "fp32" else [f"--{kind}"]
        name = f"fp8 -> {kind} {m} x {k} x {n} {tail}{' positive' if positive else ''}{' channels' if channels else ''}"
        exact = self.run(model, *words)
        for rule in ("hopper", "hopper-fast"):
            cpu = self.run(model, *words, "--accumulation", rule)
            gpu = self.run(model, *words, "--accumulation", rule, "--backend", "cuda")
            same = float(np.mean(cpu == gpu))
            error = float(np.linalg.norm((cpu - exact).astype(np.float64)) / np.linalg.norm(exact.astype(np.float64)))
            near = np.allclose(cpu, gpu, rtol=1e-2, atol=float(np.abs(exact).max()) * 2e-3)
            holds = same == 1 if self.hopper and tail != "sigmoid" else near
            self.say(holds, f"{name}, {rule}: {same:.4%} of the bits, {error:.1e} from exact sums")
        usual = self.run(model, *words, "--backend", "cuda")
        if self.hopper:
            hopper = self.run(model, *words, "--accumulation", "hopper", "--backend", "cuda")
            self.say(bool(np.array_equal(usual, hopper)), f"{name}: hopper without a word")

    def weights(self, kind: str, block: int, rows: int, k: int, n: int, transposed: bool) -> None:
        name = f"{kind}{f' in blocks of {block}' if block else ''}, {rows} x {k} x {n}{' turned' if transposed else ''}"
        model, x, w = weights_model(self.folder / "w.onnx", kind, block, rows, k, n, transposed, True)
        got = self.run(model, "--fp16", "--backend", "cuda").reshape(rows, n)
        self.say(np.array_equal(got, w[np.argmax(x, axis=1)]), f"{name}: the bits of fp16(q * s)")
        model, x, w = weights_model(self.folder / "w.onnx", kind, block, rows, k, n, transposed, False)
        got = self.run(model, "--fp16", "--backend", "cuda").reshape(rows, n).astype(np.float64)
        expected = x.astype(np.float64) @ w.astype(np.float64)
        error = float(np.linalg.norm(got - expected) / np.linalg.norm(expected))
        self.say(error < 3e-4, f"{name}: {error:.1e} from float64")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--other-gpu", action="store_true", help="not a Hopper: no bits of fp8 are expected")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checks = Checks(arguments.program, pathlib.Path(folder), not arguments.other_gpu)
        for m, k, n in ((64, 512, 256), (128, 768, 768), (40, 96, 48), (17, 1040, 264), (256, 4096, 128)):
            for kind, tail in (("fp16", "bias"), ("fp16", "sigmoid"), ("bf16", "bias"), ("fp32", "none")):
                checks.fp8(kind, m, k, n, tail, positive=k > 1000 and tail != "sigmoid")
            checks.fp8("fp16", m, k, n, "bias", positive=False, channels=True)
        for kind, block in (("int4", 32), ("int4", 128), ("int8", 0), ("int8", 32), ("fp8", 0)):
            for rows, k, n in ((1, 4096, 1024), (3, 1536, 520), (8, 2048, 1000), (33, 1024, 512)):
                checks.weights(kind, block, rows, k, n, transposed=rows % 2 == 1)
    print(f"{checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
