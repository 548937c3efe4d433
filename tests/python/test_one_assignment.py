"""One assignment of precisions gives the same bits however it is said: by names of layers, as the typed file of the
same names, by an answer, and as the typed file of that."""

from __future__ import annotations

from typing import Dict, Iterator, List

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from operator_models import OPSETS, Case, between_products, forms, is_valid

import ulpscope

#: Operators whose results are never the same twice.
RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Dropout",
}
FUSIONS = ("none", "pointwise", "full")


def cases() -> List[Case]:
    """Every operator in one model between products, at the newest opset that it is valid at; some in several forms."""
    chosen: Dict[str, List[Case]] = {}
    for form in forms():
        op = form.node.op_type
        if op in RANDOM or len(chosen.get(op, [])) > 1:
            continue
        several = sum(value.dtype == np.float32 for value in form.operands.values()) > 1
        for constants in (False, True) if several else (False,):
            made = next(
                (
                    case
                    for opset in reversed(OPSETS)
                    if is_valid((case := between_products(form, opset, constants)).model)
                ),
                None,
            )
            if made is not None:
                chosen.setdefault(op, []).append(made)
    return [case for made in chosen.values() for case in made]


def kept_sets(case: Case) -> Iterator[List[str]]:
    """The operator alone, what is before it, what is behind it."""
    names = [node.name for node in case.model.graph.node]
    yield ["node"]
    for prefix in ("before_", "behind_"):
        if chosen := [name for name in names if name.startswith(prefix)]:
            yield chosen
    if "node" in names and len(names) > 2:
        yield [name for name in names if not name.startswith("before_")]


def bits(outputs: Dict[str, np.ndarray]) -> Dict[str, bytes]:
    """NaNs and zeros are what they are."""
    return {name: array.tobytes() for name, array in outputs.items()}


