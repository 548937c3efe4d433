"""Times of one matrix product in fp32 on one thread: ulpscope.Engine beside ONNX Runtime's CPU provider, interleaved.

A network of one MatMul each. Times are minima, also for GFLOP/s; ratios are ulpscope / ONNX Runtime. What a
call takes besides counts on both sides, which shows in small products.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
from typing import Any, Dict, List, NamedTuple, Tuple

import measure
import models
import numpy as np
import peak
from onnx import TensorProto, helper, numpy_helper, save

_CONSTANT = (
    (197, 768, 3072), (196, 512, 2048), (1024, 1024, 1024), (128, 768, 768), (197, 3072, 768), (49, 384, 1536),
    (49, 4608, 512), (3136, 64, 64), (3136, 576, 64), (784, 1152, 128), (3136, 96, 384), (512, 196, 256),
    (32, 768, 768), (1, 768, 768), (3, 768, 3072),
)  # fmt: skip
_COMPUTED = ((12, 128, 64, 128), (12, 128, 128, 64))


class Product(NamedTuple):
    """[batch, m, k] times [k, n], a constant, or [batch, k, n], an input."""

    batch: int
    m: int
    k: int
    n: int
    constant: bool

    @property
    def name(self) -> str:
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{batch}{self.m} x {self.k} x {self.n}" + ("" if self.constant else ", computed")


def products() -> List[Product]:
    return [Product(1, *shape, True) for shape in _CONSTANT] + [Product(*shape, False) for shape in _COMPUTED]


def model_of(product: Product, folder: pathlib.Path) -> models.Model:
    random = np.random.RandomState(0)
    batch: Tuple[int, ...] = (product.batch,) if product.batch > 1 else ()
    a = (*batch, product.m, product.k)
    b = (product.k, product.n) if product.constant else (*batch, product.k, product.n)
    weights = (random.randn(*b) / np.sqrt(product.k)).astype(np.float32)
    inputs = {"a": random.randn(*a).astype(np.float32)}
    declared = [helper.make_tensor_value_info("a", TensorProto.FLOAT, a)]
    initializers = []
    if product.constant:
        initializers.append(numpy_helper.from_array(weights, "b"))
    else:
        inputs["b"] = weights
        declared.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, b))
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, (*batch, product.m, product.n))
    node = helper.make_node("MatMul", ["a", "b"], ["out"])
    graph = helper.make_graph([node], "product", declared, [out], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path = folder / "product.onnx"
    save(model, str(path))
    return models.Model(product.name, path, inputs)


def measure_product(product: Product, seconds: float, threads: int) -> Dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        model = model_of(product, pathlib.Path(folder))
        runs = {side: peak.load(side, model.path, threads) for side in peak.SIDES}
    difference = np.max(np.abs(runs["ulpscope"](model.inputs)["out"] - runs["onnxruntime"](model.inputs)[0]))
    calls = {side: (lambda run=run: run(model.inputs)) for side, run in runs.items()}
    times = {side: measure.summary(t) for side, t in measure.interleave(calls, seconds).items()}
    ours, theirs = times["ulpscope"]["min"], times["onnxruntime"]["min"]
    operations = 2e-6 * product.batch * product.m * product.k * product.n
    return {
        "product": product.name,
        "ulpscope min ms": ours,
        "onnxruntime min ms": theirs,
        "ratio": ours / theirs,
        "ulpscope GFLOP/s": round(operations / ours, 1),
        "onnxruntime GFLOP/s": round(operations / theirs, 1),
        "largest difference": f"{difference:.2g}",
    }


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=4.0, help="per product (default: 4)")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    seconds = 0.05 if options.quick else options.seconds
    rows = [measure_product(product, seconds, options.threads) for product in products()]
    measure.report(rows, measure.environment(), options.output)
    ratios = {row["product"]: row["ratio"] for row in rows}
    worst = max(ratios, key=lambda name: ratios[name])
    mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
    print(f"# geometric mean of the ratios {mean:.3f}, worst {ratios[worst]:.3f} ({worst})", file=sys.stderr)


if __name__ == "__main__":
    main()
