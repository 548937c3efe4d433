"""A search beside the tools that choose layers for fp16 elsewhere, on one and the same single sample.

onnxconverter-common's auto_convert_mixed_precision tries segments of nodes until the outputs stay within a tolerance: it
gets the same sample, metric and threshold as our search (search_bench --samples 1 --margin 1). ModelOpt's AutoCast takes
no tolerance: it keeps nodes whose values or weights leave the range. What counts is the call: imports, reading the model,
and edits without which a tool stops (clear `edits` in the table) are outside of the clock. A tool that stops, or takes
longer than --limit seconds, is a row that says so.
"""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import measure  # noqa: E402
import models  # noqa: E402
import numpy as np  # noqa: E402

#: Per case of search_bench: the model, metric and threshold.
CASES = {
    "ocr_cls fp16, 1-cos 1e-2": ("ocr_cls", "one-minus-cos", 1e-2),
    "minilm fp16, rel-l2 1e-2": ("minilm", "rel-l2", 1e-2),
    "minilm fp16, rel-l2 7e-4": ("minilm", "rel-l2", 7e-4),
    "minilm_planted fp16": ("minilm_planted", "rel-max", 1e-2),
    "ocr_det fp16, rel-l2 1e-2": ("ocr_det", "rel-l2", 1e-2),
}
#: How many times faster than each the search should be.
TARGETS = {"auto_convert_mixed_precision": 20, "AutoCast": 5}


def error(metric: str, golden: np.ndarray, given: np.ndarray) -> float:
    """Of one output; not finite counts as infinite."""
    a, b = golden.astype(np.float64).ravel(), given.astype(np.float64).ravel()
    if not np.all(np.isfinite(b)):
        return float("inf")
    if metric == "rel-max":
        return float(np.max(np.abs(a - b)) / np.max(np.abs(a)))
    if metric == "rel-l2":
        return float(np.linalg.norm(a - b) / np.linalg.norm(a))
    return float(1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def worst(metric: str, golden: List[np.ndarray], given: List[np.ndarray]) -> float:
    return max(error(metric, a, b) for a, b in zip(golden, given))


def edited(model: Any) -> List[str]:
    """Changes without which a tool stops, and what they are."""
    from onnx import TensorProto, helper

    seen, named = set(), 0
    for i, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{i}"
            named += 1
        seen.add(node.name)
    # onnxconverter-common leaves the type of these in two minds. Right for masks of zeros and ones only.
    nodes, masks = [], 0
    for node in model.graph.node:
        if node.op_type != "Cast" or helper.get_attribute_value(node.attribute[0]) != TensorProto.FLOAT:
            nodes.append(node)
            continue
        if masks == 0:
            model.graph.initializer.append(helper.make_tensor("mask/one", TensorProto.FLOAT, [], [1.0]))
            model.graph.initializer.append(helper.make_tensor("mask/zero", TensorProto.FLOAT, [], [0.0]))
        masks += 1
        condition, name = f"{node.name}/bool", node.name
        nodes.append(helper.make_node("Cast", list(node.input), [condition], f"{name}/Cast", to=TensorProto.BOOL))
        inputs = [condition, "mask/one", "mask/zero"]
        nodes.append(helper.make_node("Where", inputs, list(node.output), f"{name}/Where"))
    # A graph output that nodes read as well is float for its caller and fp16 for them.
    read, shared = {name for node in nodes for name in node.input}, 0
    for output in model.graph.output:
        if output.name not in read:
            continue
        shared += 1
        inner = f"{output.name}/inner"
        for node in nodes:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name == output.name:
                        names[i] = inner
        nodes.append(helper.make_node("Identity", [inner], [output.name], f"{output.name}/Identity"))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    edits = [f"{named} node(s) named"] if named else []
    edits += [f"{shared} output(s) that nodes read behind an Identity"] if shared else []
    return edits + ([f"{masks} Cast(s) of masks to float as Where"] if masks else [])


def prepare_auto_convert(model: Any, sample: Dict[str, np.ndarray], metric: str, threshold: float) -> Callable[[], Any]:
    from onnxconverter_common import auto_mixed_precision

    def accept(golden: List[np.ndarray], given: List[np.ndarray]) -> bool:
        return worst(metric, golden, given) <= threshold

    return lambda: auto_mixed_precision.auto_convert_mixed_precision(model, sample, accept, keep_io_types=True)


def prepare_autocast(model: Any, sample: Dict[str, np.ndarray], folder: pathlib.Path) -> Callable[[], Any]:
    import onnx
    from modelopt.onnx.autocast import convert_to_mixed_precision

    path, data = folder / "model.onnx", folder / "sample.npz"
    onnx.save(model, str(path))
    np.savez(data, **sample)
    return lambda: convert_to_mixed_precision(
        str(path), low_precision_type="fp16", keep_io_types=True, calibration_data=str(data), providers=["cpu"]
    )


def work(tool: str, path: str, sample_path: str, metric: str, threshold: str) -> None:
    """In a process of its own: prints the figures of one tool as JSON."""
    import onnx
    import onnxruntime

    model, sample = onnx.load(path), models.read_samples(pathlib.Path(sample_path))[0]
    golden = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, sample)
    edits = edited(model)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        if tool == "AutoCast":
            call = prepare_autocast(model, sample, pathlib.Path(folder))
        else:
            call = prepare_auto_convert(model, sample, metric, float(threshold))
        start = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - start
        given = onnxruntime.InferenceSession(
            result.SerializeToString(), providers=["CPUExecutionProvider"]
        ).run(None, sample)
    print(json.dumps({"seconds": seconds, "error": worst(metric, golden, given), "edits": "; ".join(edits) or "none"}))


