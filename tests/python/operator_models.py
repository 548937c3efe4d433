"""Models of single operators between products, of every opset: from ONNX's own node tests, and some forms that these
lack.

`models()` yields them; `faults()` says what a typed file of one does that the operators' schemas do not allow.
"""

from __future__ import annotations

import copy
import warnings
from typing import Dict, Iterator, List, NamedTuple, Optional

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSETS = (11, 13, 15, 17, 18, 19, 21, 23, 24, 25)
FLOAT, DOUBLE, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64
FLOATS = {FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16}


class Form(NamedTuple):
    """One node with its operands: arrays, None for an absent one, in the order of the inputs."""

    name: str
    node: onnx.NodeProto
    operands: Dict[str, np.ndarray]
    results: Dict[str, int]  #: Element types of the outputs.
    domain: str = ""


class Case(NamedTuple):
    """A model, and samples for its inputs."""

    name: str
    op: str
    model: onnx.ModelProto
    feed: Dict[str, np.ndarray]


def _form(op: str, operands: List[Optional[np.ndarray]], results: List[int], **attributes: object) -> Form:
    names = ["" if value is None else f"i{index}" for index, value in enumerate(operands)]
    outputs = [f"o{index}" for index in range(len(results))]
    node = helper.make_node(op, names, outputs, **attributes)
    return Form(
        f"{op}_{'_'.join(attributes)}", node, {n: v for n, v in zip(names, operands) if n}, dict(zip(outputs, results))
    )


def _more_forms() -> Iterator[Form]:
    """Forms before inputs took the place of attributes, and operators that the node tests show with other types."""
    random = np.random.default_rng(0)

    def values(*shape: int) -> np.ndarray:
        return random.uniform(0.1, 1.5, shape).astype(np.float32)

    ints = np.int64
    for op in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"):
        yield _form(f"Reduce{op}", [values(2, 3, 4)], [FLOAT], axes=[1], keepdims=0)
        yield _form(f"Reduce{op}", [values(2, 3, 4)], [FLOAT], keepdims=1)
        yield _form(f"Reduce{op}", [values(2, 3, 4), np.array([-1], ints)], [FLOAT], keepdims=1)
    yield _form("Squeeze", [values(2, 1, 4)], [FLOAT], axes=[1])
    yield _form("Unsqueeze", [values(2, 4)], [FLOAT], axes=[1])
    yield _form("Split", [values(2, 4)], [FLOAT, FLOAT], axis=1, split=[1, 3])
    yield _form("Split", [values(2, 4)], [FLOAT, FLOAT], axis=1)
    yield _form("Split", [values(2, 4), np.array([1, 3], ints)], [FLOAT, FLOAT], axis=1)
    yield _form("Dropout", [values(2, 4)], [FLOAT], ratio=0.5)
    yield _form("Softmax", [values(2, 3, 4)], [FLOAT], axis=2)
    yield _form("Softmax", [values(2, 3, 4)], [FLOAT], axis=1)
    yield _form("LogSoftmax", [values(2, 3)], [FLOAT])
    yield _form("Hardmax", [values(2, 3)], [FLOAT])
    yield _form("Equal", [values(2, 3), values(2, 3)], [TensorProto.BOOL])
    yield _form("NonZero", [values(2, 3)], [INT64])
    yield _form("CumSum", [values(2, 3), np.array(1, ints)], [FLOAT])
    yield _form("CumProd", [values(2, 3), np.array(1, ints)], [FLOAT])
    yield _form("Einsum", [values(2, 3), values(3, 4)], [FLOAT], equation="ij,jk->ik")
    yield _form("EyeLike", [values(3, 3)], [FLOAT])
    yield _form("Trilu", [values(3, 3)], [FLOAT])
    yield _form("Range", [np.float32(0), np.float32(3), np.float32(0.5)], [FLOAT])
    yield _form(
        "ConstantOfShape", [np.array([2, 3], ints)], [FLOAT], value=numpy_helper.from_array(np.array([0.1], np.float32))
    )
    yield _form("Celu", [values(2, 3)], [FLOAT], alpha=0.5)
    yield _form("Elu", [values(2, 3) - 1], [FLOAT], alpha=0.5)
    yield _form("GlobalLpPool", [values(1, 2, 4, 4)], [FLOAT], p=3)
    yield _form(
        "MaxRoiPool", [values(1, 2, 6, 6), np.array([[0, 0, 0, 3, 3]], np.float32)], [FLOAT], pooled_shape=[2, 2]
    )
    yield _form("MeanVarianceNormalization", [values(2, 3, 4, 4)], [FLOAT], axes=[0, 2, 3])
    yield _form("GroupNormalization", [values(2, 4, 3), values(2), values(2)], [FLOAT], num_groups=2)
    yield _form("LayerNormalization", [values(2, 3, 4), values(4), values(4)], [FLOAT, FLOAT, FLOAT])
    yield _form("OneHot", [np.array([0, 2], ints), np.array(3, ints), np.array([0, 1], np.float32)], [FLOAT])
    yield _form("TopK", [values(4, 8), np.array([3], ints)], [FLOAT, INT64])
    yield _form("Unique", [values(6)], [FLOAT, INT64, INT64, INT64])
    yield _form("Compress", [values(4, 3), np.array([True, False, True, True])], [FLOAT], axis=0)
    yield _form(
        "ScatterElements", [values(3, 3), np.array([[0, 1, 1]], ints), values(1, 3)], [FLOAT], axis=0, reduction="add"
    )
    yield _form("ScatterND", [values(4, 3), np.array([[1], [1]], ints), values(2, 3)], [FLOAT], reduction="mul")
    yield _form("Resize", [values(1, 1, 2, 2), None, np.array([1, 1, 2, 2], np.float32)], [FLOAT], mode="linear")
    yield _form(
        "Resize",
        [values(1, 1, 2, 2), np.zeros(8, np.float32), np.array([1, 1, 2, 2], np.float32)],
        [FLOAT],
        mode="nearest",
    )
    yield _form("Pad", [values(2, 3), np.array([0, 1, 0, 1], ints), np.float32(0.3)], [FLOAT])
    yield _form("Clip", [values(2, 3), np.float32(0.25), None], [FLOAT])
    yield _form("Where", [values(2, 3) > 1, values(2, 3), values(3)], [FLOAT])
    yield _form("Mod", [values(2, 3), values(2, 3)], [FLOAT], fmod=1)
    yield _form("PRelu", [values(2, 3) - 1, values(3)], [FLOAT])
    yield _form("DequantizeLinear", [np.array([[1, 2], [3, 4]], np.int8), np.float32(0.5), np.int8(1)], [FLOAT])
    yield _form("QuantizeLinear", [values(2, 3), np.float32(0.02), np.uint8(3)], [TensorProto.UINT8])


