"""If, Loop and Scan whose bodies do not fit."""

import numpy as np
from onnx import TensorProto, helper

from hostile_models import floats, model

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def _with_body(op, inputs, outputs, **bodies):
    """(feed, [model]) of an If, Loop or Scan named `bad` beside a Relu; bodies are tuples for make_graph."""
    graphs = {name: helper.make_graph(*body) if isinstance(body, tuple) else body for name, body in bodies.items()}
    node = helper.make_node(op, inputs, outputs, name="bad", **graphs)
    feed = {"x": floats(2, 3), "c": np.array(True)}
    return feed, [
        model([node, helper.make_node("Relu", ["x"], ["z"], name="relu")], feed, {"n": np.array(3)}, (*outputs, "z"))
    ]


_GOING = [helper.make_node("Identity", ["go"], ["on"])]
_STEP = [helper.make_tensor_value_info("i", INT64, []), helper.make_tensor_value_info("go", BOOL, [])]
_ON = [helper.make_tensor_value_info("on", BOOL, [])]
_STATE = [helper.make_tensor_value_info("s", FLOAT, [2, 3])]
_ROW = [helper.make_tensor_value_info("e", FLOAT, [3])]
_NOTHING = ([], "nothing", [], [])

# Bodies without outputs, or without those that the layer has. Refused by name as well.
BODIES = {
    "if_without_outputs": _with_body("If", ["c"], [], then_branch=_NOTHING, else_branch=_NOTHING),
    "if_with_an_output_of_nothing": _with_body("If", ["c"], ["y"], then_branch=_NOTHING, else_branch=_NOTHING),
    "loop_of_a_condition": _with_body("Loop", ["n", ""], [], body=(_GOING, "b", _STEP, _ON)),
    "loop_without_outputs": _with_body("Loop", ["n", "", "x"], ["y"], body=(_GOING, "b", [*_STEP, *_STATE], [])),
    "loop_without_its_state": _with_body("Loop", ["n", "", "x"], ["y"], body=(_GOING, "b", [*_STEP, *_STATE], _ON)),
    "loop_without_inputs": _with_body(
        "Loop",
        ["n", "", "x"],
        ["y"],
        body=([helper.make_node("Tanh", ["x"], ["q"])], "b", [], [helper.make_tensor_value_info("q", FLOAT, [2, 3])]),
    ),
    "scan_without_outputs": _with_body("Scan", ["x"], [], body=([], "b", _ROW, []), num_scan_inputs=1),
    "scan_with_an_output_of_nothing": _with_body("Scan", ["x"], ["y"], body=([], "b", _ROW, []), num_scan_inputs=1),
}
