"""Networks of torch that .half() makes wrong, each with a maker of samples. Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    """As many models write it: the square of what comes in is a tensor."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = RMSNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.silu(self.up(self.norm(x))))


class RMSNormBlocks(nn.Module):
    """A residual stream in the hundreds, whose squares are beyond float16."""

    def __init__(self, blocks: int = 6, width: int = 64, size: float = 300.0) -> None:
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, 10)
        with torch.no_grad():
            for layer in (self.embed, *(block.down for block in self.blocks)):
                layer.weight.mul_(size)
                layer.bias.mul_(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class MaskedAttention(nn.Module):
    """Its mask value is -FLT_MAX: a buffer, or a number in the code."""

    def __init__(self, width: int, heads: int, buffer: bool) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.v, self.out = nn.Linear(width, width), nn.Linear(width, width)
        if buffer:
            self.register_buffer("masked", torch.tensor(torch.finfo(torch.float32).min))
        self.has_buffer = buffer

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape

        def split(t: torch.Tensor) -> torch.Tensor:
            return t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        hidden = (1 - mask)[:, None, None, :]
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        if self.has_buffer:
            scores = scores + hidden * self.masked
        else:
            scores = scores.masked_fill(hidden.bool(), -3.4028234663852886e38)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))


class MaskedEncoder(nn.Module):
    """Token embeddings that are tied to the head, and attention with masks."""

    def __init__(self, width: int = 32, heads: int = 4, layers: int = 2, buffer: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width),
                    "attention": MaskedAttention(width, heads, buffer),
                    "mlp": nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)),
                }
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = x + layer["attention"](layer["norm"](x), mask)
            x = x + layer["mlp"](x)
        return self.head(x)


class WhisperLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.self_attn_layer_norm = nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.final_layer_norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.self_attn_layer_norm(x)
        h, _ = self.self_attn(h, h, h, need_weights=False)
        x = x + h
        return x + self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))


class WhisperEncoder(nn.Module):
    """Convolutions, positions and layers, one channel of whose residual stream leaves float16 behind the first
    layer; the norms that read it have small weights there, as those of trained networks with such channels do."""

    def __init__(self, width: int = 48, heads: int = 4, layers: int = 3, mels: int = 20, frames: int = 40) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(mels, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(frames // 2, width)
        self.layers = nn.ModuleList(WhisperLayer(width, heads) for _ in range(layers))
        self.layer_norm = nn.LayerNorm(width)
        with torch.no_grad():
            self.layers[0].fc2.bias[5] = 9e4
            for layer in self.layers[1:]:
                for norm in (layer.self_attn_layer_norm, layer.final_layer_norm):
                    norm.weight.mul_(2e3)
                    norm.weight[5] = 0.01
            self.layer_norm.weight.mul_(2e3)
            self.layer_norm.weight[5] = 0.01

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.conv1(mel))
        x = F.gelu(self.conv2(x))
        x = x.permute(0, 2, 1) + self.embed_positions.weight
        for layer in self.layers:
            x = layer(x)
        return self.layer_norm(x)


class Network(NamedTuple):
    module: nn.Module
    sample: Callable[[], tuple[torch.Tensor, ...]]  #: A new one with each call.

    def samples(self, count: int) -> list[tuple[torch.Tensor, ...]]:
        return [self.sample() for _ in range(count)]


def rms_norm_blocks() -> Network:
    return Network(RMSNormBlocks().eval(), lambda: (torch.randn(4, 16),))


def _mask() -> torch.Tensor:
    """Two rows, the ends of which are padding."""
    lengths = torch.randint(2, 8, (2, 1))
    return (torch.arange(7)[None, :] < lengths).float()


def masked_attention(buffer: bool = True) -> Network:
    return Network(MaskedEncoder(buffer=buffer).eval(), lambda: (torch.randint(0, 50, (2, 7)), _mask()))


def whisper_encoder() -> Network:
    return Network(WhisperEncoder().eval(), lambda: (torch.randn(2, 20, 40),))


def on_device(network: Network, device: str) -> Network:
    """The same with its module and its samples there; the samples are those of the CPU."""
    return Network(network.module.to(device), lambda: tuple(each.to(device) for each in network.sample()))


#: Those that `.half()` makes wrong.
NETWORKS: dict[str, Callable[[], Network]] = {
    "RMSNorm blocks": rms_norm_blocks,
    "masked attention": masked_attention,
    "Whisper encoder": whisper_encoder,
}


def worst_error(module: nn.Module, other: Callable[..., Any], samples: list[tuple[torch.Tensor, ...]]) -> float:
    """The largest relative L2 error of one output of `other` against the module's; NaN where it has one."""
    errors = []
    with torch.no_grad():
        for sample in samples:
            exact, candidate = module(*sample).double(), other(*sample).double()
            errors.append(((candidate - exact).norm() / exact.norm()).item())
    return max(errors, key=lambda error: float("inf") if error != error else error)


def halved(module: nn.Module) -> Callable[..., Any]:
    """The module in float16, in the naive way."""
    import copy

    half = copy.deepcopy(module).half()

    def call(*args: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = half(*(each.half() if each.is_floating_point() else each for each in args))
        return result.float()

    return call