def _node_forms(largest: int) -> Iterator[Form]:
    """Of ONNX's own tests of one node with floats, the smallest samples; doubles as floats."""
    warnings.simplefilter("ignore")
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases(None):
        graph = case.model.graph
        if len(graph.node) != 1 or graph.node[0].domain or not case.data_sets:
            continue
        inputs, outputs = case.data_sets[0]
        operands, fits = {}, True
        for info, value in zip(graph.input, inputs):
            array = np.asarray(value) if isinstance(value, (np.ndarray, np.generic, int, float)) else None
            fits &= array is not None and array.size <= largest and info.type.HasField("tensor_type")
            fits = fits and array.dtype.kind in "fiub" and not array.dtype.metadata
            if not fits:
                break
            operands[info.name] = array.astype(np.float32) if array.dtype == np.float64 else array
        if not fits or not all(o.type.HasField("tensor_type") for o in graph.output):
            continue
        results = {
            o.name: FLOAT if o.type.tensor_type.elem_type == DOUBLE else o.type.tensor_type.elem_type
            for o in graph.output
        }
        floats = any(a.dtype == np.float32 for a in operands.values()) or FLOAT in results.values()
        if floats:
            yield Form(case.name, graph.node[0], operands, results)


def forms(largest: int = 4000) -> List[Form]:
    """All of them, each operator with the forms of different attributes and operands once."""
    chosen: Dict[object, Form] = {}
    for form in [*_more_forms(), *_node_forms(largest)]:
        node = form.node
        key = (node.op_type, tuple(sorted(a.name for a in node.attribute)), tuple(bool(i) for i in node.input),
               tuple(bool(o) for o in node.output), tuple(a.dtype.kind for a in form.operands.values()))
        chosen.setdefault(key, form)
    return list(chosen.values())


