"""Records what a GPU computes of whole networks, for tests where there is none: record.py PROGRAM FOLDER MODEL.onnx...

Writes FOLDER/NAME.npz: for each of --precisions (fp16, bf16; fp8, fp8-hopper and fp8-hopper-fast are fp8 beside fp16,
with the sums of --accumulation) and the fusion levels none and full, everything in the lowest precision, every output
under "PRECISION_FUSION_OUTPUT", flat. What else is in a file stays. Values are float32 cut to the upper 16 bits where
that loses nothing (bfloat16, as uint16), else float16 where that loses nothing. PROGRAM is `ulpscope`; inputs are those
of MODEL.npz. tests/truth/gpu says which GPU and libraries made what lies there.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile

import numpy as np
from check_models import Case, Runner


def narrow(values: np.ndarray) -> np.ndarray:
    """Two bytes a value where these hold it."""
    if values.dtype != np.float32:
        return values
    bits = values.view(np.uint32)
    if not (bits & 0xFFFF).any():
        return (bits >> 16).astype(np.uint16)
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    return half if np.array_equal(half.astype(np.float32), values, equal_nan=True) else values


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path, metavar="PROGRAM")
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("models", nargs="+", type=pathlib.Path, metavar="MODEL.onnx")
    parser.add_argument("--precisions", nargs="+", default=["fp16", "bf16"])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        runner = Runner(options.program.resolve(), pathlib.Path(scratch), 600, "normalized")
        for model in options.models:
            file = options.folder / f"{model.stem}.npz"
            recorded = dict(np.load(file)) if file.exists() else {}
            for precision in options.precisions:
                for fusion in ("none", "full"):
                    for name, values in runner.outputs(Case(model, precision, fusion), "cuda").items():
                        recorded[f"{precision}_{fusion}_{name}"] = narrow(values)
            np.savez_compressed(file, **recorded)
            print(f"{model.stem}: {len(recorded)} outputs", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