def differing(case: Case, keep: List[str], precision: str, fusion: str) -> Iterator[str]:
    """The ways of saying it that give other bits than names of layers do."""
    layers = dict.fromkeys(keep, "float32")
    expected = bits(
        ulpscope.Engine(case.model, precision=precision, layer_precisions=layers, fusion=fusion).run(case.feed)
    )
    try:
        typed, report = ulpscope.convert(
            case.model, precision=precision, layer_precisions=layers, fusion=fusion, data=[case.feed], verify=False
        )
    except ulpscope.Error as error:
        if error.code != ulpscope.ErrorCode.UNSUPPORTED:
            yield str(error)
        return
    # Where layers are kept back, the file computes another assignment.
    if not report.kept_back and bits(ulpscope.Engine(typed, fusion=fusion).run(case.feed)) != expected:
        yield "the typed file"


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_names_and_typed_files(precision):
    made = cases()
    assert len({case.op for case in made}) > 120
    choices = [(case, keep) for case in made for keep in kept_sets(case)]
    found = [
        f"{case.name}, {keep} in float32, {fusion}: {way}"
        for index, (case, keep) in enumerate(choices)
        for fusion in (FUSIONS[index % len(FUSIONS)],)
        for way in differing(case, keep, precision, fusion)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize(
    "op", ["Add", "Conv", "Gelu", "LayerNormalization", "MatMul", "ReduceMean", "Sigmoid", "Softmax"]
)
def test_answers(op, fusion):
    """Of a search that keeps the layer, and of its typed file."""
    case = next(case for case in cases() if case.op == op)
    samples = [{name: array * (1 + 0.01 * k) for name, array in case.feed.items()} for k in range(3)]
    answer = ulpscope.search(
        case.model, samples, "fp16", keep=["node"], threshold=100.0, objective="smallest", fusion=fusion
    )
    expected = bits(
        ulpscope.Engine(case.model, precision="fp16", layer_precisions={"node": "float32"}, fusion=fusion).run(
            case.feed
        )
    )
    assert [layer.name for layer in answer.layers] == ["node"]
    assert bits(ulpscope.Engine(case.model, answer=answer).run(case.feed)) == expected
    typed, _ = ulpscope.convert(case.model, answer, data=samples, verify=False)
    assert bits(ulpscope.Engine(typed, fusion=fusion).run(case.feed)) == expected


def selection(keep_constant: bool) -> onnx.ModelProto:
    """Where between a float16 value and a constant that float16 does not hold."""
    random = np.random.default_rng(0)
    weights = numpy_helper.from_array(random.standard_normal(64).astype(np.float32), "w")
    nodes = [helper.make_node("Constant", [], ["w"], "Constant", value=weights)] if keep_constant else []
    nodes += [
        helper.make_node("Exp", ["x"], ["e"], "Exp"),
        helper.make_node("Greater", ["e", "t"], ["c"], "Greater"),
        helper.make_node("Where", ["c", "e", "w"], ["y"], "Where"),
        helper.make_node("Mul", ["x", "w"], ["z"], "Mul"),
    ]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64])],
                              [helper.make_tensor_value_info(o, TensorProto.FLOAT, [64]) for o in "yz"],
                              [numpy_helper.from_array(np.float32([1.0]), "t"), *([] if keep_constant else [weights])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize(
    "layers",
    [
        {"Where": "float32"},
        {"Where": "float32", "Greater": "float32"},
        {"Greater": "float32"},
        {"Where": "bfloat16"},
        {"Where": "float16", "Exp": "float32"},
        {"Where": "bfloat16", "Exp": "float32"},
        {"Constant": "float16", "Mul": "float32"},
        {"Constant": "bfloat16"},
    ],
)
@pytest.mark.parametrize("base", ["fp16", "fp32"])
def test_types_of_what_moves_values(base, layers, fusion):
    """A request for a layer that moves values is what it stores, in the engine and in the file; nothing is rounded
    twice."""
    model = selection("Constant" in layers)
    if base == "fp32":
        layers = {**layers, "Mul": "float16"}
    feed = {"x": np.random.default_rng(1).standard_normal(64).astype(np.float32)}
    expected = ulpscope.Engine(model, precision=base, layer_precisions=layers, fusion=fusion).run(feed)
    names = {"float16": "fp16", "bfloat16": "bf16"}
    wanted = [base] if base != "fp32" else []
    wanted += [names[t] for t in {*layers.values()} if t in names and names[t] not in wanted]
    # Layers that nothing is asked of are in the first precision.
    others = {
        n.name: "float32"
        for n in model.graph.node
        if base == "fp32" and n.op_type not in ("Where", "Constant") and n.name not in layers
    }
    typed, _ = ulpscope.convert(
        model, precision=wanted, layer_precisions={**others, **layers}, fusion=fusion, data=[feed]
    )
    actual = ulpscope.Engine(typed, fusion=fusion).run(feed)
    assert bits(actual) == bits(expected)
    if layers.get("Where") == "float32" and base == "fp16":
        plain = ulpscope.Engine(model, precision=base, fusion=fusion).run(feed)
        assert bits(plain) != bits(expected)  # The constant was rounded there.


def one_graph(nodes, feed, constants, opset=21):
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feed.items()
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@pytest.mark.parametrize("fusion", FUSIONS)
def test_a_constant_that_is_moved_in_one_narrow_type_and_read_in_another(fusion):
    """Where stores it in bfloat16; the file has Where in float16, which holds more of it."""
    feed = {"c": np.ones((1, 2, 3, 3), np.bool_), "x": np.full((1, 2, 3, 3), 0.3, np.float32)}
    random = np.random.default_rng(1)
    constants = {
        "k": random.standard_normal((1, 2, 1, 1)).astype(np.float32),
        "w": random.standard_normal((4, 2, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Asin", ["x"], ["a"], "Asin"),
        helper.make_node("Where", ["c", "k", "a"], ["b"], "Where"),
        helper.make_node("Conv", ["b", "w"], ["y"], "Conv"),
    ]
    model, layers = one_graph(nodes, feed, constants), {"Asin": "bfloat16"}
    expected = bits(ulpscope.Engine(model, precision="fp16", layer_precisions=layers, fusion=fusion).run(feed))
    typed, report = ulpscope.convert(
        model, precision=["fp16", "bf16"], layer_precisions=layers, data=[feed], fusion=fusion
    )
    assert not report.kept_back and report.checked
    assert bits(ulpscope.Engine(typed, fusion=fusion).run(feed)) == expected


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_the_words_of_a_file_name_what_it_moves_in_float32(precision):
    """Elements that are combined with a constant which the type does not hold stay in float32."""
    feed = {"x": np.array([0.777, 0.3, 0.2], np.float32)}
    constants = {
        "one": np.ones(1, np.float32),
        "at": np.array([[0]], np.int64),
        "by": np.array([2.7945297], np.float32),
    }
    nodes = [
        helper.make_node("Add", ["x", "one"], ["a"], "Add"),
        helper.make_node("ScatterND", ["a", "at", "by"], ["y"], "ScatterND", reduction="mul"),
    ]
    model = one_graph(nodes, feed, constants)
    typed, report = ulpscope.convert(model, precision=precision, data=[feed])
    assert [name for name, _, _ in report.kept_back] == ["ScatterND"]
    words = dict(line.rsplit(":", 1) for line in report.layer_precisions.splitlines())
    assert words == {"Add": "float16" if precision == "fp16" else "bfloat16", "ScatterND": "float32"}
    expected = bits(ulpscope.Engine(typed).run(feed))
    assert bits(ulpscope.Engine(model, precision=precision, layer_precisions=words).run(feed)) == expected
    assert '"ScatterND": trt.float32' in report.postprocess_script