def between_products(form: Form, opset: int, constants: bool) -> Case:
    """The node with a Mul before each float operand (`constants`: before the first alone, the others are initializers),
    and one behind each float result."""
    nodes, inputs, outputs, feed = [], [], [], {}
    initializers = [numpy_helper.from_array(np.float32(1.1), "factor")]
    node = copy.deepcopy(form.node)
    computed = 0
    for index, name in enumerate(form.node.input):
        if not name:
            continue
        value = form.operands[name]
        is_float = value.dtype == np.float32
        if not is_float or (constants and computed):
            initializers.append(numpy_helper.from_array(value, name))
            continue
        computed += 1
        feed[name] = value
        inputs.append(helper.make_tensor_value_info(name, FLOAT, list(value.shape)))
        nodes.append(helper.make_node("Mul", [name, "factor"], [f"{name}_scaled"], f"before_{name}"))
        node.input[index] = f"{name}_scaled"
    initializers = list({tensor.name: tensor for tensor in initializers}.values())
    node.name = "node"
    nodes.append(node)
    for name, element in form.results.items():
        if element != FLOAT:
            outputs.append(helper.make_tensor_value_info(name, element, None))
            continue
        nodes.append(helper.make_node("Mul", [name, "factor"], [f"{name}_result"], f"behind_{name}"))
        outputs.append(helper.make_tensor_value_info(f"{name}_result", FLOAT, None))
    if not inputs:
        inputs, feed = [helper.make_tensor_value_info("unused", FLOAT, [1])], {"unused": np.ones(1, np.float32)}
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    try:  # The shapes of the outputs, which the checker wants.
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        model.graph.ClearField("output")
        model.graph.output.extend(inferred.graph.output)
    except Exception:  # it has no common base for its errors
        pass
    return Case(f"{form.name}, opset {opset}{', constants' if constants else ''}", node.op_type, model, feed)


def is_valid(model: onnx.ModelProto) -> bool:
    """As onnx.checker has it, in full."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception:  # it has no common base for its errors
        return False
    return not faults(model)


def models(opsets=OPSETS, largest: int = 4000) -> Iterator[Case]:
    """Every form at every opset at which it is valid."""
    for form in forms(largest):
        several = sum(value.dtype == np.float32 for value in form.operands.values()) > 1
        for opset in opsets:
            for constants in (False, True) if several else (False,):
                case = between_products(form, opset, constants)
                if is_valid(case.model):
                    yield case


def _element_types(model: onnx.ModelProto) -> Dict[str, int]:
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    graph = inferred.graph
    types = {i.name: i.type.tensor_type.elem_type for i in [*graph.input, *graph.output, *graph.value_info]}
    types.update({tensor.name: tensor.data_type for tensor in graph.initializer})
    return types


def _formal(parameters: list, index: int):
    if index < len(parameters):
        return parameters[index]
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    return parameters[-1] if parameters and parameters[-1].option == variadic else None


def faults(model: onnx.ModelProto) -> List[str]:
    """Operands and results of types that the operators' schemas, of the opset that the model has, do not allow."""
    opset = next(o.version for o in model.opset_import if not o.domain)
    types = _element_types(model)
    found = []
    for node in model.graph.node:
        if node.domain:
            continue
        schema = onnx.defs.get_schema(node.op_type, opset)
        allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
        bound: Dict[str, str] = {}
        for kind, names, parameters in (("input", node.input, schema.inputs), ("output", node.output, schema.outputs)):
            for index, name in enumerate(names):
                formal = _formal(list(parameters), index)
                if not name or formal is None or not types.get(name):
                    continue
                type_ = f"tensor({TensorProto.DataType.Name(types[name]).lower()})"
                if type_ not in allowed.get(formal.type_str, {formal.type_str}):
                    found.append(f"{node.op_type} of opset {opset}: {kind} {index} is {type_}")
                elif formal.is_homogeneous and bound.setdefault(formal.type_str, type_) != type_:
                    found.append(
                        f"{node.op_type}: {kind} {index} is {type_}, another {formal.type_str} {bound[formal.type_str]}"
                    )
    return found
