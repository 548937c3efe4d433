"""Exports further networks of random weights, which estimates.py judges by: other_networks.py FOLDER TABLE [NAME...]

TABLE is `held-out`: those that no fit of a target has seen; or `fitted`: those whose kernels are in
measured/h100.inside.json (beside them ocr_cls and ocr_det of build/models). The batch is dynamic: estimates.py takes
NAME.onnx@image=8x3x224x224. Needs torch, torchvision, timm and transformers.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any, Callable

import timm
import torch
import torchvision
import transformers
from torch import Tensor, nn

import networks

Entry = tuple[Callable[[], nn.Module], networks.Inputs]


class Hidden(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(input_ids=tokens).last_hidden_state


class Segmentation(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.model = torchvision.models.get_model(name, weights=None, weights_backbone=None)

    def forward(self, image: Tensor) -> Tensor:
        return self.model(image)["out"]


def of_torchvision(name: str, size: int = 224, **options: Any) -> Entry:
    make = lambda: torchvision.models.get_model(name, weights=None, **options)  # noqa: E731
    return make, {"image": torch.randn(1, 3, size, size)}


def of_timm(name: str, size: int = 224) -> Entry:
    make = lambda: timm.create_model(name, pretrained=False, exportable=True)  # noqa: E731
    return make, {"image": torch.randn(1, 3, size, size)}


def of_transformers(kind: str, model: str = "", length: int = 128, **options: Any) -> Entry:
    def make() -> nn.Module:
        config = getattr(transformers, f"{kind}Config")(attn_implementation="eager", **options)
        return Hidden(getattr(transformers, model or f"{kind}Model")(config))

    return make, {"tokens": torch.randint(0, 30000, (1, length))}


def of_bench(name: str) -> Entry:
    kind = networks.KINDS[name]
    return kind.make, kind.inputs(1, torch.Generator().manual_seed(1))


def tables() -> dict[str, dict[str, Entry]]:
    held_out = {
        "googlenet": of_torchvision("googlenet", aux_logits=False, init_weights=False),
        "resnext50": of_torchvision("resnext50_32x4d"), "squeezenet": of_torchvision("squeezenet1_1"),
        "mnasnet": of_torchvision("mnasnet1_0"), "deit_small": of_timm("deit_small_patch16_224"),
        "mixer_s16": of_timm("mixer_s16_224"), "ghostnet": of_timm("ghostnet_100"), "repvgg_a1": of_timm("repvgg_a1"),
        "poolformer": of_timm("poolformer_s12"), "distilbert": of_transformers("DistilBert"),
        "t5_encoder": of_transformers("T5", "T5EncoderModel"), "electra_small": of_transformers("Electra"),
        "lraspp": (lambda: Segmentation("lraspp_mobilenet_v3_large"), {"image": torch.randn(1, 3, 320, 320)}),
    }  # fmt: skip
    for name in ("resnet34", "densenet121", "regnet_y_800mf", "mobilenet_v2", "swin_t", "vgg16"):
        held_out[name] = of_torchvision(name)
    held_out.update({name: of_bench(name) for name in ("gpt2", "llama", "detr", "vae_decoder", "unet")})
    fitted = {
        "shufflenet": of_torchvision("shufflenet_v2_x1_0"), "resnet18_448": of_torchvision("resnet18", 448),
        "regnet_x_400mf": of_torchvision("regnet_x_400mf"), "mobilevit_s": of_timm("mobilevit_s", 256),
        "vit_tiny": of_timm("vit_tiny_patch16_224"), "hrnet_w18_small": of_timm("hrnet_w18_small"),
        "inception_next": of_timm("inception_next_atto"), "mobilenetv1": of_timm("mobilenetv1_100"),
        "roberta_small": of_transformers("Roberta", length=64, hidden_size=384, num_hidden_layers=6,
                                         num_attention_heads=6, intermediate_size=1536),
    }  # fmt: skip
    for name in ("resnet50", "bert_base", "vit_b_16", "convnext_tiny", "mobilenet_v3_large", "efficientnet_b0",
                 "yolov8n", "whisper_encoder", "lstm"):  # fmt: skip
        fitted[name] = of_bench(name)
    return {"held-out": held_out, "fitted": fitted}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("table", choices=("held-out", "fitted"))
    parser.add_argument("names", nargs="*", help="default: all")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, (make, inputs) in tables()[options.table].items():
        if options.names and name not in options.names:
            continue
        torch.manual_seed(0)
        network = make().eval().requires_grad_(False)
        path = options.folder / f"{name}.onnx"
        with torch.no_grad():
            torch.onnx.export(
                network, tuple(inputs.values()), str(path), input_names=list(inputs), dynamo=False, opset_version=17,
                dynamic_axes={key: {0: "batch"} for key in inputs},
            )  # fmt: skip
        print(path, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
