"""Attention beside torch's: attention.py FOLDER

Chains of eight attentions, as models have them: (batch, rows, heads, depth) with heads turned to the front and back,
scores times a factor. Microseconds per attention in float16 by both rules of `--attention`, and of torch's
scaled_dot_product_attention by each of its backends in a CUDA graph; least of several launches on all sides. Then the
time of `flash` over torch's least, and the error of `flash` on the GPU over what the CPU predicts (with --errors: the
CPU takes seconds for each). FOLDER gets the networks. Needs ulpscope, torch for CUDA and onnx.
"""

from __future__ import annotations

import argparse
import pathlib
from typing import NamedTuple

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import peers
import ulpscope

COUNT = 8
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}  # fmt: skip


class Case(NamedTuple):
    name: str
    batch: int
    rows: int
    heads: int
    depth: int = 64


CASES = [
    Case("BERT-base, 128", 8, 128, 12),
    Case("ViT-B/16", 8, 197, 12),
    Case("DINOv2-S", 1, 1370, 6),
    Case("DINOv2-S, batch 8", 8, 1370, 6),
    Case("Whisper tiny", 1, 1500, 6),
    Case("Whisper small", 1, 1500, 12),
    Case("1,024", 4, 1024, 12),
    Case("2,048", 2, 2048, 12),
    Case("4,096", 1, 4096, 12),
    Case("8,192", 1, 8192, 12),
    Case("2,048, heads of 128", 2, 2048, 16, 128),
    Case("8,192, heads of 128", 1, 8192, 16, 128),
]


def chain(path: pathlib.Path, case: Case) -> pathlib.Path:
    """Each attention takes what the one before gives as its queries; keys and values are inputs."""
    shape = (case.batch, case.rows, case.heads, case.depth)
    nodes, x = [], "q"
    for name, perm in (("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes.append(helper.make_node("Transpose", [name], [f"{name}_heads"], perm=perm))
    for i in range(COUNT):
        nodes += [
            helper.make_node("Transpose", [x], [f"q{i}"], perm=[0, 2, 1, 3]),
            helper.make_node("MatMul", [f"q{i}", "k_heads"], [f"s{i}"]),
            helper.make_node("Mul", [f"s{i}", "factor"], [f"t{i}"]),
            helper.make_node("Softmax", [f"t{i}"], [f"p{i}"], axis=-1),
            helper.make_node("MatMul", [f"p{i}", "v_heads"], [f"o{i}"]),
            helper.make_node("Transpose", [f"o{i}"], [f"x{i}"], perm=[0, 2, 1, 3]),
        ]
        x = f"x{i}"
    factor = helper.make_tensor("factor", TensorProto.FLOAT16, (), np.float16(case.depth**-0.5).tobytes(), raw=True)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape) for name in ("q", "k", "v")]
    output = helper.make_tensor_value_info(x, TensorProto.FLOAT16, shape)
    graph = helper.make_graph(nodes, "chain", values, [output], [factor])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def ours(model: pathlib.Path, case: Case, rule: str) -> float:
    """Microseconds of an attention."""
    engine = ulpscope.Engine(model, precision="fp16", backend="cuda", attention=rule)
    shapes = [(case.batch, case.rows, case.heads, case.depth)] * 3
    return min(engine.device_microseconds(shapes) for _ in range(3)) / COUNT


def error_ratio(model: pathlib.Path, case: Case) -> float:
    """The error of `flash` on the GPU over that on the CPU, both against float64."""
    numbers = np.random.default_rng(1)
    shape = (case.batch, case.rows, case.heads, case.depth)
    inputs = {name: numbers.standard_normal(shape).astype(np.float16) for name in ("q", "k", "v")}
    q, k, v = (torch.tensor(inputs[name], device="cuda").double().transpose(1, 2) for name in ("q", "k", "v"))
    for _ in range(COUNT):
        # A head at a time: the scores of all are large.
        heads = [torch.softmax(q[:, [h]] @ k[:, [h]].mT * case.depth**-0.5, -1) @ v[:, [h]] for h in range(case.heads)]
        q = torch.cat(heads, 1)
    exact = q.transpose(1, 2).cpu().numpy()

    def error(backend: str) -> float:
        (found,) = ulpscope.Engine(model, precision="fp16", backend=backend, attention="flash").run(inputs).values()
        return float(np.linalg.norm(found.astype(np.float64) - exact))

    return error("cuda") / error("cpu")


def torch_time(case: Case, backend: SDPBackend) -> float | None:
    """Nothing where the backend does not take it."""
    shape = (case.batch, case.rows, case.heads, case.depth)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))
    k, v = k.transpose(1, 2), v.transpose(1, 2)

    def run() -> None:
        x = q
        for _ in range(COUNT):
            x = scaled_dot_product_attention(x.transpose(1, 2), k, v).transpose(1, 2)

    try:
        with sdpa_kernel(backend):
            replay = peers.in_graph(run)
    except RuntimeError:
        return None
    return peers.microseconds(replay, 30) / COUNT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--errors", action="store_true")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    print(torch.cuda.get_device_name(), torch.__version__, "us per attention", flush=True)
    for case in CASES:
        others = {name: torch_time(case, backend) for name, backend in BACKENDS.items()}
        model = chain(arguments.folder / "attention.onnx", case)
        normalized, flash = ours(model, case, "normalized"), ours(model, case, "flash")
        ratio = error_ratio(model, case) if arguments.errors else None
        text = f"{case.name}: normalized {normalized:.2f} | flash {flash:.2f} | torch"
        text += "".join(f" {name} {'-' if time is None else f'{time:.2f}'}" for name, time in others.items())
        known = [time for time in others.values() if time is not None]
        text += f" | flash / torch {flash / min(known):.2f}" if known else ""
        print(text + ("" if ratio is None else f" | error / predicted {ratio:.3f}"), flush=True)


if __name__ == "__main__":
    main()
