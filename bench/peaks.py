"""Peak memory of `run`, `precision search`, `convert` and `verify` on networks of all kinds, beside ONNX Runtime's run.

The networks are those of kinds.py. The peak of ulpscope is that of the whole process (ru_maxrss), that of ONNX Runtime
what loading the model and running it twice adds to a process of Python (peak.py). `search over run` is the search less
300 MB, over the run: where it is above 4, the search has to say what takes the memory (the last column has the line).
"""

from __future__ import annotations

import pathlib
import re
import sys
import tempfile
from typing import Any, Dict, List, Mapping, Optional

import kinds
import measure
import memory
import models
import numpy as np

sys.path.insert(0, str(models.ROOT / "tests" / "models"))
import peak_of

SAMPLES, FRESH, ALLOWED, MB = 8, 4, 300.0, 1e6


def save(path: pathlib.Path, values: Mapping[str, np.ndarray]) -> str:
    np.savez(path, **values)
    return str(path)


def onnxruntime(model: pathlib.Path, folder: pathlib.Path, values: Mapping[str, np.ndarray]) -> Optional[float]:
    """Peak in MB; None where it does not run the model."""
    one = save(folder / "one.npz", {name: value[0] for name, value in values.items()})
    script = pathlib.Path(__file__).parent / "peak.py"
    _, _, status, text = peak_of.measure(
        [sys.executable, str(script), "onnxruntime", str(model), one, "2"], str(folder)
    )
    return float(text.split()[-1]) * 2**20 / MB if status == 0 else None


def row_of(
    kind: kinds.Kind, program: pathlib.Path, folder: pathlib.Path, path: pathlib.Path, words: List[str]
) -> Dict[str, Any]:
    """The commands on one network, each once."""
    model, values = kinds.make(kind, path if kind.make is None else folder, SAMPLES + FRESH)
    peer = onnxruntime(model, folder, values)
    given = save(folder / "given.npz", {name: value[:SAMPLES] for name, value in values.items()})
    fresh = save(folder / "fresh.npz", {name: value[SAMPLES:] for name, value in values.items()})
    commands = {
        "run": ["run", str(model), "--trt", "--load-inputs", given],
        "search": [
            "precision",
            "search",
            str(model),
            "--fp16",
            "--load-inputs",
            given,
            "--metric",
            "rel-l2",
            "--threshold",
            "1e-3",
            "--max-trials",
            "12",
            "--save-answer",
            "answer.json",
            *words,
        ],
        "convert": ["convert", str(model), "--answer", "answer.json", "-o", "typed.onnx", "--no-python-checks"],
        "verify": ["verify", str(model), "--answer", "answer.json", "--load-inputs", fresh],
    }
    row: Dict[str, Any] = {"network": kind.name, "file": round(memory.size_of(model) / MB, 1)}
    row["onnxruntime"] = round(peer) if peer is not None else "-"
    said = ""
    for name, command in commands.items():
        used, _, status, text = peak_of.measure([str(program), *command], str(folder))
        # A search that the limit of trials ended, and an answer that fresh samples fail, are results.
        if status != 0 and (name in ("run", "convert") or "[!]" in text):
            raise SystemExit(f"{kind.name}: {' '.join(command)}: {text}")
        row[name] = round(used / MB)
        if name == "search":
            said = " ".join(re.findall(r"^.*\[memory\].*$", text, re.MULTILINE))
    row["run over onnxruntime"] = round(row["run"] / peer, 2) if peer else "-"
    row["search over run"] = round(max(0.0, row["search"] - ALLOWED) / row["run"], 2)
    row["said"] = said or "-"
    return row


def main() -> None:
    parser = measure.parser(__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=models.ROOT / "build" / "release" / "bin" / "ulpscope")
    parser.add_argument("--folder", type=pathlib.Path, help="where the networks are made (default: a temporary folder)")
    parser.add_argument("--networks", nargs="+", choices=[kind.name for kind in kinds.KINDS], help="only these")
    parser.add_argument("--memory-limit", help="of the searches")
    options = parser.parse_args()
    chosen = [kind for kind in kinds.KINDS if options.networks is None or kind.name in options.networks]
    words = ["--memory-limit", options.memory_limit] if options.memory_limit else []
    rows = []
    for kind in chosen[:2] if options.quick else chosen:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            rows.append(row_of(kind, options.program, pathlib.Path(folder), options.path, words))
            print(kind.name, rows[-1], file=sys.stderr, flush=True)
    measure.report(rows, measure.environment(), options.output)
    silent = [row["network"] for row in rows if row["search over run"] > 4 and row["said"] == "-"]
    if silent:
        raise SystemExit(f"above 4x of a run and {ALLOWED:.0f} MB without a word: {', '.join(silent)}")


if __name__ == "__main__":
    main()
