"""What tensor cores add up: records products of narrow types on an NVIDIA GPU (torch with cuBLASLt; Hopper).

python3 record.py OUT.npz        on a machine with a GPU and torch; writes every product of inputs.py
"""

import sys

import numpy as np
import torch

from inputs import CASES, operands

TYPES = {"fp8": torch.float8_e4m3fn, "fp16": torch.float16, "bf16": torch.bfloat16}


def product(kind: str, a: np.ndarray, b: np.ndarray, fast: bool) -> np.ndarray:
    """a @ b.T in float32, rows and columns repeated until the GPU is full, so that cuBLAS does not split sums."""
    copies = 2048 // len(a)
    left = torch.from_numpy(np.tile(a, (copies, 1))).cuda().to(TYPES[kind])
    right = torch.from_numpy(np.tile(b, (copies, 1))).cuda().to(TYPES[kind])
    one = torch.ones((), device="cuda")
    if kind == "fp8":
        out = torch._scaled_mm(left, right.T, one, one, out_dtype=torch.float32, use_fast_accum=fast)
    else:
        out = torch.mm(left, right.T, out_dtype=torch.float32)
    result = out.cpu().numpy()
    corner = result[: len(a), : len(b)]
    for i in range(copies):  # Every tile computes the same.
        for j in range(copies):
            tile = result[i * len(a) : (i + 1) * len(a), j * len(b) : (j + 1) * len(b)]
            assert np.array_equal(tile.view(np.uint32), corner.view(np.uint32)), (kind, i, j)
    return corner


def main() -> None:
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    recorded = {}
    for case in CASES:
        for fast in (True, False) if case.kind == "fp8" else (False,):
            a, b = operands(case)
            name = case.name + ("_fast" if fast else "")
            recorded[name] = product(case.kind, a, b, fast)
    np.savez_compressed(sys.argv[1], **recorded)
    print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name(), len(recorded), "products")


main()
