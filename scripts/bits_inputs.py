"""The networks that scripts/record_bits.py computes, with their inputs: those that the tests have and make.

All builds of a comparison are given the same ones, from the tests of this working tree.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import pathlib
import pickle
import subprocess
import sys
from typing import Any, Iterator, NamedTuple

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
SAMPLES = 5
GRAPHS, QUICK_GRAPHS = 300, 40
MODELS = ("needs_constraints", "minilm", "ocr_cls")  #: Of tests/models; the first of them is small.

TRUTH, SMALL, FUZZ, MODEL = "truth", "small", "fuzz", "model"


class Network(NamedTuple):
    """A model and samples of its inputs."""

    kind: str  #: TRUTH, SMALL, FUZZ or MODEL: decides in how many ways it is run.
    name: str
    model: bytes
    feeds: list[dict[str, Any]]

    @property
    def title(self) -> str:
        """How records name it."""
        return f"{self.kind}/{self.name}"


def networks(folder: pathlib.Path, quick: bool) -> list[Network]:
    """All of them; models are made in `folder`, once."""
    for each in (TESTS, TESTS / "cli", TESTS / "python"):
        sys.path.insert(0, str(each))
    count = QUICK_GRAPHS if quick else GRAPHS
    return [*_truth(), *_oracle(), *_searched(folder), *_graphs(count), *_models(folder, quick)]


def _truth() -> Iterator[Network]:
    """Other samples than the recorded one are shares of it."""
    for path in sorted((TESTS / "truth").glob("*.onnx")):
        with np.load(path.with_suffix(".npz")) as data:
            x = data["x"]
        shares = [x * np.float32(1 - i / 16) for i in range(SAMPLES)]
        yield Network(TRUTH, path.stem, path.read_bytes(), [{"x": share} for share in shares])


def _oracle() -> Iterator[Network]:
    from oracle.networks import NETWORKS

    for name, network in NETWORKS.items():
        yield Network(SMALL, name, network.model, [network.feed])


def _searched(folder: pathlib.Path) -> Iterator[Network]:
    """Those that tests search in."""
    import small_models

    path = folder / "searched.onnx"
    for maker in (small_models.uneven, small_models.beyond_fp16, small_models.masked_attention):
        samples = maker(path)
        yield Network(SMALL, maker.__name__, path.read_bytes(), samples)


def _graphs(count: int) -> Iterator[Network]:
    from fuzz.generator import generate

    for seed in range(count):
        graph = generate(seed)
        yield Network(FUZZ, str(seed), graph.model(), graph.feeds)


def _models(folder: pathlib.Path, quick: bool) -> Iterator[Network]:
    for name in MODELS[:1] if quick else MODELS:
        path = folder / f"{name}.onnx"
        if not path.exists():
            subprocess.run([sys.executable, str(TESTS / "models" / "make_models.py"), str(folder), name], check=True)
        yield Network(MODEL, name, path.read_bytes(), _read_feeds(folder / f"{name}.search.json"))


def read_array(value: dict[str, str]) -> Any:
    """Of a file of --save-inputs or --save-outputs."""
    return np.load(io.BytesIO(base64.b64decode(value["array"])))


def _read_feeds(path: pathlib.Path) -> list[dict[str, Any]]:
    return [{name: read_array(value) for name, value in feed.items()} for feed in json.loads(path.read_text())]


def write_feeds(path: pathlib.Path, feeds: list[dict[str, Any]]) -> None:
    """For --load-inputs of the program."""

    def text(value: Any) -> dict[str, str]:
        file = io.BytesIO()
        np.save(file, value)
        return {"array": base64.b64encode(file.getvalue()).decode(), "polygraphy_class": "ndarray"}

    path.write_text(json.dumps([{name: text(value) for name, value in feed.items()} for feed in feeds]))


def main() -> None:
    """Writes them into a file for scripts/record_bits.py."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path, help="what scripts/record_bits.py reads")
    parser.add_argument(
        "--models", type=pathlib.Path, default=ROOT / "build" / "models", help="a folder for made models"
    )
    parser.add_argument("--quick", action="store_true", help="fewer, and none with weights from packages")
    options = parser.parse_args()
    options.models.mkdir(parents=True, exist_ok=True)
    made = [network._asdict() for network in networks(options.models, options.quick)]
    options.file.write_bytes(pickle.dumps(made))
    print(f"[inputs] {len(made)} networks")


def read(path: pathlib.Path) -> list[Network]:
    """What `main` wrote."""
    return [Network(**fields) for fields in pickle.loads(path.read_bytes())]


if __name__ == "__main__":
    main()
