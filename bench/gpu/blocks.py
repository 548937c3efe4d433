"""What the networks of networks.py are made of, in plain torch."""

from __future__ import annotations

import math
from typing import Optional, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Pair = Sequence[int]


def conv_bn(
    c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1, act: Optional[nn.Module] = None
) -> nn.Sequential:
    """Convolution, BatchNormalization, activation."""
    layers = [nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(c_out)]
    return nn.Sequential(*layers, *([act] if act is not None else []))


class SqueezeExcite(nn.Module):
    """Channels, scaled by what their means say."""

    def __init__(self, channels: int, inner: int, act: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, inner, 1), act, nn.Conv2d(inner, channels, 1), gate
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


class Bottleneck(nn.Module):
    """A block of ResNet-50: 1x1, 3x3 (with the stride), 1x1, and the input or its projection added."""

    def __init__(self, c_in: int, width: int, stride: int) -> None:
        super().__init__()
        c_out = 4 * width
        self.inner = nn.Sequential(
            conv_bn(c_in, width, 1, act=nn.ReLU()),
            conv_bn(width, width, 3, stride, act=nn.ReLU()),
            conv_bn(width, c_out, 1),
        )
        self.shortcut = conv_bn(c_in, c_out, 1, stride) if stride != 1 or c_in != c_out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.inner(x) + self.shortcut(x))


def resnet50_features() -> nn.Sequential:
    """He et al., 2015: everything before the pool, 2048 channels at a stride of 32."""
    layers: list[nn.Module] = [conv_bn(3, 64, 7, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(channels, width, stride if i == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers)


class Inverted(nn.Module):
    """An inverted bottleneck of MobileNetV3 and EfficientNet: expand, depthwise, squeeze and excite, project."""

    def __init__(
        self,
        c_in: int,
        hidden: int,
        c_out: int,
        kernel: int,
        stride: int,
        act: type[nn.Module],
        excite: Optional[nn.Module],
    ) -> None:
        super().__init__()
        layers = [conv_bn(c_in, hidden, 1, act=act())] if hidden != c_in else []
        layers.append(conv_bn(hidden, hidden, kernel, stride, hidden, act()))
        layers += [excite] if excite is not None else []
        self.inner = nn.Sequential(*layers, conv_bn(hidden, c_out, 1))
        self.adds = stride == 1 and c_in == c_out

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x) if self.adds else self.inner(x)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary positions (Su et al., 2021), the halves of a head as pairs."""
    a, b = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-b, a), dim=-1) * sine


class Attention(nn.Module):
    """Attention with several heads, of x to itself or to a context; fewer heads of keys and values are shared."""

    def __init__(
        self, dim: int, heads: int, context: Optional[int] = None, kv_heads: Optional[int] = None,
        causal: bool = False, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.kv_heads, self.head, self.causal = heads, kv_heads or heads, dim // heads, causal
        self.q = nn.Linear(dim, dim, bias)
        self.k = nn.Linear(context or dim, self.kv_heads * self.head, bias)
        self.v = nn.Linear(context or dim, self.kv_heads * self.head, bias)
        self.out = nn.Linear(dim, dim, bias)

    def split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.shape[0], x.shape[1], heads, self.head).transpose(1, 2)

    def forward(
        self, x: Tensor, context: Optional[Tensor] = None, positions: Optional[tuple[Tensor, Tensor]] = None
    ) -> Tensor:
        context = x if context is None else context
        q, k, v = (
            self.split(self.q(x), self.heads),
            self.split(self.k(context), self.kv_heads),
            self.split(self.v(context), self.kv_heads),
        )
        if positions is not None:
            q, k = rotate(q, *positions), rotate(k, *positions)
        if self.kv_heads != self.heads:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Feed(nn.Module):
    """Two layers and an activation between them."""

    def __init__(self, dim: int, hidden: int, act: nn.Module) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(dim, hidden), act, nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.up(x)))


class PreNormBlock(nn.Module):
    """Norms before attention and feed-forward, as in ViT, GPT-2 and Whisper."""

    def __init__(self, dim: int, heads: int, act: nn.Module, causal: bool = False) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(dim), Attention(dim, heads, causal=causal)
        self.norm2, self.feed = nn.LayerNorm(dim), Feed(dim, 4 * dim, act)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class PostNormBlock(nn.Module):
    """Norms behind the sums, as in BERT and DETR; with a context, cross attention between the two."""

    def __init__(self, dim: int, heads: int, hidden: int, act: nn.Module, cross: bool = False) -> None:
        super().__init__()
        self.attention, self.norm1 = Attention(dim, heads), nn.LayerNorm(dim)
        self.cross, self.norm2 = (Attention(dim, heads), nn.LayerNorm(dim)) if cross else (None, None)
        self.feed, self.norm3 = Feed(dim, hidden, act), nn.LayerNorm(dim)

    def forward(self, x: Tensor, context: Optional[Tensor] = None) -> Tensor:
        x = self.norm1(x + self.attention(x))
        if self.cross is not None:
            x = self.norm2(x + self.cross(x, context))
        return self.norm3(x + self.feed(x))


class ResidualBlock(nn.Module):
    """GroupNorm, SiLU, 3x3, twice; an embedding of the time added in between. Of diffusion models."""

    def __init__(self, c_in: int, c_out: int, time: Optional[int] = None) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, c_in), nn.Conv2d(c_in, c_out, 3, padding=1)
        self.time = nn.Linear(time, c_out) if time else None
        self.norm2, self.conv2 = nn.GroupNorm(32, c_out), nn.Conv2d(c_out, c_out, 3, padding=1)
        self.shortcut = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x: Tensor, time: Optional[Tensor] = None) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x)))
        if self.time is not None:
            y = y + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(y)))


class ImageAttention(nn.Module):
    """Attention between the places of an image; with a context, also to it, and a gated feed-forward."""

    def __init__(self, channels: int, heads: int, context: Optional[int] = None) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, channels)
        self.inside = Attention(channels, heads)
        self.cross = Attention(channels, heads, context) if context else None
        if context:
            self.norms = nn.ModuleList([nn.LayerNorm(channels) for _ in range(3)])
            self.up, self.down = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x: Tensor, context: Optional[Tensor] = None) -> Tensor:
        y = self.norm(x).flatten(2).transpose(1, 2)
        if self.cross is None:
            y = self.inside(y)
        else:
            y = y + self.inside(self.norms[0](y))
            y = y + self.cross(self.norms[1](y), context)
            value, gate = self.up(self.norms[2](y)).chunk(2, dim=-1)
            y = y + self.down(value * F.gelu(gate))
        return x + y.transpose(1, 2).reshape(x.shape)


class Upsample(nn.Module):
    """Twice the size, nearest, and a 3x3."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


def sinusoids(length: int, dim: int) -> Tensor:
    """Positions as sines and cosines of falling frequency, [length, dim]."""
    frequency = torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2 - 1))
    angle = torch.arange(length)[:, None] * frequency[None]
    return torch.cat((angle.sin(), angle.cos()), dim=1)


