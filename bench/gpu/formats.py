"""Products of fp8, and by weights of a few bits, beside cuBLASLt's of fp16 in torch: formats.py GPU_LATENCY FOLDER

Chains of products: microseconds per product, least of several graph launches on both sides. Weights alone: the chain's
are far more than a GPU's cache (200 MB in fp16), so that each is read from memory. fp8 on both sides: with a GELU
behind each product, which leaves the elements that the next one reads, and in torch, too. FOLDER gets the networks.
Needs torch for CUDA and onnx.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

import peers

ELEMENTS = {"int4": TensorProto.INT4, "int8": TensorProto.INT8, "fp8": TensorProto.FLOAT8E4M3FN}


def half(name: str, array: np.ndarray) -> onnx.TensorProto:
    return helper.make_tensor(name, TensorProto.FLOAT16, array.shape, array.astype(np.float16).tobytes(), raw=True)


def chain(
    path: pathlib.Path, kind: str, block: int, m: int, sizes: list[tuple[int, int]], gelu: bool = False
) -> pathlib.Path:
    """x through matrices [k, n] whose elements are `kind`: "fp16", "int4", "int8" or "fp8"; "fp8 both": x, too."""
    random = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for i, (k, n) in enumerate(sizes):
        w = f"w{i}"
        if kind == "fp16":
            weights.append(half(w, random.normal(0, k**-0.5, (k, n)).astype(np.float16)))
        else:
            name = kind.split()[0]
            bits = 4 if name == "int4" else 8
            data = random.integers(0, 256, k * n * bits // 8, dtype=np.uint8)
            if name == "fp8":
                data &= 0xBF  # Up to 1.875: no NaN.
            weights.append(helper.make_tensor(f"q{i}", ELEMENTS[name], (k, n), data.tobytes(), raw=True))
            shape = (k // block, n) if block else (n,) if kind != "fp8 both" else ()
            weights.append(half(f"s{i}", np.full(shape, k**-0.5 / (4 if bits == 4 else 70 if name == "int8" else 1))))
            attributes = {"axis": 0 if block else 1} | ({"block_size": block} if block else {})
            nodes.append(helper.make_node("DequantizeLinear", [f"q{i}", f"s{i}"], [w], **attributes))
        if kind == "fp8 both":
            nodes.append(helper.make_node("QuantizeLinear", [x, "s", "z"], [f"e{i}"]))
            nodes.append(helper.make_node("DequantizeLinear", [f"e{i}", "s", "z"], [f"d{i}"]))
            x = f"d{i}"
        nodes.append(helper.make_node("MatMul", [x, w], [f"y{i}"]))
        x = f"y{i}"
        if gelu:
            nodes.append(helper.make_node("Gelu", [x], [f"g{i}"]))
            x = f"g{i}"
    if kind == "fp8 both":
        weights += [half("s", np.array(0.02)), helper.make_tensor("z", ELEMENTS["fp8"], (), b"\0", raw=True)]
    graph = helper.make_graph(
        nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT16, (m, sizes[0][0]))],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT16, (m, sizes[-1][1]))], weights,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def ours(program: str, model: pathlib.Path, count: int) -> float:
    done = subprocess.run([program, str(model), "fp16", "full"], capture_output=True, text=True, check=False)
    found = re.search(r": ([\d.]+) us;", done.stdout)
    if done.returncode != 0 or found is None:
        sys.exit(f"{model.name}: {done.stderr.strip() or done.stdout.strip()}")
    return float(found.group(1)) / count


def torch_time(m: int, sizes: list[tuple[int, int]], gelu: bool = False) -> float:
    weights = [torch.randn(n, k, device="cuda", dtype=torch.float16) * k**-0.5 for k, n in sizes]
    x = torch.randn(m, sizes[0][0], device="cuda", dtype=torch.float16)

    def run() -> None:
        y = x
        for w in weights:
            y = torch.mm(y, w.t())
            y = torch.nn.functional.gelu(y) if gelu else y

    return peers.microseconds(peers.in_graph(run), 30) / len(sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", choices=("weights", "fp8"), help="one of both tables")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    print(torch.cuda.get_device_name(), torch.__version__, "us per product, time of torch's fp16 / ours", flush=True)
    small, middle, turns = [(2048, 2048)] * 25, [(4096, 4096)] * 7, [(4096, 11008), (11008, 4096)] * 2
    rows = [(m, name, sizes) for m in (1, 8) for name, sizes in
            (("2048 x 2048", small), ("4096 x 4096", middle), ("4096 x 11008 and back", turns))]  # fmt: skip
    for m, name, sizes in [] if arguments.only == "fp8" else [*rows, (4096, "4096 x 4096", [(4096, 4096)] * 4)]:
        peer = torch_time(m, sizes)
        text = f"{m} x {name}: torch {peer:.2f}"
        kinds = [("fp16", 0), ("int4", 32), ("int4", 128), ("int8", 0), ("fp8", 0)]
        for kind, block in kinds if m <= 8 else [("fp16", 0), ("int4", 128)]:
            model = chain(arguments.folder / "chain.onnx", kind, block, m, sizes)
            time = ours(arguments.program, model, len(sizes))
            text += f" | {kind}{f' {block}' if block else ''} {time:.2f} {peer / time:.2f}"
        print(text, flush=True)
    fp8 = [(4096, 4096, 4096), (4096, 768, 3072), (1024, 768, 3072), (128, 768, 3072)]
    for m, k, n in [] if arguments.only == "weights" else fp8:
        sizes = [(k, n), (n, k)] * 4
        peer = torch_time(m, sizes, gelu=True)
        times = {}
        for kind in ("fp16", "fp8 both"):
            model = chain(arguments.folder / "chain.onnx", kind, 0, m, sizes, gelu=True)
            times[kind] = ours(arguments.program, model, len(sizes))
        text = f"{m} x {k} x {n} and back, with GELU: torch {peer:.2f} | fp16 {times['fp16']:.2f}"
        print(f"{text} | fp8 {times['fp8 both']:.2f} {times['fp16'] / times['fp8 both']:.2f}", flush=True)


if __name__ == "__main__":
    main()
