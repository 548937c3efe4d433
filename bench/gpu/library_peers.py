"""Networks of torchvision, timm and transformers in float16 on a GPU, beside torch: library_peers.py FOLDER [NAME...]

Exports each network with random weights to FOLDER/NAME.onnx (those that are there stay), runs it with ulpscope, and
prints a line: microseconds of ulpscope, of torch in a CUDA graph (the better of both memory formats for images) and,
with --compile, of torch.compile (reduce-overhead); ours over the best of them; the error (relative L2) of ulpscope in
float32 and in float16, and of torch in float16, each against torch in float32; the seconds of the first run; layers
that the CPU ran.

Times are the least of 100 runs between two events, inputs being there. Each network has a process of its own, --jobs at
a time, and one of them measures at a time. Needs torch 2.6 or later, onnxscript, and the three libraries.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fcntl
import functools
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from typing import Any, Optional

import numpy as np
import timm
import torch
import torchvision
import transformers
from torch import Tensor, nn

import peers
import ulpscope

Network = tuple[nn.Module, Tensor]
TIMM = {
    "dinov2_s": ("vit_small_patch14_dinov2.lvd142m", 518), "convnext": ("convnext_nano", 224),
    "beit": ("beit_base_patch16_224", 224), "cait": ("cait_xxs24_224", 224), "coat": ("coat_lite_mini", 224),
    "crossvit": ("crossvit_small_240", 240), "edgenext": ("edgenext_small", 256),
    "eva02": ("eva02_tiny_patch14_336", 336), "gcvit": ("gcvit_xxtiny", 224), "levit": ("levit_256", 224),
    "mvitv2": ("mvitv2_tiny", 224), "pvt_v2": ("pvt_v2_b1", 224),
    "volo": ("volo_d1_224", 224), "xcit": ("xcit_small_12_p16_224", 224), "focalnet": ("focalnet_tiny_srf", 224),
    "davit": ("davit_tiny", 224), "nextvit": ("nextvit_small", 224), "fastvit": ("fastvit_t8", 256),
    "mobilevitv2": ("mobilevitv2_100", 256), "tiny_vit": ("tiny_vit_11m_224", 224),
    "efficientformer": ("efficientformer_l1", 224), "inception_v4": ("inception_v4", 299),
    "resnest": ("resnest14d", 224),
    "dla": ("dla34", 224), "nfnet": ("dm_nfnet_f0", 192), "botnet": ("botnet26t_256", 256),
    "lambda": ("lambda_resnet26t", 256), "halonet": ("halonet26t", 256),
}  # fmt: skip
TORCHVISION = {
    "swin_t": 224, "swin_v2_t": 256, "maxvit_t": 224, "efficientnet_v2_s": 300, "regnet_y_400mf": 224,
    "resnet50": 224,
}  # fmt: skip
SMALL = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536, "num_hidden_layers": 3}
DECODER = {
    "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 1408,
    "num_hidden_layers": 4, "use_cache": False,
}  # fmt: skip
TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaModel", "LlamaConfig", {**DECODER, "num_hidden_layers": 6}),
    "qwen2": ("Qwen2Model", "Qwen2Config", DECODER),
    "gemma": ("GemmaModel", "GemmaConfig", {**DECODER, "head_dim": 64}),
    "mamba": ("MambaModel", "MambaConfig", {"hidden_size": 256, "num_hidden_layers": 2, "use_cache": False}),
    "mamba2": ("Mamba2Model", "Mamba2Config", {
        "hidden_size": 512, "num_hidden_layers": 8, "num_heads": 16, "head_dim": 64, "n_groups": 1, "chunk_size": 64,
        "state_size": 64, "use_cache": False,
    }),
    "gpt2": ("GPT2Model", "GPT2Config", {"n_layer": 4, "n_embd": 512, "n_head": 8, "use_cache": False}),
    "bloom": ("BloomModel", "BloomConfig", {"n_layer": 3, "hidden_size": 512, "n_head": 8, "use_cache": False}),
    "xlnet": ("XLNetModel", "XLNetConfig", {"n_layer": 3, "d_model": 384, "n_head": 6, "d_inner": 1536}),
    "deberta_v2": ("DebertaV2Model", "DebertaV2Config", {
        **SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 32,
    }),
    "mpnet": ("MPNetModel", "MPNetConfig", SMALL), "albert": ("AlbertModel", "AlbertConfig", {
        "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072,
    }),
    "roberta": ("RobertaModel", "RobertaConfig", {"num_hidden_layers": 3}),
    "t5": ("T5EncoderModel", "T5Config", {"num_layers": 3}),
    "squeezebert": ("SqueezeBertModel", "SqueezeBertConfig", {"num_hidden_layers": 3}),
    "fnet": ("FNetModel", "FNetConfig", {"num_hidden_layers": 3}),
}  # fmt: skip
WORDS, RUNS = 8000, 100


class Hidden(nn.Module):
    """Tokens to the last hidden state."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).last_hidden_state


