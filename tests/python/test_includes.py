"""The folders of src/ are the pipeline: includes point one way, and protobuf and oneDNN stay in their rooms."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ORDER = ["core", "formats", "graph", "onnx", "ops", "engine", "backend", "runtime", "compare", "runners", "calibration", "precision", "convert", "api"]
# Siblings: import and operators know the network, not each other.
FORBIDDEN = {("ops", "onnx")}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z_]+)/', re.MULTILINE)
SOURCES = [p for p in (ROOT / "src").rglob("*") if p.suffix in {".h", ".cpp", ".inc"}]


def folder(path):
    return path.relative_to(ROOT / "src").parts[0]


def test_finds_the_sources():
    assert len(SOURCES) > 200
    assert {folder(p) for p in SOURCES} <= set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_includes_point_down_the_pipeline(name):
    wrong = []
    for path in SOURCES:
        if folder(path) != name:
            continue
        for included in INCLUDE.findall(path.read_text()):
            if included in ORDER and (ORDER.index(included) > ORDER.index(name) or (name, included) in FORBIDDEN):
                wrong.append(f"{path.relative_to(ROOT)} includes {included}/")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("pattern, room", [(r"#include\s+[<\"](google/protobuf|onnx-ml\.pb|onnx/onnx)", "onnx"), (r"#include\s+<oneapi/dnnl", "backend")])
def test_libraries_stay_in_their_rooms(pattern, room):
    users = {folder(p) for p in SOURCES if re.search(pattern, p.read_text())}
    assert users <= {room}, users
