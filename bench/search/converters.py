"""One fp16 converter of others, in the interpreter that has it: writes its model, prints its figures as JSON.

usage: converters.py TOOL MODEL.onnx SAMPLES.json METRIC THRESHOLD RTOL OUTPUT TYPED.onnx

onnxconverter-common's auto_convert_mixed_precision tries segments of nodes until the outputs stay within a tolerance.
It takes one set of inputs: the samples as one batch, of which each is held against the tolerance. ModelOpt's AutoCast
takes no tolerance: it keeps nodes whose values or weights leave the range on the samples. What counts is the call:
imports, reading the model, and edits without which a tool stops are outside of the clock.
"""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import sys
import tempfile
from typing import Any, Callable, Dict, List

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from judging import Spent, Tolerance  # noqa: E402
import models  # noqa: E402
import numpy as np  # noqa: E402


def named(model: Any) -> int:
    """Gives every node a name of its own; how many had none."""
    seen, count = set(), 0
    for i, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{i}"
            count += 1
        seen.add(node.name)
    return count


def edited(model: Any, with_masks: bool) -> List[str]:
    """Changes without which a tool stops, and what they are. `with_masks`: also those that only some models need."""
    from onnx import TensorProto, helper

    unnamed = named(model)
    # onnxconverter-common leaves the type of these in two minds. Right for masks of zeros and ones only.
    nodes, masks = [], 0
    for node in model.graph.node:
        cast = with_masks and node.op_type == "Cast"
        if not cast or helper.get_attribute_value(node.attribute[0]) != TensorProto.FLOAT:
            nodes.append(node)
            continue
        if masks == 0:
            model.graph.initializer.append(helper.make_tensor("mask/one", TensorProto.FLOAT, [], [1.0]))
            model.graph.initializer.append(helper.make_tensor("mask/zero", TensorProto.FLOAT, [], [0.0]))
        masks += 1
        condition, name = f"{node.name}/bool", node.name
        nodes.append(helper.make_node("Cast", list(node.input), [condition], f"{name}/Cast", to=TensorProto.BOOL))
        inputs = [condition, "mask/one", "mask/zero"]
        nodes.append(helper.make_node("Where", inputs, list(node.output), f"{name}/Where"))
    # A graph output that nodes read as well is float for its caller and fp16 for them.
    read, shared = {name for node in nodes for name in node.input}, 0
    for output in model.graph.output:
        if output.name not in read:
            continue
        shared += 1
        inner = f"{output.name}/inner"
        for node in nodes:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name == output.name:
                        names[i] = inner
        nodes.append(helper.make_node("Identity", [inner], [output.name], f"{output.name}/Identity"))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    edits = [f"{unnamed} node(s) named"] if unnamed else []
    edits += [f"{shared} output(s) that nodes read behind an Identity"] if shared else []
    return edits + ([f"{masks} Cast(s) of masks to float as Where"] if masks else [])


class Counter:
    """Counts the attempts that a tool asks about."""

    def __init__(self, tolerance: Tolerance, names: List[str]) -> None:
        self.tolerance, self.names, self.attempts = tolerance, names, 0

    def __call__(self, golden: List[np.ndarray], given: List[np.ndarray]) -> bool:
        self.attempts += 1
        for i in range(len(golden[0])):
            a, b = (dict(zip(self.names, (values[i : i + 1] for values in outputs))) for outputs in (golden, given))
            if not self.tolerance.error(a, b) <= self.tolerance.limit:
                return False
        return True


def prepare_auto_convert(model: Any, samples: List[Dict[str, np.ndarray]], accept: Counter) -> Callable[[], Any]:
    from onnxconverter_common import auto_mixed_precision

    batch = {name: np.concatenate([sample[name] for sample in samples]) for name in samples[0]}
    return lambda: auto_mixed_precision.auto_convert_mixed_precision(model, batch, accept, keep_io_types=True)


def prepare_autocast(model: Any, samples_path: str, folder: pathlib.Path) -> Callable[[], Any]:
    import onnx
    from modelopt.onnx.autocast import convert_to_mixed_precision

    path = folder / "model.onnx"
    onnx.save(model, str(path))
    return lambda: convert_to_mixed_precision(
        str(path), low_precision_type="fp16", keep_io_types=True, calibration_data=samples_path, providers=["cpu"]
    )


def main() -> None:
    import onnx

    tool, path, samples_path, metric, threshold, rtol, output, typed = sys.argv[1:]
    samples = models.read_samples(pathlib.Path(samples_path))
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        for with_masks in (False, True):
            model = onnx.load(path)
            edits = edited(model, with_masks)
            names = [each.name for each in model.graph.output]
            accept = Counter(Tolerance(metric, float(threshold), float(rtol), output), names)
            if tool == "AutoCast":
                call = prepare_autocast(model, samples_path, pathlib.Path(folder))
            else:
                call = prepare_auto_convert(model, samples, accept)
            start = Spent.now()
            try:
                result = call()
                break
            except Exception:
                if with_masks:
                    raise
        spent = Spent.now() - start
        onnx.save(result, typed)
    figures = {"seconds": spent.seconds, "cpu": spent.cpu, "evaluations": accept.attempts}
    print(json.dumps({**figures, "edits": "; ".join(edits) or "none"}))


if __name__ == "__main__":
    main()
