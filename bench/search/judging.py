"""Judges typed models, ours and those of other tools, in the same way: by ulpscope and by ONNX Runtime.

Each judge compares with the float32 model that it ran itself. Metrics are written here in NumPy, apart from those of
the program. Values are rounded wherever they are stored: `--fusion none` here. ONNX Runtime's CPU provider has no
arithmetic in float16: it computes in float32 between casts, and drops each pair of casts that meet, so that neighbors
in float16 round nothing and never overflow. Two Identities behind every float16 value (of one, which has a kernel for
float16, it would make another float32 node) and no graph optimization keep them.
"""

from __future__ import annotations

import base64
import io
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import models  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402

Outputs = Dict[str, np.ndarray]


class Tolerance(NamedTuple):
    """Of a metric, or of every value (`allclose`: threshold + rtol * |golden|; its error is the share that is used)."""

    metric: str
    threshold: float
    rtol: float = 0
    output: str = ""  #: Judged alone; empty: all.

    def options(self) -> List[str]:
        """The criterion, as words for `precision search`."""
        if self.metric == "allclose":
            return ["--atol", str(self.threshold), "--rtol", str(self.rtol)]
        name = f"{self.output}:" if self.output else ""
        return ["--metric", self.metric, "--threshold", f"{name}{self.threshold}"]

    def error(self, golden: Outputs, given: Outputs) -> float:
        """Of the worst output; infinite where a value is not finite."""
        return max(self._error(golden[name], given[name]) for name in ([self.output] if self.output else golden))

    def _error(self, golden: np.ndarray, given: np.ndarray) -> float:
        a, b = golden.astype(np.float64), given.astype(np.float64)
        if not np.all(np.isfinite(b)):
            return float("inf")
        if self.metric == "allclose":
            return float(np.max(np.abs(a - b) / (self.threshold + self.rtol * np.abs(a))))
        if self.metric == "rel-max":
            return float(np.max(np.abs(a - b)) / np.max(np.abs(a)))
        if self.metric == "rel-l2":
            return float(np.linalg.norm(a - b) / np.linalg.norm(a))
        if self.metric == "kl":
            log_p, log_q = (x - x.max(-1, keepdims=True) for x in (a, b))
            log_p, log_q = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (log_p, log_q))
            return float(np.mean((np.exp(log_p) * (log_p - log_q)).sum(-1)))
        return float(1 - a.ravel() @ b.ravel() / (np.linalg.norm(a) * np.linalg.norm(b)))

    @property
    def limit(self) -> float:
        return 1.0 if self.metric == "allclose" else self.threshold


class Spent(NamedTuple):
    """Seconds by the clock, and of processors: of this process and those that it waited for."""

    seconds: float
    cpu: float

    @staticmethod
    def now() -> "Spent":
        return Spent(time.perf_counter(), sum(os.times()[:4]))

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(self.seconds - other.seconds, self.cpu - other.cpu)

    def plus(self, other: "Spent") -> "Spent":
        return Spent(self.seconds + other.seconds, self.cpu + other.cpu)


def comparison(tolerance: Tolerance) -> Any:
    """compare_outputs for --compare-func-script."""
    def compare_outputs(given: Outputs, golden: Outputs) -> Dict[str, bool]:
        right = {name: np.asarray(golden[name]) for name in golden}
        passed = tolerance.error(right, {name: np.asarray(given[name]) for name in right}) <= tolerance.limit
        return {name: passed for name in right}

    return compare_outputs


def stored(path: pathlib.Path) -> bytes:
    """The model with two Identities behind every float16 output of a node."""
    model = onnx.shape_inference.infer_shapes(onnx.load(str(path)))
    half = {v.name for v in model.graph.value_info if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16}
    nodes = []
    for node in model.graph.node:
        nodes.append(node)
        for i, name in enumerate(node.output):
            if name in half:
                node.output[i] = f"{name}/computed"
                chain = [f"{name}/computed", f"{name}/stored", name]
                nodes += [onnx.helper.make_node("Identity", [a], [b], f"{b}/copy") for a, b in zip(chain, chain[1:])]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return model.SerializeToString()


