"""The networks that are measured on a GPU: in plain torch, with random weights. Speed does not depend on weights, and
blocks.settle() keeps values of a size at which errors mean something."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from blocks import (
    Attention, Feed, ImageAttention, Inverted, PostNormBlock, PreNormBlock, ResidualBlock, SqueezeExcite, Upsample,
    conv_bn, resnet50_features, settle, sinusoids,
)  # fmt: skip


class Classifier(nn.Module):
    """Features of an image, their mean, and a last layer."""

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features, self.head = features, head

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.features(image).mean((2, 3)))


def resnet50() -> nn.Module:
    return Classifier(resnet50_features(), nn.Linear(2048, 1000))


def mobilenet_v3_large() -> nn.Module:
    """Howard et al., 2019, table 1."""
    layers, channels = [conv_bn(3, 16, 3, 2, act=nn.Hardswish())], 16
    # Kernel, hidden, out, squeeze and excite, hard swish, stride.
    table = [
        (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1),
        (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
        (3, 184, 80, 0, 1, 1), (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2),
        (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1),
    ]  # fmt: skip
    for kernel, hidden, out, excites, swish, stride in table:
        excite = SqueezeExcite(hidden, (hidden // 4 + 7) // 8 * 8, nn.ReLU(), nn.Hardsigmoid()) if excites else None
        layers.append(Inverted(channels, hidden, out, kernel, stride, nn.Hardswish if swish else nn.ReLU, excite))
        channels = out
    layers.append(conv_bn(channels, 960, 1, act=nn.Hardswish()))
    return Classifier(
        nn.Sequential(*layers), nn.Sequential(nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000))
    )


def efficientnet_b0() -> nn.Module:
    """Tan and Le, 2019, table 1."""
    layers, channels = [conv_bn(3, 32, 3, 2, act=nn.SiLU())], 32
    # Expansion, kernel, stride, out, count.
    table = [
        (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    ]  # fmt: skip
    for expansion, kernel, stride, out, count in table:
        for i in range(count):
            hidden = channels * expansion
            excite = SqueezeExcite(hidden, max(1, channels // 4), nn.SiLU(), nn.Sigmoid())
            layers.append(Inverted(channels, hidden, out, kernel, stride if i == 0 else 1, nn.SiLU, excite))
            channels = out
    return Classifier(nn.Sequential(*layers, conv_bn(channels, 1280, 1, act=nn.SiLU())), nn.Linear(1280, 1000))


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm, self.feed = nn.LayerNorm(channels, eps=1e-6), Feed(channels, 4 * channels, nn.GELU())
        self.scale = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.feed(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        return x + (self.scale * y).permute(0, 3, 1, 2)


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of an image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext_tiny() -> nn.Module:
    """Liu et al., 2022."""
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96)]
    for stage, (channels, count) in enumerate(((96, 3), (192, 3), (384, 9), (768, 3))):
        if stage > 0:
            layers += [ChannelNorm(channels // 2), nn.Conv2d(channels // 2, channels, 2, 2)]
        layers += [ConvNeXtBlock(channels) for _ in range(count)]
    return Classifier(nn.Sequential(*layers), nn.Sequential(nn.LayerNorm(768, eps=1e-6), nn.Linear(768, 1000)))


class SplitBlock(nn.Module):
    """Half of the channels go through residual blocks, and every stage is kept: C2f of YOLOv8."""

    def __init__(self, channels: int, out: int, count: int, shortcut: bool) -> None:
        super().__init__()
        half = out // 2
        self.first, self.shortcut = conv_bn(channels, out, 1, act=nn.SiLU()), shortcut
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(conv_bn(half, half, 3, act=nn.SiLU()), conv_bn(half, half, 3, act=nn.SiLU()))
                for _ in range(count)
            ]
        )
        self.last = conv_bn((2 + count) * half, out, 1, act=nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            y = block(parts[-1])
            parts.append(parts[-1] + y if self.shortcut else y)
        return self.last(torch.cat(parts, 1))


class Pyramid(nn.Module):
    """Windows of three sizes side by side: SPPF of YOLOv5 and v8."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.pool = conv_bn(channels, channels // 2, 1, act=nn.SiLU()), nn.MaxPool2d(5, 1, 2)
        self.last = conv_bn(2 * channels, channels, 1, act=nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    """Jocher et al., YOLOv8, the size n, 80 classes: up to the boxes as distances on three grids."""

    def __init__(self) -> None:
        super().__init__()
        silu = nn.SiLU()
        self.stem = nn.Sequential(
            conv_bn(3, 16, 3, 2, act=silu), conv_bn(16, 32, 3, 2, act=silu), SplitBlock(32, 32, 1, True),
            conv_bn(32, 64, 3, 2, act=silu), SplitBlock(64, 64, 2, True),
        )  # fmt: skip
        self.middle = nn.Sequential(conv_bn(64, 128, 3, 2, act=silu), SplitBlock(128, 128, 2, True))
        self.deep = nn.Sequential(conv_bn(128, 256, 3, 2, act=silu), SplitBlock(256, 256, 1, True), Pyramid(256))
        self.up = nn.Upsample(scale_factor=2)
        self.up_middle, self.up_fine = SplitBlock(384, 128, 1, False), SplitBlock(192, 64, 1, False)
        self.down_fine, self.down_middle = conv_bn(64, 64, 3, 2, act=silu), conv_bn(128, 128, 3, 2, act=silu)
        self.out_middle, self.out_deep = SplitBlock(192, 128, 1, False), SplitBlock(384, 256, 1, False)
        self.boxes = nn.ModuleList([self._head(c, 64, 64) for c in (64, 128, 256)])
        self.classes = nn.ModuleList([self._head(c, 80, 80) for c in (64, 128, 256)])

    @staticmethod
    def _head(channels: int, hidden: int, out: int) -> nn.Module:
        silu = nn.SiLU()
        return nn.Sequential(
            conv_bn(channels, hidden, 3, act=silu), conv_bn(hidden, hidden, 3, act=silu), nn.Conv2d(hidden, out, 1)
        )

    def forward(self, image: Tensor) -> Tensor:
        fine = self.stem(image)
        middle = self.middle(fine)
        deep = self.deep(middle)
        merged = self.up_middle(torch.cat((self.up(deep), middle), 1))
        fine = self.up_fine(torch.cat((self.up(merged), fine), 1))
        middle = self.out_middle(torch.cat((self.down_fine(fine), merged), 1))
        deep = self.out_deep(torch.cat((self.down_middle(middle), deep), 1))
        heads = [
            torch.cat((boxes(x), classes(x)), 1).flatten(2)
            for boxes, classes, x in zip(self.boxes, self.classes, (fine, middle, deep))
        ]
        all_places = torch.cat(heads, 2)
        distances, scores = all_places.split((64, 80), 1)
        weights = distances.unflatten(1, (4, 16)).softmax(2)
        bins = torch.arange(16, dtype=torch.float32)[:, None]
        return torch.cat(((weights * bins).sum(2), scores.sigmoid()), 1)


class Bert(nn.Module):
    """Devlin et al., 2018, base: without a pooler, all tokens of one kind."""

    def __init__(self, length: int = 128, dim: int = 768) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30522, dim), nn.Parameter(torch.randn(length, dim))
        self.norm = nn.LayerNorm(dim)
        self.blocks = nn.ModuleList([PostNormBlock(dim, 12, 4 * dim, nn.GELU()) for _ in range(12)])

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.words(tokens) + self.places)
        for block in self.blocks:
            x = block(x)
        return x


