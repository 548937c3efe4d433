"""Rankings of onnxsim (quant_sensitivity) for int8, most sensitive layer first, in the interpreter that has it.

usage: onnxsim_ranking.py METHODS MODEL.onnx SAMPLES.json OUTPUT OUT.json

METHODS are fisher,taylor (which share their gradients) or oracle (its brute force: each layer quantized alone). What
it takes to use it on these models: shapes fixed and folded by onnxsim.simplify, one copy per shape of sample (its
Gather and Slice rules want constants); sums written as means times a number (it has no rule for ReduceSum and
ReduceL2); Constant nodes made initializers (they replace the leaves of its gradients); of logits per position [1, T,
V] the last position, since the rank is made for [N, classes]. It scores weights and activations as two kinds, in the
same unit: added. Scores are means over the samples, each drawn DRAWS times, as the estimator is a mean over labels
that it draws.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Dict, List

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from judging import Spent  # noqa: E402
import models  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402
from onnxsim import quant_sensitivity, simplify  # noqa: E402

DRAWS = 4


def only(model: onnx.ModelProto, output: str) -> None:
    """Drops the other outputs, and the nodes that only they need."""
    outputs = [each for each in model.graph.output if each.name == output]
    wanted, nodes = {output}, []
    for node in reversed(model.graph.node):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            nodes.append(node)
    for field, kept in ((model.graph.node, nodes[::-1]), (model.graph.output, outputs)):
        copies = [type(each).FromString(each.SerializeToString()) for each in kept]
        del field[:]
        field.extend(copies)


def constants_as_initializers(model: onnx.ModelProto) -> None:
    """Its gradients are lost where a weight is the output of a Constant node: that node replaces the leaf."""
    nodes = []
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensor = onnx.TensorProto.FromString(node.attribute[0].t.SerializeToString())
            tensor.name = node.output[0]
            model.graph.initializer.append(tensor)
        else:
            nodes.append(onnx.NodeProto.FromString(node.SerializeToString()))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def sums_as_means(model: onnx.ModelProto) -> None:
    """ReduceSum and ReduceL2 as ReduceMean times the number of elements; shapes are known by now."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in [*graph.value_info, *graph.input]}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = []
    for node in model.graph.node:
        if node.op_type not in ("ReduceSum", "ReduceL2"):
            nodes.append(node)
            continue
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        axes = attributes.get("axes")
        if axes is None:
            axes = numpy_helper.to_array(constants[node.input[1]]).tolist()
        of, count = node.input[0], int(np.prod([shapes[node.input[0]][axis] for axis in axes]))
        name = node.name or node.output[0]
        if node.op_type == "ReduceL2":
            nodes.append(helper.make_node("Mul", [of, of], [f"{name}/square"], f"{name}/square"))
            of = f"{name}/square"
        model.graph.initializer.append(numpy_helper.from_array(np.float32(count), f"{name}/count"))
        keep = attributes.get("keepdims", 1)
        nodes.append(helper.make_node("ReduceMean", [of], [f"{name}/mean"], f"{name}/mean", axes=axes, keepdims=keep))
        to = node.output[0] if node.op_type == "ReduceSum" else f"{name}/sum"
        nodes.append(helper.make_node("Mul", [f"{name}/mean", f"{name}/count"], [to], f"{name}/sum"))
        if node.op_type == "ReduceL2":
            nodes.append(helper.make_node("Sqrt", [to], [node.output[0]], f"{name}/root"))
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def last_position(model: onnx.ModelProto) -> None:
    """Of an output [1, T, V], [1, V]."""
    output = model.graph.output[0]
    dims = [dim.dim_value for dim in output.type.tensor_type.shape.dim]
    if len(dims) != 3:
        return
    model.graph.initializer.append(numpy_helper.from_array(np.int64(dims[1] - 1), "last/index"))
    model.graph.node.append(helper.make_node("Gather", [output.name, "last/index"], ["last"], "last", axis=1))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("last", onnx.TensorProto.FLOAT, [dims[0], dims[2]]))


def prepared(path: str, output: str, shapes: Dict[str, Any]) -> onnx.ModelProto:
    model = onnx.load(path)
    for i, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{i}"
    only(model, output)
    model, _ = simplify(model, overwrite_input_shapes=shapes, perform_optimization=False)
    constants_as_initializers(model)
    sums_as_means(model)
    last_position(model)
    return model


def scores_of(
    methods: List[str], model: onnx.ModelProto, data: Dict[str, np.ndarray], kind: str
) -> Dict[str, Dict[str, float]]:
    """Per method and site."""
    sites = quant_sensitivity.find_sites(model)
    if methods == ["oracle"]:
        quants = None
        if kind == "activations":
            quants = quant_sensitivity.calibrate_activations(model, sites, data, 8, percentile=100)
        groups = quant_sensitivity.as_groups(sites)
        found = quant_sensitivity.measure(model, groups, kind, 8, data, quants=quants)
        return {"oracle": {name: float(metrics["kl"]) for name, metrics in found.items()}}
    many = {name: np.repeat(values, DRAWS, axis=0) for name, values in data.items()}
    report = quant_sensitivity.rank(model, sites, calib=many, kind=kind, bits=8, methods=methods, percentile=100)
    if report.skipped:
        raise SystemExit(f"onnxsim: {report.skipped}")
    return {method: dict(zip(report.groups, map(float, report.scores[method]))) for method in methods}


def main() -> None:
    words, path, samples_path, output, saved = sys.argv[1:]
    methods, samples = words.split(","), models.read_samples(pathlib.Path(samples_path))
    alike: Dict[str, Any] = {}
    for sample in samples:
        alike.setdefault(str({name: values.shape for name, values in sample.items()}), []).append(sample)
    scores: Dict[str, Dict[str, float]] = {method: {} for method in methods}
    spent = Spent(0, 0)
    for same in alike.values():
        model = prepared(path, output, {name: list(values.shape) for name, values in same[0].items()})
        data = {name: np.concatenate([sample[name] for sample in same]) for name in same[0]}
        start = Spent.now()
        for kind in ("weights", "activations"):
            for method, found in scores_of(methods, model, data, kind).items():
                for name, score in found.items():
                    scores[method][name] = scores[method].get(name, 0.0) + score * len(same) / len(samples)
        spent = spent.plus(Spent.now() - start)
    orders = {method: sorted(found, key=lambda name: -found[name]) for method, found in scores.items()}
    evaluations = 2 * (len(orders["oracle"]) if methods == ["oracle"] else DRAWS)
    answer = {"orders": orders, "seconds": spent.seconds, "cpu": spent.cpu, "evaluations": evaluations}
    pathlib.Path(saved).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
