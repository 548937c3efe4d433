"""`ulpscope convert` and the versions of ONNX: opsets are raised as far as runtimes go, and no
further; what lacks a narrow form stays."""

import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from convert_support import assert_converted, info, model, save, values

node = helper.make_node


def behind_a_product(nodes, outputs, opset, constants=()):
    return model(
        [node("MatMul", ["x", "w"], ["t"], name="product"), *nodes],
        [info("x", [4, 8])],
        outputs,
        [values("w", 8, 8), *constants],
        opset=opset,
        ir_version=10,
    )


def types_of(path):
    """Element types of all values of a file."""
    graph = onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True).graph
    known = {each.name: each.type.tensor_type.elem_type for each in [*graph.input, *graph.output, *graph.value_info]}
    return {each.name: known.get(each.input[0]) for each in graph.node}


@pytest.mark.parametrize("precision", ["--fp16", "--bf16"])
def test_no_opset_is_raised_beyond_runtimes(run, tmp_path, precision):
    """Celu has narrow types since opset 28, which nothing loads: it stays as it is, and the product is lowered."""
    save(tmp_path, behind_a_product([node("Celu", ["t"], ["y"], name="celu")], [info("y", [4, 8])], 18))
    outcome = run("convert", "m.onnx", precision, "-o", "t.onnx")
    assert_converted(outcome)
    type_name = {"--fp16": "float16", "--bf16": "bfloat16"}[precision]
    assert (
        f"1 layer(s) stay in higher precision, since ONNX has no {type_name} Celu at opset 18 (it has one since "
        "opset 28, which TensorRT and ONNX Runtime do not load): celu"
    ) in outcome.text, outcome
    assert onnx.load(tmp_path / "t.onnx").opset_import[0].version == 18
    assert types_of(tmp_path / "t.onnx")["celu"] == onnx.TensorProto.FLOAT
    assert (
        types_of(tmp_path / "t.onnx")["product"]
        == {"--fp16": onnx.TensorProto.FLOAT16, "--bf16": onnx.TensorProto.BFLOAT16}[precision]
    )


def test_a_newer_opset_of_the_model_is_used(run, tmp_path):
    save(tmp_path, behind_a_product([node("Celu", ["t"], ["y"], name="celu")], [info("y", [4, 8])], 28))
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx")
    assert outcome.code == 0 and "stay in higher precision" not in outcome.text, outcome
    assert types_of(tmp_path / "t.onnx")["celu"] == onnx.TensorProto.FLOAT16
    assert "The model is of opset 28, and so is what is written: TensorRT's parser reads up to 25" in outcome.text, (
        outcome
    )
    left_out = "Not run in ONNX Runtime, which does not have the opset of the model yet" in outcome.text
    assert left_out or "ONNX Runtime" in re.search("Checked by .*", outcome.text)[0]  # by its version


def test_what_selects_among_values_needs_no_narrow_type(run, tmp_path):
    """TopK takes bfloat16 since opset 24: of bfloat16 values in float32 it picks the same."""
    three = numpy_helper.from_array(np.array([3]), "k")
    save(tmp_path, behind_a_product([node("TopK", ["t", "k"], ["y", "i"], name="top")],
                                    [info("y", [4, 3]), info("i", [4, 3], onnx.TensorProto.INT64)], 17, [three]))
    outcome = run("convert", "m.onnx", "--bf16", "-o", "t.onnx")
    assert_converted(outcome)
    assert onnx.load(tmp_path / "t.onnx").opset_import[0].version == 17
    assert types_of(tmp_path / "t.onnx")["top"] == onnx.TensorProto.FLOAT
    assert "no CPU kernels" in outcome.text or "ONNX Runtime" in outcome.text


def test_functions_that_are_written_for_float_stay(run, tmp_path):
    """The definition of MeanVarianceNormalization has constants in float, with which float16 does not go."""
    save(
        tmp_path,
        behind_a_product(
            [node("MeanVarianceNormalization", ["t"], ["y"], name="mvn", axes=[1])], [info("y", [4, 8])], 13
        ),
    )
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx")
    assert_converted(outcome)
    assert (
        "ONNX defines MeanVarianceNormalization at opset 13 by a function with constants in float32, which "
        "onnx.checker refuses "
        "for float16: mvn"
    ) in outcome.text, outcome


