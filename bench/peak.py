"""Prints the MB that loading a model and running it takes at most (VmHWM), in this process of its own.

usage: peak.py ulpscope|onnxruntime MODEL INPUTS.npz THREADS

What the process had with Python, NumPy and the inputs, before the runtime was imported, is not counted. So this file
imports nothing else: forward.py calls it.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any, Callable, Mapping

import numpy as np

SIDES = ("ulpscope", "onnxruntime")


def load(side: str, path: pathlib.Path, threads: int) -> Callable[[Mapping[str, np.ndarray]], Any]:
    """A function that runs the model in fp32. The runtime is imported only here, so that its memory is counted."""
    if side == "ulpscope":
        import ulpscope

        return ulpscope.Engine(path, precision="fp32", fusion="full", threads=threads).run
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, dict(inputs))


def high_water_mark() -> float:
    """VmHWM of this process, in MB."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise SystemExit("/proc/self/status has no VmHWM: peak memory needs Linux")


def main() -> None:
    side, path, inputs_path, threads = sys.argv[1:]
    with np.load(inputs_path) as archive:
        inputs = {name: archive[name] for name in archive.files}
    before = high_water_mark()
    run = load(side, pathlib.Path(path), int(threads))
    for _ in range(2):
        run(inputs)
    print(high_water_mark() - before)


if __name__ == "__main__":
    main()
