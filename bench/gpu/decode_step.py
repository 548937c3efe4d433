"""One token of a decoder with a cache on a GPU, from torch tensors to torch tensors: decode_step.py [gpt2] [llama]

Networks have random weights (networks.py has their sizes), batch 1 and --past tokens in a cache of float16; all sides
compute in float16. Sides: ulpscope with bound tensors (Engine.bind), with tensors of every call
(Engine.run(outputs="device")) and from NumPy to NumPy; torch one operator after another, in a CUDA graph, and
compiled (reduce-overhead; --no-compile leaves it out). Per side, in turns, microseconds, the least of --rounds
rounds: "step" is one step by itself, with the stream idle before it, between two events; "row" is one of 50 steps in
a row. "device" is Engine.device_microseconds: the recorded kernels alone. Outputs are held against torch in float32,
and those of all our ways against each other, bit for bit. Needs torch for CUDA, onnx and an installed ulpscope.
"""

from __future__ import annotations

import argparse
import io
import sys
import warnings
from typing import Any, Callable, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from blocks import Attention, PreNormBlock, rotate
from networks import LlamaBlock, RmsNorm

Run = Callable[[], Any]
WORST = 2e-2  # Relative L2 of float16 against float32.


def attend(
    attention: Attention, x: Tensor, past: tuple[Tensor, Tensor], positions: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Of one token to those before and itself; and the cache with it, in the cache's type."""
    q = attention.split(attention.q(x), attention.heads)
    k, v = (attention.split(layer(x), attention.kv_heads) for layer in (attention.k, attention.v))
    if positions is not None:
        q, k = rotate(q, *positions), rotate(k, *positions)
    keys, values = (torch.cat((before, now.to(before.dtype)), 2) for before, now in zip(past, (k, v)))
    k, v = keys.to(x.dtype), values.to(x.dtype)
    if attention.kv_heads != attention.heads:
        shared = attention.heads // attention.kv_heads
        k, v = (t[:, :, None].expand(-1, -1, shared, -1, -1).flatten(1, 2) for t in (k, v))
    scores = torch.softmax(q @ k.transpose(-1, -2) * attention.head**-0.5, -1)
    return attention.out((scores @ v).transpose(1, 2).reshape(x.shape)), keys, values


class Step(nn.Module):
    """token, keys and values of every block -> logits, the same with this token."""

    def __init__(self, dim: int, words: int, blocks: list[nn.Module], norm: nn.Module) -> None:
        super().__init__()
        self.words, self.blocks, self.norm = nn.Embedding(words, dim), nn.ModuleList(blocks), norm
        nn.init.normal_(self.words.weight, std=0.02)

    def start(self, token: Tensor) -> tuple[Tensor, Any]:
        return self.words(token), None

    def forward(self, token: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        x, positions = self.start(token)
        present: list[Tensor] = []
        for i, block in enumerate(self.blocks):
            y, keys, values = attend(block.attention, block.norm1(x), (past[2 * i], past[2 * i + 1]), positions)
            present += [keys, values]
            x = self.feed(block, x + y)
        return (F.linear(self.norm(x), self.words.weight), *present)


class Gpt2Step(Step):
    def __init__(self, dim: int = 768, words: int = 50257) -> None:
        blocks = [PreNormBlock(dim, 12, nn.GELU(approximate="tanh"), causal=True) for _ in range(12)]
        super().__init__(dim, words, blocks, nn.LayerNorm(dim))
        self.place = nn.Parameter(torch.randn(1, dim) * 0.02)

    def start(self, token: Tensor) -> tuple[Tensor, Any]:
        return self.words(token) + self.place, None

    @staticmethod
    def feed(block: Any, x: Tensor) -> Tensor:
        return x + block.feed(block.norm2(x))


class LlamaStep(Step):
    def __init__(self, past: int, dim: int = 1024, heads: int = 16, words: int = 32000) -> None:
        super().__init__(dim, words, [LlamaBlock(dim, heads, heads // 4, 2816) for _ in range(8)], RmsNorm(dim))
        half = dim // heads // 2
        angle = past * 10000 ** (-torch.arange(half) / half)[None]
        self.register_buffer("cosine", torch.cat((angle, angle), 1).cos())
        self.register_buffer("sine", torch.cat((angle, angle), 1).sin())

    def start(self, token: Tensor) -> tuple[Tensor, Any]:
        return self.words(token), (self.cosine, self.sine)

    @staticmethod
    def feed(block: Any, x: Tensor) -> Tensor:
        y = block.norm2(x)
        return x + block.down(F.silu(block.gate(y)) * block.up(y))


class Case(NamedTuple):
    network: nn.Module  # float32, on the CPU.
    inputs: list[Tensor]  # On the CPU, the cache in float16.
    names: list[str]


def build(name: str, past: int) -> Case:
    torch.manual_seed(0)
    network: Any = Gpt2Step() if name == "gpt2" else LlamaStep(past)
    attention = network.blocks[0].attention
    shape = (1, attention.kv_heads, past, attention.head)
    cache = [torch.randn(shape).half() for _ in range(2 * len(network.blocks))]
    names = ["token", *(f"past_{what}_{i}" for i in range(len(network.blocks)) for what in ("keys", "values"))]
    return Case(network.eval().requires_grad_(False), [torch.tensor([[7]]), *cache], names)


def exported(case: Case) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outputs = ["logits", *(name.replace("past", "present") for name in case.names[1:])]
        torch.onnx.export(
            case.network, tuple(case.inputs), file, input_names=case.names, output_names=outputs, opset_version=18,
            dynamo=False,
        )  # fmt: skip
    return file.getvalue()


def least(run: Run, steps: int, times: int) -> float:
    """Microseconds of one of so many steps between two events, the least of `times`."""
    best = float("inf")
    for i in range(times + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(steps):
            run()
        end.record()
        end.synchronize()
        if i >= 3:
            best = min(best, begin.elapsed_time(end) * 1e3 / steps)
    return best


def torch_sides(network: nn.Module, inputs: list[Tensor], compiles: bool) -> dict[str, Callable[[], Run]]:
    def graph() -> Run:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                network(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            network(*inputs)
        return recorded.replay

    def compiled() -> Run:
        made = torch.compile(network, mode="reduce-overhead")
        for _ in range(5):
            made(*inputs)
        return lambda: made(*inputs)

    sides: dict[str, Callable[[], Run]] = {"torch eager": lambda: lambda: network(*inputs), "torch graph": graph}
    return {**sides, "torch compiled": compiled} if compiles else sides


def same(results: Any, expected: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(torch.from_dlpack(results[key]).cpu().numpy(), value) for key, value in expected.items())


def compare(name: str, options: argparse.Namespace) -> bool:
    import ulpscope

    case = build(name, options.past)
    model = exported(case)
    engine = ulpscope.Engine(model, precision="fp16", backend="cuda")
    on_host = {key: value.numpy() for key, value in zip(case.names, case.inputs)}
    on_device = {key: value.cuda() for key, value in zip(case.names, case.inputs)}
    expected = engine.run(on_host)
    outputs = {key: torch.from_numpy(value).cuda().zero_() for key, value in expected.items()}
    bound = engine.bind(on_device, outputs)
    holds = all(same(bound.run(), expected) for _ in range(3))
    holds &= all(same(engine.run(on_device, outputs="device"), expected) for _ in range(3))
    reference = (
        case.network.cuda()(on_device["token"], *(on_device[key].float() for key in case.names[1:]))[0].cpu().numpy()
    )
    logits = outputs["logits"].float().cpu().numpy()
    error = float(np.linalg.norm(logits - reference) / np.linalg.norm(reference))

    def taken() -> Any:
        return [torch.from_dlpack(each) for each in engine.run(on_device, outputs="device").values()]

    sides: dict[str, Run] = {"bound": bound.run, "run": taken}
    if options.numpy:
        sides["numpy"] = lambda: engine.run(on_host)
    for side, make in torch_sides(case.network.half(), list(on_device.values()), options.compile).items():
        try:
            sides[side] = make()
        except Exception as failure:  # One that fails does not keep the others.
            print(f"{name}: {side}: {type(failure).__name__}: {str(failure).splitlines()[0][:150]}", file=sys.stderr)
            torch.cuda.synchronize()
    shapes = [list(value.shape) for value in case.inputs]
    times: dict[str, list[float]] = {"device": []}
    for _ in range(options.rounds):
        times["device"].append(float(engine.device_microseconds(shapes) or "nan"))
        for side, run in sides.items():
            for what, steps in (("step", 1), ("row", 50)):
                few = side in ("numpy", "torch eager")
                times.setdefault(f"{side} {what}", []).append(
                    least(run, min(steps, 5) if few else steps, 5 if few else 20)
                )
    best = {side: min(taken_) for side, taken_ in times.items()}
    print(
        f"{name}, {options.past} tokens of past: relative L2 of the logits {error:.2g}; "
        f"bits of all our ways {'equal' if holds else 'DIFFER'}"
    )
    for side, microseconds in best.items():
        print(f"  {side:20} {microseconds:9.1f} us   {microseconds / best['device']:6.3f} of the device time")
    for what in ("step", "row"):
        peers = [best[key] for key in best if key.startswith(("torch graph", "torch compiled")) and key.endswith(what)]
        if peers:
            print(f"  bound / best of torch's graph and compiled, {what}: {best[f'bound {what}'] / min(peers):.3f}")
    return holds and error < WORST


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="gpt2, llama; default: both")
    parser.add_argument("--past", type=int, default=32, help="tokens in the cache; default: 32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument("--no-numpy", dest="numpy", action="store_false", help="leave runs between arrays of NumPy out")
    options = parser.parse_args()
    for name in options.names:
        if name not in ("gpt2", "llama"):
            parser.error(f"expected gpt2 or llama, got {name!r}")
    import ulpscope

    print(f"torch {torch.__version__}, ulpscope {ulpscope.__version__}, {torch.cuda.get_device_name()}", flush=True)
    with torch.inference_mode():
        return 0 if all([compare(name, options) for name in options.names or ["gpt2", "llama"]]) else 1


if __name__ == "__main__":
    sys.exit(main())
