"""Random products in low formats, against numpy."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest

from fuzz.element_formats import FILE_FORMATS, LAYER_FORMATS, Product, in_file, of_layers

COUNT = int(os.environ.get("ULPSCOPE_FORMATS_COUNT", "40"))


def encoded(array: np.ndarray) -> dict:
    """As Polygraphy writes arrays."""
    content = io.BytesIO()
    np.save(content, array)
    return {"array": base64.b64encode(content.getvalue()).decode(), "polygraphy_class": "ndarray"}


def decoded(values: dict) -> np.ndarray:
    return np.load(io.BytesIO(base64.b64decode(values["array"])))


def judged(product: Product, got: np.ndarray) -> str:
    """What is wrong; nothing where nothing is."""
    error = np.abs(got.astype(np.float64) - product.wanted)
    if (error <= product.bound).all():
        return ""
    at = np.unravel_index(int((error / product.bound).argmax()), error.shape)
    return f"{product.name}{', fp16' if product.half else ''}: {got[at]:.9g} at {at}, expected {product.wanted[at]:.9g}"


IN_FILE = """
import sys, numpy as np, ulpscope
from fuzz.element_formats import in_file
from fuzz.test_element_formats import judged
for seed in range(int(sys.argv[1])):
    product = in_file(seed)
    for fusion in ("none", "full"):
        for threads in (1, 2):
            precision = "fp16" if product.half else "fp32"
            engine = ulpscope.Engine(product.model, precision=precision, fusion=fusion, threads=threads)
            if text := judged(product, engine.run({"x": product.x})["y"]):
                print(seed, fusion, threads, text)
"""


def test_products_of_elements_in_the_file(environment) -> None:
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    settings = {**environment, "PYTHONPATH": os.pathsep.join([environment["PYTHONPATH"], folder])}
    done = subprocess.run([sys.executable, "-c", IN_FILE, str(COUNT)], env=settings, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr[-2000:]


def test_layers_in_formats(program, tmp_path) -> None:
    wrong = []
    for seed in range(COUNT):
        product = of_layers(seed)
        onnx.save(product.model, tmp_path / "m.onnx")
        (tmp_path / "in.json").write_text(json.dumps([{"x": encoded(product.x)}]))
        words = [
            *product.words,
            "--layer-precisions",
            f"product:{product.precision}",
            "--precision-constraints",
            "obey",
        ]
        if product.scale is not None:
            bits = f"{int(product.scale.view(np.uint32)):08x}"
            (tmp_path / "scales.cache").write_text(f"TRT-8601-MinMaxCalibration\nx: {bits}\n")
            words += ["--calibration-cache", "scales.cache"]
        save = ["--load-inputs", "in.json", "--save-outputs", "out.json"]
        done = subprocess.run(
            [program, "run", "m.onnx", "--trt", *words, *save], cwd=tmp_path, capture_output=True, text=True
        )
        if done.returncode != 0:
            wrong.append(f"{seed} {product.name}: {(done.stdout + done.stderr)[-400:]}")
            continue
        outputs = json.loads((tmp_path / "out.json").read_text())["lst"][0][1][0]["outputs"]
        if text := judged(product, decoded(outputs["y"]["values"])):
            wrong.append(f"{seed} {text}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("make, names", [(in_file, FILE_FORMATS), (of_layers, LAYER_FORMATS)])
def test_every_format_occurs(make, names) -> None:
    seen = " ".join(make(seed).name for seed in range(300))
    assert all(name in seen for name in names)
