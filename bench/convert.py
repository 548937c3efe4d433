"""Converters to float16 side by side: `ulpscope convert`, ModelOpt AutoCast, onnxconverter-common.

Every converter runs as a process of its own, on the real models and on small ones with what exporters write (those of
tests/cli/test_convert.py). A result counts as a success if onnx.checker passes it in full, ONNX Runtime loads and runs
it, and this engine runs it strongly typed. Columns: float nodes left in float32, Cast nodes added, the largest difference
of any output from float32 relative to that output's largest magnitude, run strongly typed with `--fusion none` (every
stored value is rounded), seconds, processor seconds (user and system, which other load moves less) and peak memory of the
process. The success rate of each converter stands in the line above the table. The peers come from `--peers PYTHON`, an interpreter
that has them installed; without it, only ulpscope is measured.
"""

from __future__ import annotations

import base64
import io
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, Optional, Tuple

import measure
import models
import numpy as np
import onnx
from onnx import TensorProto

REAL = ("needs_constraints", "minilm", "minilm_planted", "ocr_det", "ocr_cls")
COMMON = (
    "import sys, onnx; from onnxconverter_common import float16; "
    "onnx.save(float16.convert_float_to_float16(onnx.load(sys.argv[1]), keep_io_types=True), sys.argv[2])"
)
PACKAGES = {"AutoCast": "nvidia-modelopt", "onnxconverter-common": "onnxconverter-common"}
RESERVED_TYPES = ("Cast", "Constant")


class Case:
    """A model, and the words that say which inputs it takes."""

    def __init__(self, name: str, path: pathlib.Path, words: List[str]) -> None:
        self.name, self.path, self.words = name, path, words


def real_cases(folder: pathlib.Path) -> List[Case]:
    """The files of tests/models/make_models.py that are there."""
    found = [(name, folder / f"{name}.onnx") for name in REAL]
    return [Case(n, p, ["--load-inputs", str(folder / f"{n}.held.json")]) for n, p in found if p.exists()]


def made_cases(folder: pathlib.Path) -> List[Case]:
    """The models that the tests of `convert` make."""
    sys.path.insert(0, str(models.ROOT / "tests" / "cli"))
    import test_convert

    cases = []
    for name, make in test_convert.MADE.items():
        if name == "needs_constraints":
            continue
        onnx.save(make(), folder / f"{name}.onnx")
        cases.append(Case(name, folder / f"{name}.onnx", test_convert.SHAPES.get(name, [])))
    return cases


#: Runs its arguments and writes what that took. A process of its own: the peak memory of a child counts what its parent
#: had when it started, and this one is large.
LAUNCH = """
import json, os, subprocess, sys, time
with open(sys.argv[1], "wb") as log:
    start = time.perf_counter()
    process = subprocess.Popen(sys.argv[3:], stdout=log, stderr=subprocess.STDOUT)
    _, status, usage = os.wait4(process.pid, 0)
with open(sys.argv[2], "w") as out:
    json.dump([os.waitstatus_to_exitcode(status), time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024], out)
"""


def timed(command: List[str], folder: pathlib.Path) -> Tuple[int, float, float, float, str]:
    """Exit status, seconds, processor seconds, peak MB, and the last line that was printed."""
    log, figures = folder / "log.txt", folder / "figures.json"
    subprocess.run([sys.executable, "-S", "-c", LAUNCH, str(log), str(figures), *command], cwd=folder, check=True)
    code, seconds, cpu, memory = json.loads(figures.read_text())
    lines = log.read_text(errors="replace").strip().splitlines()
    return code, seconds, cpu, memory, lines[-1] if lines else ""


def outputs_of(ulpscope: str, case: Case, path: pathlib.Path, words: List[str]) -> Optional[List[Dict[str, np.ndarray]]]:
    """What the engine computes, per iteration; nothing if it does not run."""
    with tempfile.TemporaryDirectory() as folder:
        saved = pathlib.Path(folder) / "outputs.json"
        command = [ulpscope, "run", str(path), "--trt", *words, *case.words, "--save-outputs", str(saved)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return None
        results = json.loads(saved.read_text())["lst"][0][1]
    decode = lambda text: np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)  # noqa: E731
    return [{name: decode(v["values"]["array"]) for name, v in each["outputs"].items()} for each in results]


def error_of(exact: List[Dict[str, np.ndarray]], got: List[Dict[str, np.ndarray]]) -> float:
    worst = 0.0
    for want, have in zip(exact, got):
        for name, values in want.items():
            a, b = values.astype(np.float64), have[name].astype(np.float64)
            if a.size == 0 or not np.issubdtype(values.dtype, np.floating):
                continue
            scale = max(float(np.abs(a).max()), 1e-30)
            worst = max(worst, float("inf") if not np.isfinite(b).all() else float(np.abs(a - b).max()) / scale)
    return worst


