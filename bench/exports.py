"""Exports networks of many kinds to ONNX files in float32, with a sample of inputs each: exports.py FOLDER [NAME...]

A name is one of the list, or timm:NAME, any classifier of timm's at its own input size. Writes NAME.onnx and NAME.npz, which `forward.py --folder FOLDER` runs beside ONNX Runtime. Weights are random: speed does
not depend on them. Needs torch 2.6 or later, onnxscript, torchvision and timm; none of them is a requirement of ulpscope.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import io
import pathlib
import sys
from typing import Any, Callable, Dict, NamedTuple, Tuple

import torch
from torch import Tensor, nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "gpu"))
import make_networks  # noqa: E402  (the folder beside this file)
import networks  # noqa: E402


class Recurrent(nn.Module):
    """A recurrent network between two linear layers, as speech enhancers have it: a mask for every frame."""

    def __init__(self, kind: type, bins: int, hidden: int, layers: int, bidirectional: bool = False) -> None:
        super().__init__()
        self.inward = nn.Linear(bins, hidden)
        self.cells = kind(hidden, hidden, layers, batch_first=True, bidirectional=bidirectional)
        self.outward = nn.Linear(hidden * (2 if bidirectional else 1), bins)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.outward(self.cells(torch.relu(self.inward(x)))[0]))


class TextReader(nn.Module):
    """Convolutions over a line of text, two bidirectional LSTM layers over its columns."""

    def __init__(self) -> None:
        super().__init__()
        channels, layers = (1, 64, 128, 256, 256, 512), []
        for i, (a, b) in enumerate(zip(channels, channels[1:])):
            layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()]
            layers.append(nn.MaxPool2d(2) if i < 2 else nn.MaxPool2d((2, 1)))
        self.features = nn.Sequential(*layers)
        self.cells = nn.LSTM(512, 256, 2, bidirectional=True)
        self.outward = nn.Linear(512, 97)

    def forward(self, x: Tensor) -> Tensor:
        return self.outward(self.cells(self.features(x).squeeze(2).permute(2, 0, 1))[0])


class VoiceDetector(nn.Module):
    """Frames by a strided convolution, an encoder, one step of an LSTM with its state as input and output."""

    def __init__(self) -> None:
        super().__init__()
        self.spectrum = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        sizes = (129, 128, 64, 64, 128)
        self.encoder = nn.Sequential(
            *[m for i in range(4) for m in (nn.Conv1d(sizes[i], sizes[i + 1], 3, stride=2 if i in (1, 2) else 1, padding=1),
                                            nn.ReLU())]
        )  # fmt: skip
        self.cell = nn.LSTMCell(128, 128)
        self.outward = nn.Conv1d(128, 1, 1)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        real, imaginary = self.spectrum(nn.functional.pad(x, (0, 64)).unsqueeze(1)).chunk(2, 1)
        frames = self.encoder(torch.sqrt(real**2 + imaginary**2))
        h, c = self.cell(frames[:, :, -1], (h, c))
        return torch.sigmoid(self.outward(torch.relu(h).unsqueeze(-1))).mean((1, 2)), h, c


class TimeConvolutions(nn.Module):
    """Residual convolutions over time, dilated or not: recognizers, keyword spotters, WaveNet."""

    def __init__(self, channels: int, kernel: int, layers: int, dilated: bool, separable: bool = False) -> None:
        super().__init__()
        blocks = []
        for i in range(layers):
            dilation = 2 ** (i % 6) if dilated else 1
            groups = channels if separable else 1
            block = [nn.Conv1d(channels, channels, kernel, padding=dilation * (kernel // 2), dilation=dilation, groups=groups)]
            if separable:
                block.append(nn.Conv1d(channels, channels, 1))
            blocks.append(nn.Sequential(*block, nn.BatchNorm1d(channels), nn.ReLU()))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


class WaveEncoder(nn.Module):
    """Waves to frames, as wav2vec 2.0 does it: seven strided convolutions, then transformer layers."""

    def __init__(self) -> None:
        super().__init__()
        layers, width = [], 1
        for i, (kernel, stride) in enumerate(((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))):
            layers += [nn.Conv1d(width, 256, kernel, stride, bias=False)]
            layers += [nn.GroupNorm(256, 256)] if i == 0 else []
            layers += [nn.GELU()]
            width = 256
        self.features = nn.Sequential(*layers)
        self.position = nn.Conv1d(256, 256, 64, padding=32, groups=16)
        block = nn.TransformerEncoderLayer(256, 4, 1024, 0.0, "gelu", batch_first=True)
        self.blocks = nn.ModuleList([copy.deepcopy(block) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        y = self.features(x.unsqueeze(1))
        y = (y + self.position(y)[:, :, :-1]).transpose(1, 2)
        for block in self.blocks:
            y = block(y)
        return y


class Synthesizer(nn.Module):
    """Text to waves as VITS and FastSpeech do it: durations are computed, so the length is known at run time only."""

    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, width)
        self.encoder = nn.ModuleList([nn.TransformerEncoderLayer(width, 2, 768, 0.0, batch_first=True) for _ in range(3)])
        self.duration = nn.Sequential(nn.Conv1d(width, width, 3, padding=1), nn.ReLU(), nn.Conv1d(width, 1, 1))
        self.flow = TimeConvolutions(width, 5, 8, dilated=False)
        widths, stages = (256, 128, 64, 32), []
        self.inward = nn.Conv1d(width, widths[0], 7, padding=3)
        for i, (rate, kernel) in enumerate(((8, 16), (8, 16), (4, 8))):
            stages.append(nn.ConvTranspose1d(widths[i], widths[i + 1], kernel, rate, padding=(kernel - rate) // 2))
            stages.append(TimeConvolutions(widths[i + 1], 3, 3, dilated=True))
            stages.append(TimeConvolutions(widths[i + 1], 7, 3, dilated=True))
        self.stages = nn.ModuleList(stages)
        self.outward = nn.Conv1d(widths[-1], 1, 7, padding=3)

    def forward(self, text: Tensor) -> Tensor:
        x = self.embedding(text)
        for block in self.encoder:
            x = block(x)
        durations = torch.ceil(torch.clamp(self.duration(x.transpose(1, 2)).squeeze(1), 0.0, 1.0) + 2.0)
        ends = torch.cumsum(durations, 1)
        length = ends[0, -1].to(torch.int64)
        frames = torch.arange(length, dtype=torch.float32).unsqueeze(1)
        inside = (frames < ends[0]) & (frames >= (ends - durations)[0])
        y = self.flow(torch.matmul(inside.to(torch.float32), x).transpose(1, 2))
        y = self.inward(y)
        for stage in self.stages:
            y = stage(nn.functional.leaky_relu(y, 0.1))
        return torch.tanh(self.outward(y))


class MaskEstimator(nn.Module):
    """A speech enhancer: convolutions over a spectrum, a recurrent layer over time, and the way back with what was skipped."""

    def __init__(self, kind: type, hidden: int) -> None:
        super().__init__()
        channels = (1, 16, 32, 64, 128)
        pairs = list(zip(channels, channels[1:]))
        self.inward = nn.ModuleList(
            [nn.Sequential(nn.Conv2d(a, b, (2, 3), (1, 2), (1, 1)), nn.BatchNorm2d(b), nn.ELU()) for a, b in pairs]
        )
        self.cells = kind(128 * 11, hidden, 2, batch_first=True)
        self.spread = nn.Linear(hidden, 128 * 11)
        self.outward = nn.ModuleList(
            [
                nn.Sequential(nn.ConvTranspose2d(2 * b, a, (2, 3), (1, 2), (0, 1)), nn.BatchNorm2d(a), nn.ELU())
                for a, b in reversed(pairs)
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        skipped = []
        for layer in self.inward:
            x = layer(x)[:, :, :-1]
            skipped.append(x)
        batch, channels, frames, bins = x.shape
        cells = self.cells(x.permute(0, 2, 1, 3).reshape(batch, frames, channels * bins))[0]
        y = self.spread(cells).reshape(batch, frames, channels, bins).permute(0, 2, 1, 3)
        for layer, other in zip(self.outward, reversed(skipped)):
            y = layer(torch.cat([y, other], 1))[:, :, :-1]
        return torch.sigmoid(y)


class Separator(nn.Module):
    """Waves of two speakers, as Conv-TasNet takes them apart: dilated depthwise convolutions over 2000 frames."""

    def __init__(self, width: int = 128, hidden: int = 256) -> None:
        super().__init__()
        self.encode, self.narrow = nn.Conv1d(1, 256, 16, 8, bias=False), nn.Conv1d(256, width, 1)
        blocks = []
        for i in range(8):
            over_time = nn.Conv1d(hidden, hidden, 3, padding=2**i, dilation=2**i, groups=hidden)
            layers = [nn.Conv1d(width, hidden, 1), nn.PReLU(), nn.GroupNorm(1, hidden), over_time, nn.PReLU()]
            blocks.append(nn.Sequential(*layers, nn.GroupNorm(1, hidden)))
        self.blocks = nn.ModuleList(blocks)
        self.rest = nn.ModuleList([nn.Conv1d(hidden, width, 1) for _ in blocks])
        self.kept = nn.ModuleList([nn.Conv1d(hidden, width, 1) for _ in blocks])
        self.mask, self.decode = nn.Conv1d(width, 512, 1), nn.ConvTranspose1d(256, 1, 16, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        frames = self.encode(x)
        y = self.narrow(frames)
        total = torch.zeros_like(y)
        for block, rest, kept in zip(self.blocks, self.rest, self.kept):
            hidden = block(y)
            y, total = y + rest(hidden), total + kept(hidden)
        masks = torch.sigmoid(self.mask(total)).chunk(2, 1)
        return torch.cat([self.decode(frames * mask) for mask in masks], 1)


class NextToken(nn.Module):
    """One token of a small GPT; the keys and values of those before are inputs and outputs."""

    def __init__(self, layers: int = 4, width: int = 256, heads: int = 8) -> None:
        super().__init__()
        self.heads, self.embedding = heads, nn.Embedding(5000, width)
        parts = {"first": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "back": nn.Linear(width, width),
                 "second": nn.LayerNorm(width), "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width)}  # fmt: skip
        self.blocks = nn.ModuleList([nn.ModuleDict(copy.deepcopy(parts)) for _ in range(layers)])
        self.outward = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 5000, bias=False))

    def forward(self, tokens: Tensor, past: Tensor) -> Tuple[Tensor, Tensor]:
        x, present = self.embedding(tokens), []
        batch, count, width = x.shape
        for i, block in enumerate(self.blocks):
            parts = block["qkv"](block["first"](x)).chunk(3, -1)
            q, k, v = (t.reshape(batch, count, self.heads, width // self.heads).transpose(1, 2) for t in parts)
            k, v = torch.cat([past[i, 0], k], 2), torch.cat([past[i, 1], v], 2)
            present.append(torch.stack([k, v]))
            scores = torch.softmax(q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5, -1)
            x = x + block["back"]((scores @ v).transpose(1, 2).reshape(batch, count, width))
            x = x + block["down"](nn.functional.gelu(block["up"](block["second"](x)), approximate="tanh"))
        return self.outward(x), torch.stack(present)


class Forecaster(nn.Module):
    """Linear layers alone, as N-BEATS stacks them."""

    def __init__(self) -> None:
        super().__init__()
        layers = [m for i in range(3) for m in (nn.Linear(256 if i else 96, 256), nn.ReLU())]
        parts = {"layers": nn.Sequential(*layers), "past": nn.Linear(256, 96), "future": nn.Linear(256, 24)}
        self.blocks = nn.ModuleList([nn.ModuleDict(copy.deepcopy(parts)) for _ in range(6)])

    def forward(self, x: Tensor) -> Tensor:
        future = torch.zeros(1)
        for block in self.blocks:
            hidden = block["layers"](x)
            x, future = x - block["past"](hidden), future + block["future"](hidden)
        return future


class Kind(NamedTuple):
    make: Callable[[], nn.Module]
    inputs: Callable[[], Dict[str, Tensor]]
    scripted: bool = False  # By the older exporter: the newer one cannot, or writes other operators than files have.


def _timm(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import timm

        return timm.create_model(name, pretrained=False)

    return make


def _random(**shapes: Tuple[int, ...]) -> Callable[[], Dict[str, Tensor]]:
    return lambda: {name: torch.randn(*shape) for name, shape in shapes.items()}


IMAGE = _random(x=(1, 3, 224, 224))
KINDS: Dict[str, Kind] = {
    **{name: Kind(_timm(name), IMAGE, True) for name in (
        "resnet18", "resnet50", "regnety_008", "shufflenet_v2_x1_0", "ghostnet_100", "efficientnet_b0", "efficientnet_lite0",
        "mobilenetv3_large_100", "mobilenetv2_100", "mnasnet_100", "convnext_atto", "densenet121", "hrnet_w18_small",
        "repvgg_a0", "dla34", "res2net50_26w_4s", "swin_tiny_patch4_window7_224", "vit_small_patch16_224",
        "mobilevit_s", "edgenext_small", "mixer_s16_224", "seresnet50", "inception_v3", "xception41", "lcnet_100")},
    "lstm": Kind(lambda: Recurrent(nn.LSTM, 128, 128, 2, True), _random(x=(1, 100, 128)), True),
    "lstm_batch": Kind(lambda: Recurrent(nn.LSTM, 64, 200, 1), _random(x=(8, 60, 64)), True),
    "gru": Kind(lambda: Recurrent(nn.GRU, 257, 256, 2), _random(x=(1, 100, 257)), True),
    "gru_wide": Kind(lambda: Recurrent(nn.GRU, 481, 512, 3), _random(x=(1, 60, 481)), True),
    "gru_step": Kind(lambda: Recurrent(nn.GRU, 257, 400, 2), _random(x=(1, 1, 257)), True),
    "rnn": Kind(lambda: Recurrent(nn.RNN, 80, 256, 2, True), _random(x=(2, 80, 80)), True),
    "text_reader": Kind(TextReader, _random(x=(1, 1, 32, 320)), True),
    "voice_detector": Kind(VoiceDetector, _random(x=(1, 512), h=(1, 128), c=(1, 128)), True),
    "conv1d": Kind(lambda: TimeConvolutions(512, 5, 6, False), _random(x=(1, 512, 200))),
    "conv1d_long": Kind(lambda: TimeConvolutions(64, 3, 12, True), _random(x=(1, 64, 4000))),
    "conv1d_separable": Kind(lambda: TimeConvolutions(256, 33, 10, False, True), _random(x=(1, 256, 300))),
    "wave_encoder": Kind(WaveEncoder, _random(x=(1, 16000)), True),
    "mask_gru": Kind(lambda: MaskEstimator(nn.GRU, 256), _random(x=(1, 1, 60, 161)), True),
    "mask_lstm": Kind(lambda: MaskEstimator(nn.LSTM, 200), _random(x=(1, 1, 40, 161)), True),
    "separator": Kind(Separator, _random(x=(1, 1, 16000)), True),
    "next_token": Kind(NextToken, lambda: {"tokens": torch.randint(0, 5000, (1, 1)), "past": torch.randn(4, 2, 1, 8, 100, 32)}, True),
    "forecaster": Kind(Forecaster, _random(x=(8, 96)), True),
    "synthesizer": Kind(Synthesizer, lambda: {"text": torch.randint(0, 100, (1, 60))}, True),
}  # fmt: skip
TIMM = "timm:"
FROM_GPU = ("unet", "vae_decoder", "convnext_tiny", "detr", "whisper_encoder", "gpt2", "llama", "bert_base_b1")


def _kind(name: str) -> Kind:
    if not name.startswith(TIMM):
        return KINDS[name]
    import timm

    name = name[len(TIMM) :]
    return Kind(_timm(name), _random(x=(1, *timm.get_pretrained_cfg(name).input_size)))


def export(name: str, path: pathlib.Path) -> None:
    if name in FROM_GPU:
        return make_networks.export(networks.chosen([name])[0], path, True)
    torch.manual_seed(7)
    torch.backends.mha.set_fastpath_enabled(False)  # Its one operator cannot be exported.
    kind = _kind(name)
    network = kind.make().eval()
    inputs = kind.inputs()
    make_networks.write_sample(inputs, path)
    options: Dict[str, Any] = {"dynamo": False, "opset_version": 17} if kind.scripted else {}
    with contextlib.redirect_stdout(io.StringIO()):
        make_networks.write(network, inputs, path, **options)


def main() -> int:
    names = (*KINDS, *FROM_GPU)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="default: all of the list")
    options = parser.parse_args()
    for name in options.names:
        if name not in names and not name.startswith(TIMM):
            parser.error(f"expected timm:NAME or one of {', '.join(names)}; got {name}")
    options.folder.mkdir(parents=True, exist_ok=True)
    paths = {name: options.folder / f"{name.removeprefix(TIMM)}.onnx" for name in options.names or names}
    return make_networks.export_each(
        {path: functools.partial(export, name, path) for name, path in paths.items() if not path.exists()}
    )


if __name__ == "__main__":
    sys.exit(main())
