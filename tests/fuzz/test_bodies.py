"""Random graphs with control flow, under mixtures of precisions that reach into bodies: typed files of them have the
bits of the weakly typed networks, and ONNX Runtime loads them."""

from __future__ import annotations

import itertools
import os
import pathlib
from typing import Iterator

import numpy as np
import onnx
import pytest
import ulpscope
from fuzz.generator import generate
from fuzz.graph import Graph, all_nodes, session_options

COUNT = int(os.environ.get("ULPSCOPE_FUZZ_BODIES", "60"))
SEED = 3_000_000
TYPES = ("float32", "float16", "bfloat16")
NARROW = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
#: Without a narrow form that onnx's checks and ONNX Runtime take at every opset, or in none of the standards.
OTHERS = {"TopK", "MeanVarianceNormalization", "SimplifiedLayerNormalization", "Celu", "DynamicQuantizeLinear"}


def graphs() -> Iterator[Graph]:
    """Those with bodies."""
    for seed in itertools.count(SEED):
        graph = generate(seed)
        if graph.operators & {"If", "Loop", "Scan"} and not graph.operators & OTHERS and graph.opset >= 13:
            yield graph


@pytest.mark.parametrize("part", range(4))
def test_typed_files_of_bodies(part: int, tmp_path: pathlib.Path) -> None:
    """The proof of `convert` is that of the program itself; a refusal has to say that nothing can be lowered."""
    import onnxruntime as ort

    lowered_inside = 0
    for graph in itertools.islice(graphs(), part, COUNT, 4):
        rng = np.random.default_rng([graph.seed, 5])
        model = graph.model()
        inside = {n.name for n in all_nodes(graph.nodes)} - {n.name for n in graph.nodes}
        engine = ulpscope.Engine(model, precision="fp16")
        if not engine.layers:
            engine.run(graph.feeds[0])
        layers = [layer.name for layer in engine.layers if layer.precision == "fp16"]
        types = {name: str(rng.choice(TYPES)) for name in layers if rng.random() < 0.6}
        fusion = str(rng.choice(["none", "pointwise", "full"]))
        try:
            typed, _ = ulpscope.convert(
                model, precision=["fp16", "bf16"], layer_precisions=types, data=graph.feeds[:1], fusion=fusion
            )
        except ulpscope.Error as error:
            text = str(error)
            assert "to lower, got none" in text or "no layer can be lowered" in text, f"seed {graph.seed}: {text}"
            continue
        casts = [node for node in all_nodes(typed.graph.node) if node.op_type == "Cast"]
        top = {node.name for node in typed.graph.node}
        lowered_inside += any(node.name not in top and node.attribute[0].i in NARROW for node in casts) and bool(
            inside & set(layers)
        )
        if not any(node.attribute[0].i == onnx.TensorProto.BFLOAT16 for node in casts):  # ONNX Runtime has no kernels.
            ort.InferenceSession(typed.SerializeToString(), session_options(), providers=["CPUExecutionProvider"])
    assert lowered_inside >= COUNT // 16