class Segmenter(nn.Module):
    """SegFormer-B0 of 150 classes, enlarged to the size of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.model = transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(num_labels=150))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.interpolate(self.model(x).logits, size=x.shape[-2:], mode="bilinear", align_corners=False)


def build(name: str) -> Network:
    torch.manual_seed(0)
    if name == "segformer_b0":
        return Segmenter().eval(), torch.randn(1, 3, 512, 512)
    if name in TORCHVISION:
        size = TORCHVISION[name]
        return torchvision.models.get_model(name, weights=None).eval(), torch.randn(1, 3, size, size)
    if name in TIMM:
        model, size = TIMM[name]
        return timm.create_model(model, pretrained=False).eval(), torch.randn(1, 3, size, size)
    model, config, options = TRANSFORMERS[name]
    made = getattr(transformers, model)(getattr(transformers, config)(vocab_size=WORDS, **options))
    length = {"mamba": 32, "mamba2": 128}.get(name, 64)
    return Hidden(made).eval(), torch.randint(0, WORDS, (1, length))


def distance(given: np.ndarray, right: np.ndarray) -> float:
    wide = right.astype(np.float64)
    return float(np.linalg.norm(given.astype(np.float64) - wide) / np.linalg.norm(wide))


class Alone:
    """Nobody else measures meanwhile."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._file = self._path.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


def of_ulpscope(path: pathlib.Path, x: np.ndarray, right: np.ndarray, alone: Alone) -> dict[str, Any]:
    (name,) = (each.name for each in ulpscope.Engine(path).inputs)
    begin = time.monotonic()
    engine = ulpscope.Engine(path, precision="fp16", backend="cuda")
    (given,) = engine.run({name: x}).values()
    first = time.monotonic() - begin
    (exact,) = ulpscope.Engine(path, backend="cuda").run({name: x}).values()
    with alone:
        times = [engine.device_microseconds([x.shape]) for _ in range(3)]
    ours = None if None in times else min(time for time in times if time is not None)
    return {"ours": ours, "first": first, "fp32": distance(exact, right), "fp16": distance(given, right)}


def of_torch(network: nn.Module, x: Tensor, right: np.ndarray, compile_too: bool, alone: Alone) -> dict[str, Any]:
    network, x = network.half().cuda(), x.cuda().half() if x.is_floating_point() else x.cuda()
    found: dict[str, Any] = {"torch": distance(network(x).float().cpu().numpy(), right)}
    torch.backends.cudnn.benchmark = True
    try:
        for memory in (torch.contiguous_format, torch.channels_last) if x.dim() == 4 else (torch.contiguous_format,):
            network, x = network.to(memory_format=memory), x.to(memory_format=memory) if x.dim() == 4 else x
            replay = peers.in_graph(functools.partial(network, x))
            with alone:
                found["graph"] = min(found.get("graph", float("inf")), peers.microseconds(replay, RUNS))
    except RuntimeError:  # It copies from the CPU on its way.
        pass
    if compile_too:
        compiled = torch.compile(network, mode="reduce-overhead")
        for _ in range(3):
            compiled(x)
        with alone:
            found["compile"] = peers.microseconds(lambda: compiled(x), RUNS)
    return found


def measure(name: str, folder: pathlib.Path, compile_too: bool) -> dict[str, Any]:
    network, x = build(name)
    network.requires_grad_(False)
    path, alone = folder / f"{name}.onnx", Alone(pathlib.Path(tempfile.gettempdir()) / "library_peers.lock")
    if not path.exists():
        torch.onnx.export(network, (x,), str(path), dynamo=True, external_data=False, verbose=False, input_names=["x"])
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with torch.inference_mode():
        right = network.cuda()(x.cuda()).cpu().numpy()
        found = of_ulpscope(path, x.numpy(), right, alone)
        return {**found, **of_torch(network, x, right, compile_too, alone)}


def line_of(name: str, found: dict[str, Any], on_cpu: str) -> str:
    def time_of(key: str) -> str:
        return f"{found[key]:.0f}" if found.get(key) else "-"

    best = min((found[key] for key in ("graph", "compile") if key in found), default=None)
    ratio = f"{found['ours'] / best:.2f}" if best and found["ours"] else "-"
    errors = " ".join(f"{found[key]:.1e}" for key in ("fp32", "fp16", "torch"))
    times = f"{time_of('ours'):>6} {time_of('graph'):>6} {time_of('compile'):>7} {ratio:>5}"
    return f"{name:18} {times}  {errors} {found['first']:5.1f}  {on_cpu}"


def main() -> int:
    names = ["segformer_b0", *TORCHVISION, *TIMM, *TRANSFORMERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--compile", action="store_true", help="torch.compile, too: up to a minute and a half each")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"unknown networks: {', '.join(sorted(unknown))}")
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.one:
        print(json.dumps(measure(options.names[0], options.folder, options.compile)))
        return 0

    def run(name: str) -> tuple[str, Optional[dict[str, Any]], str]:
        command = [sys.executable, __file__, str(options.folder), name, "--one", *["--compile"] * options.compile]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return name, None, (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:150]
        on_cpu = re.search(r"layers run on the CPU, with copies there and back: (.*)", done.stderr)
        return name, json.loads(done.stdout.splitlines()[-1]), on_cpu.group(1) if on_cpu else ""

    print(f"{'us':18} {'ours':>6} {'graph':>6} {'compile':>7} {'ratio':>5}  fp32    fp16    torch   first  on the CPU")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, found, text in pool.map(run, options.names or names):
            print(f"{name:18} {text}" if found is None else line_of(name, found, text), flush=True)
            failed += found is None
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
