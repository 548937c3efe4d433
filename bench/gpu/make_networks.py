"""Exports networks of random weights to ONNX files in float32: make_networks.py FOLDER [NAME...]

A name is the beginning of one or several of networks.NAMES ("resnet50_b8", "resnet50", "llama"); none: all of them,
several GB. Files that are there already stay, unless --again is given. --inputs writes NAME.npz with a sample of the
inputs beside each file. Needs torch 2.6 or later, onnx and onnxscript.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import sys
import time
import warnings
from typing import Any, Callable, Mapping

import numpy as np
import torch

import networks


def write(network: torch.nn.Module, inputs: Mapping[str, torch.Tensor], path: pathlib.Path, **options: Any) -> None:
    """Writes the file whole or not at all. `options`: of torch.onnx.export."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, tuple(inputs.values()), str(fresh), input_names=list(inputs), verbose=False,
            **(options or {"dynamo": True, "external_data": False}),
        )  # fmt: skip
    fresh.replace(path)


def write_sample(inputs: Mapping[str, torch.Tensor], path: pathlib.Path) -> None:
    """NAME.npz beside NAME.onnx."""
    np.savez(path.with_suffix(".npz"), **{key: value.numpy() for key, value in inputs.items()})


def export(name: str, path: pathlib.Path, sample: bool) -> None:
    """One of networks.NAMES."""
    built = networks.build(name)
    if sample:
        write_sample(built.inputs, path)
    write(built.network, built.inputs, path)


def export_each(jobs: Mapping[pathlib.Path, Callable[[], None]]) -> int:
    """Runs what writes these files, and says of each how it went; the status of the program."""
    failed = 0
    for path, job in jobs.items():
        begin = time.monotonic()
        try:
            job()
        except Exception as error:  # One that cannot be exported does not keep the others.
            print(f"{path.stem}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}", file=sys.stderr)
            failed += 1
            continue
        print(f"{path}: {path.stat().st_size / 1e6:.0f} MB, {time.monotonic() - begin:.0f} s", flush=True)
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="beginnings of names (default: all)")
    parser.add_argument("--again", action="store_true", help="also those that are there")
    parser.add_argument("--inputs", action="store_true", help="write NAME.npz, too")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    jobs = {}
    for name in networks.chosen(options.names, parser):
        path = options.folder / f"{name}.onnx"
        if options.again or not path.exists() or (options.inputs and not path.with_suffix(".npz").exists()):
            jobs[path] = functools.partial(export, name, path, options.inputs)
    return export_each(jobs)


if __name__ == "__main__":
    sys.exit(main())
