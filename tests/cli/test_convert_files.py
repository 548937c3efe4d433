"""The files that `ulpscope convert` writes: where it may, how large, and the plain copies of models."""

import os
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cli_support import dynamic_add, needs_constraints
from convert_support import FLOAT, assert_converted, info, model, save


def test_places_that_cannot_be_written(run, tmp_path):
    save(tmp_path, needs_constraints())
    assert run("convert", "m.onnx", "--fp16", "-o", "m.onnx").code == 1
    assert run("convert", "m.onnx", "--fp16", "-o", "/proc/t.onnx").code == 1
    (tmp_path / "file").write_text("")
    outcome = run("convert", "m.onnx", "--fp16", "-o", "file/t.onnx")
    assert outcome.code == 1 and "cannot write there" in outcome.text, outcome
    assert sorted(os.listdir(tmp_path)) == ["file", "m.onnx"]


def test_what_is_no_file_is_not_replaced(run, tmp_path):
    save(tmp_path, needs_constraints())
    os.mkfifo(tmp_path / "pipe")
    for where in ("pipe", "/dev/null"):
        outcome = run("convert", "m.onnx", "--fp16", "-o", where)
        assert outcome.code == 1 and "got a device or pipe" in outcome.text, outcome
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "behind").write_text("before")
    (tmp_path / "link.onnx").symlink_to("behind")
    assert_converted(run("convert", "m.onnx", "--fp16", "-o", "link.onnx"))
    assert (tmp_path / "link.onnx").is_symlink() and len(onnx.load(tmp_path / "behind").graph.node) > 0


def test_a_full_disk_leaves_the_old_file(binary, tmp_path):
    save(tmp_path, needs_constraints())
    (tmp_path / "t.onnx").write_text("before")
    limited = f"ulimit -f 16; exec {binary} convert m.onnx --fp16 -o t.onnx --no-python-checks"
    outcome = subprocess.run(["bash", "-c", f"trap '' XFSZ; {limited}"], cwd=tmp_path, text=True, capture_output=True)
    assert outcome.returncode == 1 and "cannot write it" in outcome.stdout + outcome.stderr, outcome
    assert (tmp_path / "t.onnx").read_text() == "before"
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "t.onnx"]


@pytest.mark.skipif(not os.environ.get("ULPSCOPE_SLOW_TESTS"), reason="needs 8 GB of disk: ULPSCOPE_SLOW_TESTS=1")
def test_more_than_2_gb(run, tmp_path):
    """Weights of 4.3 GB in external data; half of that is still more than a model file can hold."""
    rows, columns = 8192, 16384
    made = model(
        [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"], name=f"m{i}") for i in range(8)],
        [info("x0", [1, rows])],
        [info("x8", [1, rows])],
    )
    with open(tmp_path / "w.bin", "wb") as data:
        for i in range(8):
            shape = (rows, columns) if i % 2 == 0 else (columns, rows)
            tensor = made.graph.initializer.add(
                name=f"w{i}", data_type=FLOAT, dims=shape, data_location=TensorProto.EXTERNAL
            )
            for key, value in (
                ("location", "w.bin"),
                ("offset", str(data.tell())),
                ("length", str(rows * columns * 4)),
            ):
                tensor.external_data.add(key=key, value=value)
            row = (np.arange(shape[1], dtype=np.float32) % 7 - 3) / 4096
            for _ in range(0, shape[0], 64):
                data.write(np.tile(row, (64, 1)).tobytes())
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx", "--no-python-checks")
    assert outcome.code == 0, outcome
    assert (tmp_path / "t.onnx.data").stat().st_size >= rows * columns * 8 * 2


def test_models_that_only_other_options_change(run, tmp_path):
    """As Polygraphy's convert: other outputs, or float16 throughout; no layer is asked for a precision."""
    source = save(tmp_path, needs_constraints())
    outcome = run("convert", source, "-o", "marked.onnx", "--onnx-outputs", "mark", "all")
    assert outcome.code == 0, outcome
    graph = onnx.load(tmp_path / "marked.onnx").graph
    assert [o.name for o in graph.output] == [o for node in needs_constraints().graph.node for o in node.output]
    outcome = run("convert", source, "-o", "half.onnx", "--fp-to-fp16")
    assert outcome.code == 0, outcome
    graph = onnx.load(tmp_path / "half.onnx").graph
    assert [graph.input[0].type.tensor_type.elem_type, graph.output[0].type.tensor_type.elem_type] == [1, 1]
    assert sorted(node.op_type for node in graph.node).count("Cast") == 2 and graph.initializer[0].data_type == 10
    both = run("convert", source, "-o", "t.onnx", "--fp16", "--onnx-outputs", "mark", "all")
    assert both.code == 1 and "expected no types of layers" in both.err and not (tmp_path / "t.onnx").exists()


@pytest.mark.parametrize(
    "words", [[], ["--shape-inference"], ["--convert-to", "onnx"], ["--convert-to", "onnx", "--shape-inference"]]
)
def test_a_copy_is_polygraphys(run, polygraphy, tmp_path, words):
    source = save(tmp_path, needs_constraints())
    for who, path in ((run, "mine.onnx"), (polygraphy, "theirs.onnx")):
        outcome = who("convert", source, "-o", path, *words)
        assert outcome.code == 0, outcome
    mine, theirs = onnx.load(tmp_path / "mine.onnx"), onnx.load(tmp_path / "theirs.onnx")
    assert mine.graph == theirs.graph
    assert bool(mine.graph.value_info) == ("--shape-inference" in words)


def test_a_copy_without_the_weights_of_other_files(run, polygraphy, tmp_path):
    weights = [onnx.numpy_helper.from_array(np.arange(64, dtype=np.float32), "w")]
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], [info("x", [64])], [info("y", [64])], weights)
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    os.remove(tmp_path / "w.bin")
    for who, path in ((run, "mine.onnx"), (polygraphy, "theirs.onnx")):
        assert who("convert", "m.onnx", "-o", path).code == 1
        outcome = who("convert", "m.onnx", "-o", path, "--ignore-external-data")
        assert outcome.code == 0, outcome
    load = lambda path: onnx.load(tmp_path / path, load_external_data=False).graph
    assert (
        load("mine.onnx") == load("theirs.onnx")
        and load("mine.onnx").initializer[0].data_location == TensorProto.EXTERNAL
    )


def test_a_name_says_what_is_written(run, polygraphy, tmp_path):
    save(tmp_path, needs_constraints())
    for who in (run, polygraphy):
        outcome = who("convert", "m.onnx", "-o", "m.bin")
        assert (
            outcome.code == 1
            and "Could not automatically determine model type based on output path: m.bin" in outcome.err
        ), outcome
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_engines_have_profiles(run, tmp_path):
    onnx.save(dynamic_add(), tmp_path / "m.onnx")
    profile = [
        word for which, n in (("min", 1), ("opt", 2), ("max", 4)) for word in (f"--trt-{which}-shapes", f"x:[{n},3]")
    ]
    assert run("convert", "m.onnx", "-o", "m.plan", *profile).code == 0
    assert run("run", "m.plan", "--trt", "--input-shapes", "x:[4,3]").code == 0
    outside = run("run", "m.plan", "--trt", "--input-shapes", "x:[5,3]")
    assert outside.code == 1 and "profile" in outside.err, outside
