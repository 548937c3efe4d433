"""What a search on a decoder-only language model takes, by its size: the measured figures of docs/scale.md.

Networks are blocks of RMSNorm, attention with rotated heads left out, and a gated MLP, with random weights. Each search is a
process of its own (peak memory: VmHWM). Sizes are LAYERSxWIDTH; samples are TOKENS long.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

_SEARCH = """
import sys, time, json, numpy as np, ulpscope
model, inputs, words = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
samples = [dict(x=each) for each in np.load(inputs)]
engine = ulpscope.Engine(model, threads=1)
engine.run(samples[0])
forward = []
for _ in range(3):
    began = time.monotonic(); engine.run(samples[0]); forward.append(time.monotonic() - began)
before = peak()
del engine
stages, stage, began = {}, "", time.monotonic()
def watch(progress):
    global stage, began
    now = time.monotonic()
    stages[stage] = stages.get(stage, 0) + now - began
    stage, began = progress.stage, now
start = time.monotonic()
answer = ulpscope.search(model, samples, threads=1, progress=watch, **words)
print(json.dumps(dict(forward=min(forward), seconds=time.monotonic() - start, stages=stages, trials=len(answer.trials), kept=len(answer.layers), forward_peak=before, peak=peak())))
"""


def decoder(path: pathlib.Path, layers: int, width: int, tokens: int) -> int:
    """Returns the number of parameters."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(1)
    heads, inner = max(1, width // 64), width * 8 // 3 // 64 * 64
    nodes, constants, count = [], [], 0

    def constant(name: str, array: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(array, name))
        return name

    def weight(name: str, rows: int, columns: int) -> str:
        nonlocal count
        count += rows * columns
        return constant(name, random.standard_normal((rows, columns), np.float32) * np.float32(rows**-0.5))

    def node(op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op}{len(nodes)}"
        nodes.append(helper.make_node(op, list(inputs), [name + "_"], name, **attributes))
        return name + "_"

    constant("two", np.array(2, np.float32))
    constant("eps", np.array(1e-5, np.float32))
    constant("last", np.array([-1], np.int64))
    constant("heads", np.array([1, tokens, heads, width // heads], np.int64))
    constant("joined", np.array([1, tokens, width], np.int64))
    constant("scale", np.array((width // heads) ** -0.5, np.float32))
    constant("mask", np.triu(np.full((tokens, tokens), -1e4, np.float32), 1))

    def norm(value: str, name: str) -> str:
        mean = node("ReduceMean", node("Pow", value, "two"), "last")
        unit = node("Div", value, node("Sqrt", node("Add", mean, "eps")))
        return node("Mul", unit, constant(name, np.ones(width, np.float32)))

    value = "x"
    for l in range(layers):
        hidden = norm(value, f"norm{l}a")
        q, k, v = (node("Reshape", node("MatMul", hidden, weight(f"{w}{l}", width, width)), "heads") for w in "qkv")
        q, v = node("Transpose", q, perm=[0, 2, 1, 3]), node("Transpose", v, perm=[0, 2, 1, 3])
        scores = node("Add", node("Mul", node("MatMul", q, node("Transpose", k, perm=[0, 2, 3, 1])), "scale"), "mask")
        mixed = node("MatMul", node("Softmax", scores, axis=-1), v)
        mixed = node("Reshape", node("Transpose", mixed, perm=[0, 2, 1, 3]), "joined")
        value = node("Add", value, node("MatMul", mixed, weight(f"o{l}", width, width)))
        hidden = norm(value, f"norm{l}b")
        gate, up = (node("MatMul", hidden, weight(f"{w}{l}", width, inner)) for w in ("gate", "up"))
        product = node("Mul", node("Mul", gate, node("Sigmoid", gate)), up)
        value = node("Add", value, node("MatMul", product, weight(f"down{l}", inner, width)))
    nodes.append(helper.make_node("Identity", [value], ["y"], "Last"))
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, tokens, width]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "decoder", infos[:1], infos[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["4x256", "8x512", "8x1024", "16x1024", "8x2048"])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--threshold", type=float, default=5e-3, help="rel-l2")
    parser.add_argument("--memory-limit", type=float, default=0, help="bytes, of the search")
    options = parser.parse_args()
    words = dict(threshold=options.threshold, hold_out=False, memory_limit=int(options.memory_limit))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, one thread, {options.samples} samples of {options.tokens} tokens, fp16, rel-l2 {words['threshold']}\n")
    print("| layers x width | parameters | forward s | GFLOP/s | search s | forwards of all samples | of it prediction | trials | peak of a forward / fp32 weights | of the search / fp32 weights |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for size in options.sizes:
        layers, width = map(int, size.split("x"))
        with tempfile.TemporaryDirectory() as name:
            model, inputs = pathlib.Path(name) / "m.onnx", pathlib.Path(name) / "in.npy"
            count = decoder(model, layers, width, options.tokens)
            random = np.random.default_rng(2)
            np.save(inputs, random.standard_normal((options.samples, 1, options.tokens, width), np.float32))
            done = subprocess.run(
                [sys.executable, "-c", _SEARCH, str(model), str(inputs), json.dumps(words)], stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True, check=True,
            )  # fmt: skip
        found = json.loads(done.stdout.splitlines()[-1])
        all_samples, weights = found["forward"] * options.samples, 4 * count
        print(
            f"| {size} | {count / 1e6:.1f} M | {found['forward']:.4f} | {2e-9 * count * options.tokens / found['forward']:.0f} "
            f"| {found['seconds']:.2f} | {found['seconds'] / all_samples:.1f} | {found['stages'].get('predicting', 0) / all_samples:.1f} "
            f"| {found['trials']} | {found['forward_peak'] / weights:.2f} | {found['peak'] / weights:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
