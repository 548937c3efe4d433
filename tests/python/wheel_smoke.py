"""What an installed wheel must do, in a Python that has nothing else: FOLDER holds model.onnx and data.py of example 02.

    python3 wheel_smoke.py FOLDER [PACKAGE...]     PACKAGE: imported first, into the same process (torch, onnxruntime, ...)

Prints what it did, and raises where something is wrong.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pathlib
import subprocess
import sys


NETWORK = """
from polygraphy import func
from polygraphy.backend.trt import NetworkFromOnnxPath

@func.extend(NetworkFromOnnxPath("model.onnx"))
def load_network(builder, network, parser):
    assert network.num_layers > 0
"""


def mapped(part: str) -> list[str]:
    """Files in this process whose path has `part`."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split(maxsplit=5)[5] for line in lines if part in line})


def onnxruntime_refuses_norms() -> str:
    """The name of an installed ONNX Runtime whose fusion of simplified layer norms in float16 crashes, or ''.

    1.23, the last one for Python 3.10, crashes ("Attempting to get index by a name which does not exist"); 1.31 does
    not.
    """
    if not importlib.util.find_spec("onnxruntime"):
        return ""
    version = importlib.metadata.version("onnxruntime")
    return f"ONNX Runtime {version}" if tuple(map(int, version.split(".")[:2])) <= (1, 23) else ""


def main(folder: str, packages: list[str]) -> None:
    os.chdir(folder)
    sys.path.insert(0, ".")
    modules = [importlib.import_module(name) for name in packages]
    import ulpscope

    samples = list(importlib.import_module("data").load_data())
    engine = ulpscope.Engine("model.onnx")
    before = engine.run(samples[0])["scores"]
    answer = ulpscope.search("model.onnx", samples, precisions=["fp16"], objective="smallest", atol=0.3, rtol=0)
    assert answer.verdict == "found" and len(answer.layers) == 11, answer.verdict
    assert ulpscope.verify("model.onnx", answer, samples).passed

    for name, module in zip(packages, modules):
        if name == "torch":
            x = module.arange(4096.0).reshape(64, 64)
            assert module.equal((x @ x.T)[0, :2], module.tensor([85344.0, 214368.0])), "torch computes something else"
            assert module.get_num_threads() >= 1
        if name == "onnxruntime":
            session = module.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
            difference = abs(session.run(None, samples[0])[0] - before).max()
            assert difference < 0.05, f"onnxruntime differs by {difference}"
        if name == "onnx":
            module.checker.check_model(module.load("model.onnx"), full_check=True)
    assert (engine.run(samples[0])["scores"] == before).all()

    program = str(pathlib.Path(sys.executable).with_name("ulpscope"))
    if not os.path.exists(program):
        program = f"{sys.executable} -m ulpscope"

    def run(*words: str) -> str:
        done = subprocess.run([*program.split(), *words], capture_output=True, text=True)
        assert done.returncode == 0, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    assert run("--version").startswith(f"ulpscope {ulpscope.__version__}")
    search = ("--fp16", "--objective", "smallest", "--data-loader-script", "data.py", "--atol", "0.3", "--rtol", "0")
    assert "11 of 96" in run("precision", "search", "model.onnx", *search, "--save-answer", "a.json")
    if importlib.util.find_spec("polygraphy"):
        pathlib.Path("net.py").write_text(NETWORK)
        run("run", "net.py", "--trt", "--data-loader-script", "data.py")
    run("verify", "model.onnx", "--answer", "a.json", "--data-loader-script", "data.py:load_unseen")
    convert = ("convert", "model.onnx", "--answer", "a.json", "-o", "typed.onnx", "--data-loader-script", "data.py")
    if refused := onnxruntime_refuses_norms():
        print(f"[smoke] {refused}: typed models are not given to it")
        convert += ("--no-python-checks",)
    run(*convert)
    run("report", "a.json", "-o", "report.html")
    assert os.path.getsize("report.html") > 10000
    print(f"[smoke] {run('--version').strip()}, Python {sys.version.split()[0]}, with {packages or 'nothing else'}")
    for path in mapped("libgomp") + mapped("protobuf") if packages else []:
        print(f"[smoke]   {path}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
