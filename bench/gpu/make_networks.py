"""Exports networks of random weights to ONNX files in float32: make_networks.py FOLDER [NAME...]

A name is the beginning of one or several of networks.NAMES ("resnet50_b8", "resnet50", "llama"); none: all of them,
about 5 GB. Files that are there already stay, unless --again is given. --inputs writes NAME.npz with a sample of the
inputs beside each file. Needs torch 2.6 or later, onnx and onnxscript.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time
import warnings

import numpy as np
import torch

import networks


def export(name: str, path: pathlib.Path, sample: bool) -> None:
    """Writes the file whole or not at all."""
    built = networks.build(name)
    if sample:
        np.savez(path.with_suffix(".npz"), **{key: value.numpy() for key, value in built.inputs.items()})
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            built.network, tuple(built.inputs.values()), str(fresh), dynamo=True, external_data=False, verbose=False,
            input_names=list(built.inputs),
        )  # fmt: skip
    fresh.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="beginnings of names (default: all)")
    parser.add_argument("--again", action="store_true", help="also those that are there")
    parser.add_argument("--inputs", action="store_true", help="write NAME.npz, too")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in networks.chosen(options.names, parser):
        path, begin = options.folder / f"{name}.onnx", time.monotonic()
        if path.exists() and not options.again and (path.with_suffix(".npz").exists() or not options.inputs):
            continue
        try:
            export(name, path, options.inputs)
        except Exception as error:  # One that cannot be exported does not keep the others.
            print(
                f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", file=sys.stderr
            )
            failed += 1
            continue
        print(f"{path}: {path.stat().st_size / 1e6:.0f} MB, {time.monotonic() - begin:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
