"""Writes the corpora of the fuzz targets: small valid files and some damaged ones, a folder per target.

    .venv/bin/python3 tests/fuzz_targets/make_corpus.py

The program in build/release (or $ULPSCOPE_BIN) writes those in formats of its own.
"""
import base64
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import msgpack
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))
from search_support import answer_of, version_1  # noqa: E402

CORPUS = HERE / "corpus"
PROGRAM = os.environ.get("ULPSCOPE_BIN", str(HERE.parent.parent / "build/release/bin/ulpscope"))
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def write(target: str, name: str, content: bytes | str) -> None:
    """One file of a corpus."""
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def info(name, shape=None, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name, *shape, dtype=np.float32):
    values = np.arange(int(np.prod(shape)), dtype=np.int64) % 7 - 3
    return numpy_helper.from_array(values.reshape(shape).astype(dtype), name)


def model(nodes, inputs, outputs=("y",), weights=(), opset=17, domains=(), **rest) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info(o) for o in outputs],
                              list(weights), value_info=rest.pop("value_info", []))
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(domain, 1) for domain in domains]
    return helper.make_model(graph, opset_imports=imports, ir_version=rest.pop("ir_version", 8), producer_name="",
                             **rest)


def node(op, inputs, outputs=("y",), name=None, **attributes):
    return helper.make_node(op, inputs.split(), list(outputs), name=name or op, **attributes)


def branch(nodes, output):
    return helper.make_graph(nodes, "b", [], [helper.make_empty_tensor_value_info(output)])


def choice(depth):
    """An If in an If in an If."""
    inner = [node("Neg", "x", [f"n{depth}"], f"neg{depth}")] if depth == 0 else [choice(depth - 1)]
    output = inner[0].output[0]
    return helper.make_node("If", ["c"], [f"chosen{depth}"], name=f"if{depth}",
                            then_branch=branch(inner, output),
                            else_branch=branch([node("Relu", "x", [f"r{depth}"], f"relu{depth}")], f"r{depth}"))


def loop():
    body = helper.make_graph(
        [node("Add", "state x", ["next"]), node("Identity", "go", ["still"]), node("Identity", "next", ["seen"], "seen")],
        "body", [info("i", [], INT64), info("go", [], BOOL), info("state", [2])],
        [info("still", [], BOOL), info("next", [2]), info("seen", [2])])
    return model([helper.make_node("Loop", ["n", "", "x"], ["y", "all"], name="loop", body=body)], [info("x", [2])],
                 ("y", "all"), [weight("n", dtype=np.int64)])


def scan():
    body = helper.make_graph([node("Add", "s e", ["t"]), node("Identity", "t", ["o"])], "body",
                             [info("s", [3]), info("e", [3])], [info("t", [3]), info("o", [3])])
    return model([helper.make_node("Scan", ["z", "x"], ["y", "all"], name="scan", num_scan_inputs=1, body=body)],
                 [info("x", [4, 3])], ("y", "all"), [weight("z", 3)])


def functions():
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    scale = helper.make_node("Constant", [], ["k"])
    scale.attribute.append(helper.make_attribute("value_float", 0.5))
    scale.attribute[0].ref_attr_name = "factor"
    half = helper.make_function("local", "Half", ["a"], ["b"], [scale, node("Mul", "a k", ["b"])], opset, ["factor"])
    outer = helper.make_function("local", "Outer", ["a"], ["b", "a"],
                                 [helper.make_node("Half", ["a"], ["b"], domain="local", factor=0.25)], opset)
    call = helper.make_node("Outer", ["x"], ["y", "z"], domain="local", name="call")
    return model([call], [info("x", [2])], ("y", "z"), domains=["local"], functions=[half, outer])


def dense():
    return model([node("MatMul", "x w", ["m"]), node("Add", "m b", ["a"]), node("Relu", "a")], [info("x", ["batch", 4])],
                 weights=[weight("w", 4, 3), weight("b", 3)])


