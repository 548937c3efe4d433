"""The error that a GPU makes over the one that the CPU predicts, with an interval: error_ratio.py MODEL.onnx...

For each model, precision and fusion level the backends compute the same samples in float32 and in the precision. A
backend's error is the root mean square, over samples, of the relative L2 of its outputs against its own float32. The
interval is that of 95 %: percentiles of the ratio over 2,000 draws of as many samples with replacement, the same for
both backends. A MODEL.npz beside the model has samples (one array per input, samples along a dimension in front);
else they are normal floats and integers from 0 to --largest.

Exits 1 where the whole interval lies outside of 0.95 to 1.05.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Iterator

import numpy as np

import ulpscope

LEAST, MOST, DRAWS = 0.95, 1.05, 2000
Sample = dict[str, np.ndarray]


def samples_of(path: pathlib.Path, engine: ulpscope.Engine, options: argparse.Namespace) -> Iterator[Sample]:
    beside = path.with_suffix(".npz")
    if beside.exists():
        arrays = np.load(beside)
        for i in range(min(options.samples, *(len(array) for array in arrays.values()))):
            yield {name: array[i] for name, array in arrays.items()}
        return
    random = np.random.default_rng(options.seed)
    shapes = dict(text.split(":") for text in options.shapes)
    for _ in range(options.samples):
        sample = {}
        for spec in engine.inputs:
            given = shapes.get(spec.name)
            dims = (
                [int(d) for d in given.split("x")]
                if given
                else [d if isinstance(d, int) and d > 0 else 1 for d in spec.shape]
            )
            integers = np.dtype(spec.dtype).kind in "iu"
            made = random.integers(0, options.largest, dims) if integers else random.standard_normal(dims)
            sample[spec.name] = made.astype(spec.dtype)
        yield sample


def squared_errors(model: pathlib.Path, samples: list[Sample], precision: str, fusion: str, backend: str) -> np.ndarray:
    """Per sample: the square of the relative L2 against float32 of the same backend, the largest over the outputs."""
    exact = ulpscope.Engine(model, precision="fp32", fusion=fusion, backend=backend)
    rounded = ulpscope.Engine(model, precision=precision, fusion=fusion, backend=backend)
    squares = []
    for sample in samples:
        right, given = exact.run(sample), rounded.run(sample)
        squares.append(
            max(
                np.square(given[name].astype(np.float64) - array).sum()
                / max(np.square(array.astype(np.float64)).sum(), 1e-30)
                for name, array in right.items()
                if array.dtype.kind == "f"
            )
        )
    return np.array(squares)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--largest", type=int, default=1000, help="integers are below it")
    parser.add_argument("--shapes", nargs="*", default=[], metavar="INPUT:DIMxDIM")
    parser.add_argument("--precisions", nargs="+", default=["fp16", "bf16"])
    parser.add_argument("--fusion", nargs="+", default=["none", "full"])
    options = parser.parse_args()
    random = np.random.default_rng(0)
    outside = 0
    print("model, precision, fusion: real error, real / predicted [95 % interval], samples")
    for model in options.models:
        samples = list(samples_of(model, ulpscope.Engine(model), options))
        draws = random.integers(0, len(samples), (DRAWS, len(samples)))
        for precision in options.precisions:
            for fusion in options.fusion:
                real, predicted = (squared_errors(model, samples, precision, fusion, b) for b in ("cuda", "cpu"))
                ratio = np.sqrt(real.mean() / predicted.mean())
                spread = np.sqrt(real[draws].mean(axis=1) / predicted[draws].mean(axis=1))
                low, high = np.percentile(spread, [2.5, 97.5])
                outside += bool(low > MOST or high < LEAST)
                interval = f"{ratio:.3f} [{low:.3f}, {high:.3f}], {len(samples)}"
                print(f"{model.stem}, {precision}, {fusion}: {np.sqrt(real.mean()):.2e}, {interval}", flush=True)
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