class Judge:
    """The samples of a model, and what float32 makes of them. Files go to `folder`."""

    def __init__(
        self, program: str, model: pathlib.Path, files: pathlib.Path, tolerance: Tolerance, folder: pathlib.Path
    ) -> None:
        self.program, self.model, self.tolerance, self.folder = program, model, tolerance, folder
        self.search_file = files.with_name(files.name + ".search.json")
        self.held_file = files.with_name(files.name + ".held.json")
        self.calibration_file = files.with_name(files.name + ".calib.json")
        self.samples = models.read_samples(self.search_file)
        self.num_search = len(self.samples)
        self.samples += models.read_samples(self.held_file)
        shapes = {name: "x".join(map(str, values.shape)) for name, values in self.samples[0].items()}
        self.shapes = ["--input-shapes", *(f"{name}:[{dims.replace('x', ',')}]" for name, dims in shapes.items())]
        self.golden = {"ulpscope": self.run_ulpscope(model, []), "onnxruntime": self.run_onnxruntime(model)}

    def call(self, words: List[str], limit: Optional[float] = None) -> Tuple[str, "Spent"]:
        """Runs the program, for `limit` seconds at most; its standard output and what that took. Raises RuntimeError of
        what it says, and Spent."""
        start = Spent.now()
        environment = {**os.environ, "ULPSCOPE_PYTHON": sys.executable}
        try:
            result = subprocess.run(
                [self.program, *words], capture_output=True, text=True, check=False, env=environment, timeout=limit
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"not done after {limit} s", Spent.now() - start) from None
        if result.returncode != 0:
            lines = [line for line in (result.stdout + result.stderr).splitlines() if line.startswith(("[!]", "[E]"))]
            raise RuntimeError((lines or [f"exit code {result.returncode}"])[0][:200], Spent.now() - start)
        return result.stdout, Spent.now() - start

    def run_ulpscope(self, path: pathlib.Path, words: List[str], search_only: bool = False) -> List[Outputs]:
        saved = self.folder / "outputs.json"
        files = [str(self.search_file)] + ([] if search_only else [str(self.held_file)])
        command = ["run", str(path), "--trt", "--fusion", "none", *words, "--load-inputs", *files]
        self.call([*command, "--save-outputs", str(saved), "-q"])
        results = json.loads(saved.read_text())["lst"][0][1]
        decode = lambda text: np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)  # noqa: E731
        return [{name: decode(value["values"]["array"]) for name, value in each["outputs"].items()} for each in results]

    def run_onnxruntime(self, path: pathlib.Path) -> List[Outputs]:
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(stored(path), options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return [dict(zip(names, session.run(None, sample))) for sample in self.samples]

    def figures(self, path: pathlib.Path) -> Dict[str, Any]:
        """Errors and held-out samples that pass, by both judges, and the estimated time, of a typed model."""
        result: Dict[str, Any] = {}
        for name in self.golden:
            try:
                if name == "ulpscope":
                    given = self.run_ulpscope(path, ["--strongly-typed"])
                else:
                    given = self.run_onnxruntime(path)
            except Exception as error:  # noqa: BLE001 - whatever a peer's file makes them say
                result[name] = {"error": float("inf"), "held": 0, "problem": str(error).strip().splitlines()[0][:120]}
                continue
            errors = [self.tolerance.error(a, b) for a, b in zip(self.golden[name], given)]
            passed = sum(error <= self.tolerance.limit for error in errors[self.num_search :])
            result[name] = {"error": max(errors[: self.num_search]), "held": passed}
        result["us"] = self.microseconds(path)
        return result

    def microseconds(self, path: pathlib.Path) -> float:
        """Estimated on the default target, with the default fusion."""
        try:
            text, _ = self.call(["inspect", "model", str(path), "--strongly-typed", *self.shapes, "--json"])
        except RuntimeError:
            return float("nan")
        return float(json.loads(text)["engine"]["microseconds"])

    def search_error(self, words: List[str]) -> float:
        """By ulpscope alone, on the search samples, of the model with these precisions."""
        given = self.run_ulpscope(self.model, words, search_only=True)
        return max(self.tolerance.error(a, b) for a, b in zip(self.golden["ulpscope"], given))