@pytest.mark.parametrize("shape", [[2, 3, 4, 4], None])
def test_a_check_that_the_model_fails_itself_is_left_out(run, tmp_path, shape):
    """onnx 1.23 refuses MeanVarianceNormalization without axes, which ONNX defines, as it infers shapes; it takes no
    output without a shape in the check before that."""
    broken = model(
        [node("Mul", ["x", "x"], ["t"], name="square"), node("MeanVarianceNormalization", ["t"], ["y"], name="mvn")],
        [info("x", [2, 3, 4, 4])],
        [info("y", shape)],
        opset=13,
    )
    onnx.save(broken, tmp_path / "m.onnx")
    try:
        onnx.shape_inference.infer_shapes(broken, strict_mode=True)
    except Exception:
        pass
    else:
        pytest.skip("this version of onnx takes it")
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx")
    assert outcome.code == 0 and "Not checked by onnx.checker, which refuses the model itself, too" in outcome.text, (
        outcome
    )
    assert "equal in every bit" in outcome.text and (tmp_path / "t.onnx").exists()


def test_an_operator_of_onnxruntime_under_the_name_of_onnx(run, tmp_path):
    """Builders of language models write SimplifiedLayerNormalization without a domain, and outputs without a shape."""
    norm = node("SimplifiedLayerNormalization", ["x", "s"], ["n"], name="norm", axis=-1, epsilon=1e-5)
    made = model(
        [norm, node("MatMul", ["n", "w"], ["y"], name="product")], [info("x", [2, 8])], [info("y", None)],
        [numpy_helper.from_array(np.ones(8, np.float32), "s"), values("w", 8, 8)], opset=17, ir_version=10,
    )  # fmt: skip
    onnx.save(made, tmp_path / "m.onnx")
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx")
    assert outcome.code == 0 and "Not checked by onnx.checker, which refuses the model itself, too" in outcome.text, (
        outcome
    )
    assert "ONNX Runtime" in outcome.text.rsplit("Checked by", 1)[1], outcome


def test_a_typed_model_over_which_onnxruntime_crashes(run, tmp_path):
    """Its 1.31 ends with a segmentation fault where Transpose moves through Reshape in front of a float16 product."""
    nodes = [
        node("Relu", ["x"], ["r"]), node("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "shape"], ["q"]), node("Transpose", ["q"], ["u"], perm=[1, 0, 2]),
        node("MatMul", ["u", "w"], ["y"]),
    ]  # fmt: skip
    constants = [numpy_helper.from_array(np.array([0, 0, -1]), "shape"), values("w", 8, 2)]
    made = model(nodes, [info("x", [2, 2, 1, 4])], [info("y", [1, 2, 2])], constants, opset=18, ir_version=10)
    onnx.save(made, tmp_path / "m.onnx")
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx")
    assert outcome.code == 0 and (tmp_path / "t.onnx").exists(), outcome
    load = "import onnxruntime, sys; onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"
    if (
        subprocess.run([sys.executable, "-c", load, tmp_path / "t.onnx"], check=False, capture_output=True).returncode
        == 0
    ):
        pytest.skip("this version of ONNX Runtime does not crash")
    assert (
        "ONNX Runtime crashes (killed by signal 11 (Segmentation fault)) while it optimizes the typed model"
        in outcome.text
    ), outcome
    assert "ONNX Runtime without its optimizations" in outcome.text, outcome


def test_a_typed_model_that_onnxruntime_fuses_wrongly(run, tmp_path):
    """Its 1.31 makes a LayerNormalization of float16 data and a float32 scale out of one in pieces, and refuses it."""
    nodes = [
        node("ReduceMean", ["x", "last"], ["m"]), node("Sub", ["x", "m"], ["d"]), node("Pow", ["d", "two"], ["p"]),
        node("ReduceMean", ["p", "last"], ["v"]), node("Add", ["v", "e"], ["ve"]), node("Sqrt", ["ve"], ["s"]),
        node("Div", ["d", "s"], ["n"]), node("Mul", ["n", "g"], ["ng"]), node("Add", ["ng", "b"], ["y"]),
    ]  # fmt: skip
    scalars = [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in {"two": 2, "e": 1e-3}.items()]
    constants = [*scalars, numpy_helper.from_array(np.array([-1]), "last"), values("g", 33), values("b", 33)]
    made = model(nodes, [info("x", ["n", 3, 33])], [info("y", ["n", 3, 33])], constants, opset=20, ir_version=9)
    onnx.save(made, tmp_path / "m.onnx")
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx")
    assert outcome.code == 0 and (tmp_path / "t.onnx").exists(), outcome
    if "LayerNormFusion" not in outcome.text:
        pytest.skip("this version of ONNX Runtime does not")
    assert "while it optimizes the typed model; without optimizations (ORT_DISABLE_ALL) it runs it" in outcome.text