def models() -> dict[str, onnx.ModelProto]:
    x = info("x", [1, 2, 5, 5])
    norm = [weight(n, 2) for n in ("s", "o", "mean")] + [numpy_helper.from_array(np.ones(2, np.float32), "var")]
    quantized = [weight("q", 4, 3, dtype=np.int8), numpy_helper.from_array(np.float32(0.1), "ws"),
                 numpy_helper.from_array(np.float32(0.2), "xs"), numpy_helper.from_array(np.int8(0), "zero")]
    external = weight("w", 4, 3)
    external.ClearField("raw_data")
    external.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "4"), ("length", "48")):
        entry = external.external_data.add()
        entry.key, entry.value = key, value
    cycle = [node("Add", "x b", ["a"]), node("Add", "x a", ["b"], "second"), node("Add", "a b")]
    sparse = helper.make_sparse_tensor(numpy_helper.from_array(np.ones(1, np.float32), "v"), weight("i", 1, dtype=np.int64), [4])
    with_sparse = model([node("Identity", "x")], [x])
    with_sparse.graph.sparse_initializer.append(sparse)
    constants = [node("Constant", "", [f"k{i}"], f"const{i}", **{key: value}) for i, (key, value) in enumerate(
        {"value": weight("", 2), "value_float": 1.5, "value_int": 3, "value_floats": [1.0, 2.0], "value_ints": [1, 2]}.items())]
    sequence = helper.make_tensor_sequence_value_info("s", FLOAT, [2])
    return {
        "dense": dense(),
        "conv": model([node("Conv", "x w b", ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
                       node("BatchNormalization", "c s o mean var", ["n"], epsilon=1e-3), node("Relu", "n", ["r"]),
                       node("MaxPool", "r", kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER")],
                      [x], weights=[weight("w", 2, 2, 3, 3), weight("b", 2), *norm]),
        "if": model([choice(2)], [info("x", [3]), info("c", [], BOOL)], ["chosen2"]),
        "loop": loop(), "scan": scan(), "functions": functions(),
        "quantized": model([node("QuantizeLinear", "x xs zero", ["xq"]), node("DequantizeLinear", "xq xs zero", ["xd"]),
                            node("DequantizeLinear", "q ws zero", ["wd"], "weights", axis=0), node("MatMul", "xd wd")],
                           [info("x", [2, 4])], weights=quantized, opset=21),
        "external": model([node("MatMul", "x w")], [info("x", [2, 4])], weights=[external]),
        "constants": model([*constants, node("Add", "k0 k3", ["a"]), node("Mul", "a k1")], [], ("y", "k2", "k4")),
        "shapes": model([node("Shape", "x", ["s"]), node("Gather", "s i", ["g"], axis=0), node("Unsqueeze", "g i1", ["u"]),
                         node("Concat", "u minus", ["t"], axis=0), node("Reshape", "x t")], [info("x", ["n", 3, None])],
                        weights=[weight("i", dtype=np.int64),
                                 numpy_helper.from_array(np.array([0], np.int64), "i1"),
                                 numpy_helper.from_array(np.array([-1], np.int64), "minus")]),
        "attributes": model([node("Resize", "x  sizes", mode="cubic", cubic_coeff_a=-0.5, antialias=1, axes=[2, 3])],
                            [x], weights=[weight("sizes", 2)], opset=18),
        "strings": model([node("StringNormalizer", "x")], [info("x", [2], TensorProto.STRING)]),
        "sequence": model([node("SequenceAt", "s i")], [sequence, info("i", [], INT64)]),
        "sparse": with_sparse, "cycle": model(cycle, [info("x", [2])]),
        "opset7": model([node("Dropout", "x", ["d"], ratio=0.5), node("Upsample", "d", mode="nearest", scales=[1., 1., 2., 2.])],
                        [x], opset=7, ir_version=3),
        "contrib": model([helper.make_node("SkipLayerNormalization", ["x", "x", "g"], ["y"], domain="com.microsoft", name="n"),
                          helper.make_node("FusedMatMul", ["x", "x"], ["z"], domain="com.microsoft", name="f")],
                         [info("x", [2, 4])], ("y", "z"), [weight("g", 4)], domains=["com.microsoft"]),
        "unsorted": model([node("Relu", "b"), node("Neg", "x", ["b"])], [info("x", [2])]),
        "attention": model([node("MatMul", "q k", ["s"]), node("Softmax", "s", ["p"], axis=-1), node("MatMul", "p v", name="o")],
                           [info("q", [2, 4, 8]), info("k", [2, 8, 4]), info("v", [2, 4, 8])]),
        "described": model([node("Cast", "x", ["h"], to=TensorProto.FLOAT16), node("Cast", "h", name="back", to=FLOAT)],
                           [info("x", ["a", "b"])], value_info=[info("h", ["a", "b"], TensorProto.FLOAT16)]),
    }


def write_tensors() -> None:
    """TensorProtos without names."""
    def put(name, tensor):
        tensor.ClearField("name")
        write("tensors", name, tensor.SerializeToString())

    for dtype in "f4 f8 f2 i1 u1 i2 u2 i4 u4 i8 u8 ?".split():
        array = np.arange(6).reshape(2, 3).astype(dtype)
        put(f"raw_{np.dtype(dtype).name}", numpy_helper.from_array(array))
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        values = array.view(np.uint16).ravel().tolist() if dtype == "f2" else array.ravel().tolist()
        if dtype != "f2":
            put(f"typed_{np.dtype(dtype).name}", helper.make_tensor("t", kind, (2, 3), values))
    for name, location, offset, length in (("whole", "w.bin", "0", "48"), ("rest", "w.bin", "252", None),
                                           ("odd", "w.bin", "3", "48"), ("climbs", "../w.bin", "0", "48"),
                                           ("far", "w.bin", "18446744073709551615", "48"), ("absent", "v.bin", None, None)):
        tensor = TensorProto(data_type=FLOAT, dims=[3, 4], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", location), ("offset", offset), ("length", length)):
            if value is not None:
                tensor.external_data.add(key=key, value=value)
        put(f"external_{name}", tensor)
    put("scalar", numpy_helper.from_array(np.float32(3)))
    put("empty", numpy_helper.from_array(np.zeros((0, 3), np.float32)))
    put("bfloat16", TensorProto(data_type=TensorProto.BFLOAT16, dims=[2], raw_data=b"\x80\x3f\0\x40"))
    put("fp8", TensorProto(data_type=TensorProto.FLOAT8E4M3FN, dims=[2], raw_data=b"\x38\x40"))
    put("int4", TensorProto(data_type=TensorProto.INT4, dims=[3], raw_data=b"\x21\x03"))
    put("uint4_typed", TensorProto(data_type=TensorProto.UINT4, dims=[3], int32_data=[0x21, 3]))
    put("float4_typed", TensorProto(data_type=TensorProto.FLOAT4E2M1, dims=[2], int32_data=[0x57]))
    put("huge", TensorProto(data_type=FLOAT, dims=[2**40, 2**40], raw_data=b"\0" * 4))
    put("negative", TensorProto(data_type=FLOAT, dims=[-1], raw_data=b"\0" * 4))
    put("string", TensorProto(data_type=TensorProto.STRING, dims=[1], string_data=[b"a"]))


def write_arrays() -> None:
    """NumPy's files, and JSON with them."""
    def npy(array, version=(1, 0)):
        out = io.BytesIO()
        np.lib.format.write_array(out, array, version)
        return out.getvalue()

    base = np.arange(6).reshape(2, 3)
    for dtype in "<f4 >f4 <f8 <f2 |i1 >u2 <i8 >u8 |b1".split():
        write("npy", f"{dtype[1:]}_{'big' if dtype[0] == '>' else 'little'}.npy", npy(base.astype(dtype)))
    write("npy", "fortran.npy", npy(np.asfortranarray(base.astype("<f4"))))
    write("npy", "scalar.npy", npy(np.float32(2)))
    write("npy", "empty.npy", npy(np.zeros((3, 0), np.float32)))
    write("npy", "version2.npy", npy(base.astype("<f4"), (2, 0)))
    write("npy", "version3.npy", npy(base.astype("<f4"), (3, 0)))
    write("npy", "structure.npy", npy(np.zeros(2, [("a", "<f4"), ("b", "<i2")])))
    header = b"{'descr': '<f4', 'fortran_order': True, 'shape': (4294967296, 4294967296, 0x), }\n"
    write("npy", "huge.npy", b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + b"\0" * 8)
    python2 = header.replace(b"4294967296, 4294967296, 0x", b"2L, 1L")
    write("npy", "python2.npy", b"\x93NUMPY\x01\0" + len(python2).to_bytes(2, "little") + python2 + b"\0" * 8)
    for name, save in (("stored", np.savez), ("deflated", np.savez_compressed)):
        out = io.BytesIO()
        save(out, base.astype("<f4"), np.float64(1))
        write("npz", f"{name}.npz", out.getvalue())
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, archive.open("a.npy", "w", force_zip64=True) as entry:
        entry.write(npy(base.astype("<f4")))
    write("npz", "zip64.npz", out.getvalue())
    end64 = (b"PK\x06\x06" + (44).to_bytes(8, "little") + b"\x2d\0" * 2 + b"\0" * 8 + (1).to_bytes(8, "little") * 2 +
             (46).to_bytes(8, "little") + (0).to_bytes(8, "little"))
    write("npz", "locator.npz", out.getvalue()[:-22] + end64 + b"PK\x06\x07" + b"\0" * 4 +
          (len(out.getvalue()) - 22).to_bytes(8, "little") + b"\1\0\0\0" + out.getvalue()[-22:-6] + b"\xff" * 4 + b"\0\0")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr(zipfile.ZipInfo("a.npy"), npy(base.astype("<f4")), zipfile.ZIP_BZIP2)
    write("npz", "bzip2.npz", out.getvalue())

    # The file of a tensor of torch is a ZIP archive; what is fuzzed is its pickle, of 4 elements.
    made = b"ctorch._utils\n_rebuild_tensor_v2\nq\0"
    storage = b"((X\7\0\0\0storageq\1ctorch\nFloatStorage\nq\2X\1\0\0\x000q\3X\3\0\0\0cpuq\4K\4tq\5Q"
    rest = b"\x89ccollections\nOrderedDict\nq\6)Rq\7tq\x08Rq\t."
    for name, view in (
        ("matrix", b"K\0K\2K\2\x86K\1K\2\x86"),
        ("scalar", b"K\3))"),
        ("three", b"K\0K\1K\2K\2\x87K\4K\2K\1\x87"),
    ):
        write("torch_file", f"{name}.pkl", b"\x80\2" + made + storage + view + rest)

    encoded = base64.b64encode(npy(np.float32([1, 2]))).decode()
    array = {"array": encoded, "polygraphy_class": "ndarray"}
    put = lambda name, value: write("json_values", name, json.dumps(value))
    put("inputs.json", [{"x": array, "mask": array}])
    put("one.json", {"x": array})
    put("old_marker.json", [{"x": {"array": encoded, "__polygraphy_encoded_ndarray": "polygraphy_serialized_json_type"}}])
    put("latin1.json", [{"x": {**array, "array": npy(np.float32([1, -2])).decode("latin1")}}])
    put("lazy.json", [{"x": {"values": {"values": array, "polygraphy_class": "LazyNumpyArray"}, "polygraphy_class": "LazyArray"}}])
    put("torch.json", [{"x": {"array": encoded, "polygraphy_class": "Tensor"}}])
    iteration = {"outputs": {"y": {"values": array, "polygraphy_class": "LazyArray"}}, "runtime": 0.5, "runner_name": "r",
                 "polygraphy_class": "IterationResult"}
    put("outputs.json", {"lst": [["r", [iteration, {**iteration, "runtime": None}]], ["s", []]],
                         "polygraphy_class": "RunResults"})
    write("json_values", "truncated.json", json.dumps([{"x": array}])[:-9])
    write("json_values", "nan.json", '{"lst": [["r", [1e999]]], "polygraphy_class": "RunResults"}')

    for name, text in {"shapes": "x:[1,3,-1]\nold,1x3x224\n a:b:[ 2 , n ]\ns:[]", "numbers": "1e-3\ny:inf\nz:+5\nw:nan\n-0.0",
                       "ranges": "[0,1]\nx:[-1.5,1e3]\ny:[2,1]", "words": 'max\ny:"mean"\n:min', "top": "top-5\ny:top-1,axis=-1\ntop-0"}.items():
        write("name_values", name, text)


def write_caches() -> None:
    """Calibration caches as TensorRT and careless people write them."""
    header = "TRT-8601-EntropyCalibration2\n"
    for name, text in {"plain": header + "data: 3c008912\n(Unnamed Layer* 48) [Constant]_output: 3c010204\n",
                       "crlf": "\ufeff" + header.replace("\n", "\r\n") + "\r\na: b: 3f800000\r\n\r\n",
                       "short": "TRT-100-MinMax-Calibration\nx: 1000000\nx: 1000000 ", "nan": header + "x: 7fc00000\n",
                       "twice": header + "x: 3c008912\nx: 3c008913\n", "empty": header}.items():
        write("calibration_cache", name, text)


def plan_as_json(path: Path) -> str:
    """The description of a plan file, which the target takes as JSON, too."""
    content = path.read_bytes()
    return json.dumps(msgpack.unpackb(content[32:32 + int.from_bytes(content[16:24], "little")]), separators=(",", ":"))


def write_ours() -> None:
    """What the program writes."""
    with tempfile.TemporaryDirectory() as folder:
        def run(*words):
            subprocess.run([PROGRAM, *words], cwd=folder, check=True, capture_output=True)

        for name, flags in (("dense", ["--fp16"]), ("conv", ["--bf16", "--fusion", "none"]), ("loop", ["--fp16"]),
                            ("if", []), ("quantized", ["--int8", "--fp16"])):
            onnx.save(models()[name], f"{folder}/{name}.onnx")
            run("run", f"{name}.onnx", "--trt", *flags, "--save-engine", f"{name}.plan", "--save-tactics", f"{name}.json")
            write("plan", f"{name}.json", plan_as_json(Path(folder, f"{name}.plan")))
            if name in ("dense", "if"):
                write("plan", f"{name}.plan", Path(folder, f"{name}.plan").read_bytes())
            if name in ("dense", "quantized"):
                write("tactics", f"{name}.json", Path(folder, f"{name}.json").read_bytes())
        steps = [{"computes": "product 1x4x4", "algorithm": "00ff"}, {"computes": "generated kernel", "algorithm": "5f0c"}]
        gpu = {"replay": {"a + b": {"implementation": 2147483650, "steps": steps}}, "backend": "cuda", "device": "NVIDIA H200"}
        write("tactics", "gpu.json", json.dumps(gpu))
        write("tactics", "other_builder.json", json.dumps({"replay": {"a + b": {"implementation": -2147483612, "tactic": 5}}}))
        run("precision", "search", "dense.onnx", "--fp16", "--metric", "rel-l2", "--threshold", "1e-4", "--save-answer",
            "a.json", "--journal", "j.jsonl")
        answer = Path(folder, "a.json").read_text()
        write("answer", "answer.json", json.dumps(json.loads(answer), separators=(",", ":")))
        lines = Path(folder, "j.jsonl").read_text().splitlines(keepends=True)
        write("answer", "trials.jsonl", "".join(lines[1:4]))
        write("answer", "cut.jsonl", lines[1][:-20])
        write("answer", "journal.jsonl", json.dumps({"format": "ulpscope-journal", "version": 2, "made_for": [
            ["model", "m"], ["metric", "rel-l2"]], "names": json.loads(lines[0])["names"]}) + "\n" + lines[1])
        old = version_1(answer_of(Path(folder), "a.json"))
        write("answer", "answer_version_1.json", json.dumps(old, separators=(",", ":")))


def main() -> None:
    shutil.rmtree(CORPUS, ignore_errors=True)
    for name, proto in models().items():
        write("onnx_model", f"{name}.onnx", proto.SerializeToString())
    write_tensors()
    write_arrays()
    write_caches()
    write_ours()


if __name__ == "__main__":
    main()
