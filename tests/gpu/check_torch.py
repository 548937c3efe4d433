"""Holds copies of ulpscope.torch.apply against their modules, on a GPU: check_torch.py [--device cuda] [NETWORK...]

Needs torch, onnx, onnxscript and an installed ulpscope. For each of the networks of tests/python/torch_networks.py, all
of which `.half()` makes wrong: a search on 8 samples, a copy, and 100 fresh inputs, on which the module itself in
float32 is the judge. What fails:

- `.half()` that is right;
- a copy that is beyond the tolerance or NaN, or errs more than twice as much as predicted;
- a copy of which modules had to be raised beyond the answer.

Products and convolutions of float32 stay in float32 (no TF32). One line per network; exits 1 when one does not hold.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Callable
from typing import Any

THRESHOLD = 5e-3  # rel-l2.
MOST = 2.0  # Times the predicted error.


def check(name: str, make: Callable[[], Any], device: str, fresh: int) -> bool:
    import torch
    import ulpscope
    from torch_networks import halved, on_device, worst_error

    torch.manual_seed(0)
    network = on_device(make(), device)
    answer = ulpscope.torch.search(network.module, network.samples(8), threshold=THRESHOLD, progress=False)
    mixed = ulpscope.torch.apply(network.module, answer)
    record = ulpscope.torch.applied(mixed)
    samples = network.samples(fresh)
    half = worst_error(network.module, halved(network.module), samples)
    error = worst_error(network.module, mixed, samples)
    ratio = error / record.predicted
    low = sum(each.precision != "fp32" for each in record.modules)
    holds = not half <= THRESHOLD and error <= THRESHOLD and ratio <= MOST and not record.departures
    print(
        f"{'ok    ' if holds else 'FAILED'} {name}: error {error:.3g} on {fresh} fresh inputs, {ratio:.3g} times the "
        f"predicted {record.predicted:.3g}; .half() {half:.3g}; {low} of {len(record.modules)} modules in fp16",
        flush=True,
    )
    for departure in record.departures:
        print(f"       {', '.join(departure.modules)}: {departure.why}", flush=True)
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help="such as 'RMSNorm blocks'; default: all")
    parser.add_argument("--device", default="cuda", help="as torch names it; default: cuda")
    parser.add_argument("--fresh", type=int, default=100, help="inputs to judge by; default: 100")
    options = parser.parse_args()
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
    import torch
    import ulpscope
    from torch_networks import NETWORKS

    for name in options.networks:
        if name not in NETWORKS:
            parser.error(f"expected one of {', '.join(NETWORKS)}, got '{name}'")
    where = options.device
    if where.startswith("cuda"):
        torch.backends.cudnn.allow_tf32 = False  # Products are in float32 unless somebody asks for TF32.
        where = torch.cuda.get_device_name(torch.device(where))
    print(f"torch {torch.__version__}, ulpscope {ulpscope.__version__}, {where}", flush=True)
    names = options.networks or list(NETWORKS)
    return 0 if all([check(name, NETWORKS[name], options.device, options.fresh) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