def count_nodes(path: pathlib.Path) -> Tuple[int, int]:
    """Float nodes whose first output is float32, and Cast nodes."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path))
    infos = [*model.graph.value_info, *model.graph.output]
    types = {v.name: v.type.tensor_type.elem_type for v in infos}
    kept = [n for n in model.graph.node if n.op_type not in RESERVED_TYPES and types.get(n.output[0]) == TensorProto.FLOAT]
    return len(kept), sum(n.op_type == "Cast" for n in model.graph.node)


def runs_in_onnxruntime(path: pathlib.Path, inputs: Dict[str, np.ndarray]) -> str:
    """Empty, or what it says."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    try:
        onnx.checker.check_model(str(path), full_check=True)
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)
    except Exception as error:  # noqa: BLE001 - whatever a peer's file makes them say
        return str(error).strip().splitlines()[0][:80]
    return ""


def inputs_of(ulpscope: str, case: Case) -> Dict[str, np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        saved = pathlib.Path(folder) / "inputs.json"
        command = [ulpscope, "run", str(case.path), "--trt", *case.words, "--save-inputs", str(saved)]
        subprocess.run(command, capture_output=True, check=True)
        first = json.loads(saved.read_text())[0]
    return {name: np.load(io.BytesIO(base64.b64decode(value["array"]))) for name, value in first.items()}


def converters(ulpscope: str, peers: Optional[str]) -> Dict[str, Any]:
    result = {"ulpscope": lambda s, d, w: [ulpscope, "convert", s, "--fp16", "-o", d, "--no-python-checks", *w]}
    for name, package in PACKAGES.items():
        found = peers and subprocess.run([peers, "-m", "pip", "show", "-q", package], capture_output=True, check=False)
        if not found or found.returncode != 0:
            print(f"{name} is left out: {package} is not installed for --peers {peers}", file=sys.stderr)
        elif name == "AutoCast":
            options = ["--low_precision_type", "fp16", "--keep_io_types"]
            module = [peers, "-m", "modelopt.onnx.autocast"]
            result[name] = lambda s, d, w: [*module, "--onnx_path", s, "--output_path", d, *options]
        else:
            result[name] = lambda s, d, w: [peers, "-c", COMMON, s, d]
    return result


def measure_case(ulpscope: str, case: Case, tools: Dict[str, Any]) -> List[Dict[str, Any]]:
    exact = outputs_of(ulpscope, case, case.path, [])
    inputs, (_, casts) = inputs_of(ulpscope, case), count_nodes(case.path)
    rows = []
    for name, command in tools.items():
        row: Dict[str, Any] = {"model": case.name, "converter": name, "success": "yes", "float32 nodes": "", "casts": ""}
        row.update({"error": "", "seconds": "", "CPU s": "", "peak MB": ""})
        rows.append(row)
        with tempfile.TemporaryDirectory() as folder:
            typed = pathlib.Path(folder) / "typed.onnx"
            words = command(str(case.path.resolve()), str(typed), case.words)
            code, seconds, cpu, memory, line = timed(words, pathlib.Path(folder))
            if code != 0 or not typed.exists():
                row["success"] = f"no: {line[:80]}".replace("|", "/")
                continue
            row.update({"seconds": f"{seconds:.2f}", "CPU s": f"{cpu:.2f}", "peak MB": f"{memory:.0f}"})
            problem = runs_in_onnxruntime(typed, inputs)
            got = outputs_of(ulpscope, case, typed, ["--strongly-typed", "--fusion", "none"])
            if problem or got is None:
                row["success"] = f"no: {problem or 'does not run strongly typed'}".replace("|", "/")
            if got is not None and exact is not None:
                row["error"] = f"{error_of(exact, got):.2g}"
            try:
                kept, now = count_nodes(typed)
                row.update({"float32 nodes": kept, "casts": now - casts})
            except Exception:  # noqa: BLE001 - an invalid file
                pass
    return rows


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--ulpscope", default=str(models.ROOT / "build" / "release" / "bin" / "ulpscope"))
    parser.add_argument("--peers", help="a Python interpreter with nvidia-modelopt[onnx] and onnxconverter-common")
    options = parser.parse_args()
    options.path = options.path.resolve()  # Converters run in folders of their own.
    tools = converters(options.ulpscope, options.peers)
    rows: List[Dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        cases = real_cases(options.path) + made_cases(pathlib.Path(folder))
        for case in cases[:1] if options.quick else cases:
            rows.extend(measure_case(options.ulpscope, case, tools))
    where = measure.environment()
    for name in tools:
        of_tool = [row for row in rows if row["converter"] == name]
        where[f"successes of {name}"] = f"{sum(row['success'] == 'yes' for row in of_tool)}/{len(of_tool)}"
    for name in tools:
        if name != "ulpscope":
            code = f"from importlib.metadata import version; print(version('{PACKAGES[name]}'))"
            where[name] = subprocess.run([options.peers, "-c", code], capture_output=True, text=True, check=False).stdout.strip()
    measure.report(rows, where, options.output)


if __name__ == "__main__":
    main()
