"""What the makers of random models share: their command line, MAKER.py FOLDER [COUNT] [SEED]."""

from __future__ import annotations

import argparse
import pathlib
import random
from typing import Callable

import onnx


def write_all(usage: str, stem: str, count: int, network: Callable[[random.Random, int], onnx.ModelProto]) -> int:
    """Writes FOLDER/STEM0.onnx and so on, `count` by default, and prints the seed; the status of the program."""
    parser = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER", help="where they go; it is made")
    parser.add_argument(
        "count", type=int, nargs="?", default=count, metavar="COUNT", help=f"how many (default {count})"
    )
    parser.add_argument(
        "seed", type=int, nargs="?", metavar="SEED", help="of all of them (default: another one each time)"
    )
    options = parser.parse_args()
    seed = random.randrange(1 << 31) if options.seed is None else options.seed
    print(f"seed {seed}")
    options.folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(seed)
    for index in range(options.count):
        onnx.save(network(generator, index), str(options.folder / f"{stem}{index}.onnx"))
    return 0
