"""Peak memory of whole commands on models that are nearly all weights, as a multiple of the model's files.

The models are decoders with random weights (tests/models/language_model.py), in a folder of their own, which goes again.
The peak of ulpscope is that of the whole process (ru_maxrss), that of ONNX Runtime what loading the model and running it
twice adds to a process of Python (peak.py). Python checks of `convert` are processes of their own and left out.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional, Tuple

import measure
import models
import numpy as np

sys.path.insert(0, str(models.ROOT / "tests" / "models"))
import language_model
import peak_of

FILES = {
    "float32, external data": {"kind": "fp32"},
    "float32, in one file": {"kind": "fp32", "external": False},
    "float32, tied, in one file": {"kind": "fp32", "external": False, "tied": True},
    "float16, external data": {"kind": "fp16"},
    "bfloat16, in one file": {"kind": "bf16", "external": False},
}


def size_of(path: pathlib.Path) -> int:
    """Bytes of the model's files."""
    return sum(p.stat().st_size for p in path.parent.glob(f"{path.name}*"))


def run(words: List[str], folder: pathlib.Path) -> Tuple[int, float, float]:
    """Peak bytes, seconds and processor seconds of a process; ends when it fails."""
    start = time.monotonic()
    peak, cpu, status, text = peak_of.measure(words, str(folder))
    if status != 0:
        raise SystemExit(f"{' '.join(words)}: {text}")
    return peak, time.monotonic() - start, cpu


def onnxruntime(path: pathlib.Path, folder: pathlib.Path, length: int) -> Optional[float]:
    """Peak bytes; None where it does not run the model."""
    inputs = folder / "inputs.npz"
    np.savez(inputs, ids=np.arange(length, dtype=np.int64)[None])
    script = pathlib.Path(__file__).parent / "peak.py"
    words = [sys.executable, str(script), "onnxruntime", str(path), str(inputs), "2"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    return float(done.stdout) * 2**20 if done.returncode == 0 else None


def rows_of(
    name: str, options: Dict[str, Any], shape: List[int], program: pathlib.Path, folder: pathlib.Path, times: int
) -> List[Dict[str, Any]]:
    """The commands on one model, each so many times: the largest peak, the least times."""
    path = folder / "model.onnx"
    language_model.make(path, *shape, **options)
    size = size_of(path)
    peer = onnxruntime(path, folder, 16)
    commands = {"run --trt": ["run", str(path), "--trt"]}
    if options["kind"] == "fp32":
        commands["run --trt --fp16 --assume-lowest"] = ["run", str(path), "--trt", "--fp16", "--assume-lowest"]
        for more in ([], ["--no-verify"]):
            words = ["convert", str(path), "--fp16", "-o", "typed.onnx", "--no-python-checks", *more]
            commands[" ".join(["convert --fp16", *more])] = words
    else:
        commands["run --trt --strongly-typed"] = ["run", str(path), "--trt", "--strongly-typed"]
    rows = []
    for command, words in commands.items():
        runs = [run([str(program), *words], folder) for _ in range(times)]
        peak, seconds, cpu = max(r[0] for r in runs), min(r[1] for r in runs), min(r[2] for r in runs)
        rows.append({
            "model": f"{name}, {size / 1e6:.0f} MB",
            "command": command,
            "peak / file": round(peak / size, 2),
            "onnxruntime peak / file": "-" if peer is None or not command.startswith("run --trt") else round(peer / size, 2),
            "s": round(seconds, 2),
            "CPU s": round(cpu, 2),
            "MB/s": round(size / 1e6 / seconds),
        })
    for each in folder.iterdir():
        each.unlink()
    return rows


def main() -> None:
    parser = measure.parser(__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=models.ROOT / "build" / "release" / "bin" / "ulpscope")
    parser.add_argument("--shape", nargs=3, type=int, default=[1024, 6, 16000], metavar=("HIDDEN", "LAYERS", "VOCABULARY"))
    parser.add_argument("--folder", type=pathlib.Path, help="where the models are made (default: a temporary folder)")
    parser.add_argument("--models", nargs="+", choices=FILES, default=list(FILES))
    options = parser.parse_args()
    rows: List[Dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        shape, times = ([64, 1, 200], 1) if options.quick else (options.shape, 5)
        for name in options.models[:1] if options.quick else options.models:
            rows += rows_of(name, FILES[name], shape, options.program, pathlib.Path(folder), times)
    measure.report(rows, measure.environment(), options.output)


if __name__ == "__main__":
    main()