def peer(options: Any, tool: str, case: str) -> Dict[str, Any]:
    name, metric, threshold = CASES[case]
    python = options.modelopt if tool == "AutoCast" else options.python
    files = [str(options.path / f"{name}{end}") for end in (".onnx", ".search.json")]
    command = [python, __file__, "--work", tool, *files, metric, str(threshold)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.limit)
    except subprocess.TimeoutExpired:
        return {"seconds": float(options.limit), "result": f"not done after {options.limit} s", "edits": ""}
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["no message"])[-1]
        return {"seconds": None, "result": f"stops: {reason[:160]}", "edits": ""}
    figures = json.loads(result.stdout.splitlines()[-1])
    return {"seconds": figures["seconds"], "result": f"{metric} {figures['error']:.2g}", "edits": figures["edits"]}


def search(options: Any, case: str) -> Dict[str, Any]:
    command = [str(options.program), "--models", str(options.path), "--case", case, "--samples", "1", "--margin", "1"]
    command += ["--threads", str(options.threads)]
    best: Dict[str, Any] = {}
    for _ in range(options.rounds):
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        figures = json.loads(next(line for line in result.stdout.splitlines() if line.startswith("{")))
        if not best or figures["search"] < best["search"]:
            best = figures
    return best


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "--work":
        work(*sys.argv[2:])
        return
    parser = measure.parser(__doc__ or "")
    build = models.ROOT / "build" / "release" / "bin" / "search_bench"
    parser.add_argument("--program", type=pathlib.Path, default=build, help="search_bench")
    parser.add_argument("--python", default=sys.executable, help="one that has onnxconverter-common and onnxruntime")
    parser.add_argument("--modelopt", help="one that has nvidia-modelopt[onnx]; without it AutoCast is left out")
    parser.add_argument("--limit", type=int, default=300, help="seconds for one tool on one model")
    parser.add_argument("--threads", type=int, default=2, help="of the search; the tools use what they like")
    parser.add_argument("--rounds", type=int, default=3, help="searches per row")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    options = parser.parse_args()
    rows: List[Dict[str, Any]] = []
    for case in options.cases:
        ours = search(options, case)
        for tool in ["auto_convert_mixed_precision"] + (["AutoCast"] if options.modelopt else []):
            theirs = peer(options, tool, case)
            seconds = theirs["seconds"]
            limited = "> " if theirs["result"].startswith("not done") else ""
            rows.append(
                {
                    "search": case,
                    "search s": ours["search"],
                    "kept": ours["kept"],
                    "tool": tool,
                    "tool s": "-" if seconds is None else f"{limited}{seconds:.1f}",
                    "tool / search": "-" if seconds is None else f"{limited}{seconds / ours['search']:.0f}",
                    "target": f">= {TARGETS[tool]}",
                    "its result": theirs["result"],
                    "edits": theirs["edits"],
                }
            )
    measure.report(rows, measure.environment(**versions(options)), options.output)


def versions(options: Any) -> Dict[str, str]:
    result = {}
    for package, python in (("onnxconverter-common", options.python), ("nvidia-modelopt", options.modelopt)):
        if python:
            code = f"from importlib import metadata; print(metadata.version('{package}'))"
            found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
            result[package] = found.stdout.strip() or "unknown"
    return result


if __name__ == "__main__":
    main()
