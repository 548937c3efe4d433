"""What the makers of random models share: their command line, MAKER.py FOLDER [COUNT] [SEED]."""

from __future__ import annotations

import pathlib
import random
import sys
from typing import Callable

import onnx


def write_all(usage: str, stem: str, count: int, network: Callable[[random.Random, int], onnx.ModelProto]) -> int:
    """Writes FOLDER/STEM0.onnx and so on, `count` by default, and prints the seed; the status of the program."""
    if not 2 <= len(sys.argv) <= 4:
        print(usage, file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else count
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 31)
    print(f"seed {seed}")
    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(seed)
    for index in range(count):
        onnx.save(network(generator, index), str(folder / f"{stem}{index}.onnx"))
    return 0