class BertOfTransformers(nn.Module):
    """The same as people have it: BertModel of the package transformers, with attention of torch (sdpa)."""

    def __init__(self) -> None:
        import transformers  # Only for this one.

        super().__init__()
        config = transformers.BertConfig(attn_implementation="sdpa")
        self.model = transformers.BertModel(config, add_pooling_layer=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens).last_hidden_state


class VisionTransformer(nn.Module):
    """Dosovitskiy et al., 2020, base, patches of 16."""

    def __init__(self, dim: int = 768) -> None:
        super().__init__()
        self.patches, self.first = nn.Conv2d(3, dim, 16, 16), nn.Parameter(torch.randn(1, 1, dim))
        self.places = nn.Parameter(torch.randn(1, 197, dim) * 0.1)
        self.blocks = nn.Sequential(*(PreNormBlock(dim, 12, nn.GELU()) for _ in range(12)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 1000)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), dim=1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class UNet(nn.Module):
    """A denoiser of latent images: residual blocks with the time, cross attention to 77 tokens at two of 3 sizes."""

    def __init__(self, base: int = 128, context: int = 768) -> None:
        super().__init__()
        time, widths = 4 * base, (base, 2 * base, 4 * base)
        self.register_buffer("frequencies", sinusoids(1000, base))
        self.time = nn.Sequential(nn.Linear(base, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(4, base, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        channels, kept = base, [base]
        for level, width in enumerate(widths):
            for _ in range(2):
                self.down.append(self.level(channels, width, time, context, level > 0))
                channels = width
                kept.append(channels)
            if level < 2:
                self.down.append(nn.Conv2d(channels, channels, 3, 2, 1))
                kept.append(channels)
        self.middle = nn.ModuleList(
            [self.level(channels, channels, time, context, True), ResidualBlock(channels, channels, time)]
        )
        for level, width in reversed(list(enumerate(widths))):
            for _ in range(3):
                self.up.append(self.level(channels + kept.pop(), width, time, context, level > 0))
                channels = width
            if level > 0:
                self.up.append(Upsample(channels))
        self.norm, self.last = nn.GroupNorm(32, channels), nn.Conv2d(channels, 4, 3, padding=1)

    @staticmethod
    def level(c_in: int, c_out: int, time: int, context: int, attends: bool) -> nn.ModuleList:
        parts: list[nn.Module] = [ResidualBlock(c_in, c_out, time)]
        return nn.ModuleList(parts + ([ImageAttention(c_out, c_out // 64, context)] if attends else []))

    @staticmethod
    def through(parts: nn.Module, x: Tensor, time: Tensor, context: Tensor) -> Tensor:
        if not isinstance(parts, nn.ModuleList):
            return parts(x)
        x = parts[0](x, time)
        return parts[1](x, context) if len(parts) > 1 else x

    def forward(self, latent: Tensor, step: Tensor, context: Tensor) -> Tensor:
        time = self.time(self.frequencies[step])
        x = self.first(latent)
        kept = [x]
        for parts in self.down:
            x = self.through(parts, x, time, context)
            kept.append(x)
        x = self.middle[1](self.through(self.middle[0], x, time, context), time)
        for parts in self.up:
            x = torch.cat((x, kept.pop()), dim=1) if isinstance(parts, nn.ModuleList) else x
            x = self.through(parts, x, time, context)
        return self.last(F.silu(self.norm(x)))


def vae_decoder() -> nn.Module:
    """Latents of 4 channels to images of 8 times the size."""
    layers: list[nn.Module] = [
        nn.Conv2d(4, 512, 3, padding=1),
        ResidualBlock(512, 512),
        ImageAttention(512, 1),
        ResidualBlock(512, 512),
    ]
    channels = 512
    for level, width in enumerate((512, 512, 256, 128)):
        for _ in range(3):
            layers.append(ResidualBlock(channels, width))
            channels = width
        layers += [Upsample(channels)] if level < 3 else []
    return nn.Sequential(*layers, nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, 3, 3, padding=1))


class Detr(nn.Module):
    """Carion et al., 2020: ResNet-50, encoder and decoder of 6 blocks, 100 queries, classes and boxes."""

    def __init__(self, dim: int = 256) -> None:
        super().__init__()
        self.backbone, self.project = resnet50_features(), nn.Conv2d(2048, dim, 1)
        self.places, self.queries = nn.Parameter(torch.randn(400, dim)), nn.Parameter(torch.randn(1, 100, dim))
        self.encoder = nn.ModuleList([PostNormBlock(dim, 8, 2048, nn.ReLU()) for _ in range(6)])
        self.decoder = nn.ModuleList([PostNormBlock(dim, 8, 2048, nn.ReLU(), cross=True) for _ in range(6)])
        self.classes = nn.Linear(dim, 92)
        self.boxes = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 4))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        memory = self.project(self.backbone(image)).flatten(2).transpose(1, 2) + self.places
        for block in self.encoder:
            memory = block(memory)
        x = self.queries.expand(image.shape[0], -1, -1)
        for block in self.decoder:
            x = block(x, memory)
        return self.classes(x), self.boxes(x).sigmoid()


class WhisperEncoder(nn.Module):
    """Radford et al., 2022, base: 30 seconds of 80 bands."""

    def __init__(self, dim: int = 512) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(80, dim, 3, padding=1), nn.Conv1d(dim, dim, 3, 2, 1)
        self.register_buffer("places", sinusoids(1500, dim))
        self.blocks = nn.Sequential(*(PreNormBlock(dim, 8, nn.GELU()) for _ in range(6)))
        self.norm = nn.LayerNorm(dim)

    def forward(self, bands: Tensor) -> Tensor:
        x = F.gelu(self.conv2(F.gelu(self.conv1(bands)))).transpose(1, 2)
        return self.norm(self.blocks(x + self.places))


class Gpt2(nn.Module):
    """Radford et al., 2019, the small one; the last layer is the embedding."""

    def __init__(self, length: int = 128, dim: int = 768, words: int = 50257) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, dim), nn.Parameter(torch.randn(length, dim) * 0.02)
        nn.init.normal_(self.words.weight, std=0.02)
        self.blocks = nn.Sequential(
            *(PreNormBlock(dim, 12, nn.GELU(approximate="tanh"), causal=True) for _ in range(12))
        )
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.linear(self.norm(self.blocks(self.words(tokens) + self.places)), self.words.weight)


class RmsNorm(nn.Module):
    """x over the root of its mean square, written out in float32, as exporters find it."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, dim: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(dim), RmsNorm(dim)
        self.attention = Attention(dim, heads, kv_heads=kv_heads, causal=True, bias=False)
        self.gate, self.up, self.down = (
            nn.Linear(*shape, bias=False) for shape in ((dim, hidden), (dim, hidden), (hidden, dim))
        )

    def forward(self, x: Tensor, positions: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.attention(self.norm1(x), positions=positions)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Touvron et al., 2023, with shared heads of keys and values; the last layer is the embedding."""

    def __init__(self, length: int = 128, dim: int = 1024, heads: int = 16, words: int = 32000) -> None:
        super().__init__()
        self.words = nn.Embedding(words, dim)
        nn.init.normal_(self.words.weight, std=0.02)
        self.blocks = nn.ModuleList([LlamaBlock(dim, heads, heads // 4, 2816) for _ in range(8)])
        self.norm = RmsNorm(dim)
        half = dim // heads // 2
        angle = torch.arange(length)[:, None] * 10000 ** (-torch.arange(half) / half)[None]
        self.register_buffer("cosine", torch.cat((angle, angle), 1).cos())
        self.register_buffer("sine", torch.cat((angle, angle), 1).sin())

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, (self.cosine, self.sine))
        return F.linear(self.norm(x), self.words.weight)


class Lstm(nn.Module):
    """Two layers in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(256, 512, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


Inputs = dict[str, Tensor]


def images(size: int) -> Callable[[int, torch.Generator], Inputs]:
    return lambda batch, random: {"image": torch.randn(batch, 3, size, size, generator=random)}


def tokens(words: int) -> Callable[[int, torch.Generator], Inputs]:
    return lambda batch, random: {"tokens": torch.randint(0, words, (batch, 128), generator=random)}


def values(**shapes: tuple[int, ...]) -> Callable[[int, torch.Generator], Inputs]:
    return lambda batch, random: {name: torch.randn(batch, *shape, generator=random) for name, shape in shapes.items()}


def unet_inputs(batch: int, random: torch.Generator) -> Inputs:
    return {
        **values(latent=(4, 64, 64))(batch, random),
        "step": torch.full((batch,), 500),
        **values(context=(77, 768))(batch, random),
    }


class Kind(NamedTuple):
    make: Callable[[], nn.Module]
    inputs: Callable[[int, torch.Generator], Inputs]
    batches: tuple[int, ...] = (1,)
    convolutional: bool = False  # Torch runs it channels last.


KINDS: dict[str, Kind] = {
    "resnet50": Kind(resnet50, images(224), (1, 8, 32), True),
    "bert_base": Kind(Bert, tokens(30522), (1, 8, 32)),
    "transformers_bert": Kind(BertOfTransformers, tokens(30522), (1, 8, 32)),
    "vit_b_16": Kind(VisionTransformer, images(224), (1, 8, 32)),
    "unet": Kind(UNet, unet_inputs, convolutional=True),
    "vae_decoder": Kind(vae_decoder, values(latent=(4, 32, 32)), convolutional=True),
    "convnext_tiny": Kind(convnext_tiny, images(224), (1, 8), True),
    "mobilenet_v3_large": Kind(mobilenet_v3_large, images(224), (1, 8), True),
    "efficientnet_b0": Kind(efficientnet_b0, images(224), (1, 8), True),
    "yolov8n": Kind(Yolo, images(640), (1, 8), True),
    "detr": Kind(Detr, images(640), convolutional=True),
    "whisper_encoder": Kind(WhisperEncoder, values(bands=(80, 3000))),
    "gpt2": Kind(Gpt2, tokens(50257), (1, 8)),
    "llama": Kind(Llama, tokens(32000), (1, 8)),
    "lstm": Kind(Lstm, values(x=(100, 256)), (1, 8)),
}
NAMES = tuple(f"{kind}_b{batch}" for kind, entry in KINDS.items() for batch in entry.batches)


class Built(NamedTuple):
    name: str
    kind: Kind
    network: nn.Module
    inputs: Inputs


def build(name: str) -> Built:
    """The network and inputs of a name of NAMES, "resnet50_b8", in float32 on the CPU; the same at every call."""
    kind_name, _, batch = name.rpartition("_b")
    kind = KINDS[kind_name]
    torch.manual_seed(0)
    network = kind.make()
    random = torch.Generator().manual_seed(1)
    settle(network, list(kind.inputs(1, random).values()))
    return Built(name, kind, network.requires_grad_(False), kind.inputs(int(batch), random))


def chosen(patterns: list[str], parser: Optional[Any] = None) -> list[str]:
    """The names that begin with one of the patterns, all of them without any; the parser tells what is unknown."""
    for pattern in patterns:
        if not any(name.startswith(pattern) for name in NAMES) and parser is not None:
            parser.error(f"expected beginnings of {', '.join(NAMES)}; got {pattern!r}")
    return [name for name in NAMES if not patterns or any(name.startswith(pattern) for pattern in patterns)]