@torch.no_grad()
def settle(network: nn.Module, inputs: Sequence[Tensor], seed: int = 0) -> nn.Module:
    """Random weights with which values stay of the same size through the network, in every type: He's for convolutions,
    and BatchNormalization with the statistics of a run, off by some tenths. Returns the network, for inference."""
    random = torch.Generator().manual_seed(seed)
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            fan_in = module.weight[0].numel()
            module.weight.copy_(torch.randn(module.weight.shape, generator=random) * math.sqrt(2 / fan_in))
        if isinstance(module, nn.LayerNorm):
            module.weight.copy_(torch.rand(module.weight.shape, generator=random) + 0.5)
    network.eval()
    if not norms:
        return network
    for norm in norms:
        norm.weight.copy_(torch.rand(norm.weight.shape, generator=random) * 0.5 + 0.5)
        norm.bias.copy_(torch.randn(norm.bias.shape, generator=random) * 0.1)
    for module in network.modules():
        if isinstance(module, (Bottleneck, Inverted)):
            module.inner[-1][1].weight.mul_(0.4)  # Sums stay near their first operand, so errors do not multiply.
    for norm in norms:
        norm.momentum = None  # The statistics of the run below, instead of a moving mean.
        norm.reset_running_stats()
        norm.train()
    network(*inputs)
    for norm in norms:
        size = norm.running_var.shape
        norm.running_mean += 0.2 * norm.running_var.sqrt() * torch.randn(size, generator=random)
        norm.running_var *= 0.8 + 0.5 * torch.rand(size, generator=random)
        norm.eval()
    return network
