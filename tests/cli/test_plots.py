"""Pictures of errors: which files there are, and that something is on them."""
import json
import re
import sys

import numpy as np
import pytest
from PIL import Image

from cli_support import encode_array

pytest.importorskip("matplotlib")


def results(tmp_path, name, outputs):
    """A results file of one runner; `outputs`: a dict per iteration."""
    iterations = [{"outputs": {key: {"values": encode_array(value), "polygraphy_class": "LazyArray"} for key, value in each.items()},
                   "runtime": 0.1, "runner_name": name, "polygraphy_class": "IterationResult"} for each in outputs]
    (tmp_path / f"{name}.json").write_text(json.dumps({"lst": [[name, iterations]], "polygraphy_class": "RunResults"}))
    return f"{name}.json"


@pytest.fixture
def pair(tmp_path):
    """Two runners whose outputs differ: images of 2x3x8x10, and a vector."""
    rng = np.random.RandomState(0)
    y, v = rng.rand(2, 3, 8, 10).astype(np.float32), rng.rand(7).astype(np.float32)
    error = (rng.rand(*y.shape) * 1e-2).astype(np.float32)
    return [results(tmp_path, "a", [{"a/y": y + error, "v": v}]), results(tmp_path, "b", [{"a/y": y, "v": v * 1.5}])]


def colors(image):
    return len(set(image.convert("RGB").getdata()))


def test_error_metrics(run, pair, tmp_path):
    outcome = run("run", "--load-outputs", *pair, "--save-error-metrics-plot", "plots")
    assert outcome.code == 1, outcome
    files = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert files == ["error_metrics_a_y.png", "error_metrics_v.png"]
    assert "Saving error metrics plot to: '" in outcome.out
    for name in files:
        with Image.open(tmp_path / "plots" / name) as image:
            assert image.format == "PNG" and image.width > 1000 and image.height > 800
            blue = np.asarray(image.convert("RGB")).astype(int)
            points = (blue[..., 2] > blue[..., 0] + 80).sum()  # matplotlib's first color
            assert points > 50, name


def test_heatmaps(run, pair, tmp_path):
    outcome = run("run", "--load-outputs", *pair, "--save-heatmaps", "maps", "--silent")
    assert outcome.code == 1, outcome
    files = sorted(path.name for path in (tmp_path / "maps").iterdir())
    assert files == [
        "Absolute Error | a_y: (0,0,0:8,0:10) to (1,2,0:8,0:10).svg",
        "Absolute Error | v: (0,0:1,0:7) to (0,0:1,0:7).svg",
        "Relative Error | a_y (Log Scale): (0,0,0:8,0:10) to (1,2,0:8,0:10).svg",
        "Relative Error | v: (0,0:1,0:7) to (0,0:1,0:7).svg",
    ] or files[3].startswith("Relative Error | v (Log Scale)")  # 1.5 rounds differently from element to element
    text = (tmp_path / "maps" / files[0]).read_text()
    assert len(re.findall("<image", text)) >= 6 and "</svg>" in text
    # The images are drawn from the errors: with more than one color each.
    import base64
    import io
    encoded = re.findall(r'xlink:href="data:image/png;base64,([^"]+)"', text)
    assert sum(colors(Image.open(io.BytesIO(base64.b64decode(each)))) > 10 for each in encoded) >= 6


def test_names_are_polygraphys(run, polygraphy, pair, tmp_path):
    words = ["run", "--load-outputs", *pair]
    theirs = polygraphy(*words, "--save-heatmaps", "theirs")
    assert run(*words, "--save-heatmaps", "mine").code == theirs.code == 1, theirs
    names = lambda folder: sorted(path.name for path in (tmp_path / folder).iterdir())
    assert names("mine") == names("theirs")


def test_nothing_is_overwritten(run, tmp_path):
    data = [{"y": np.float32([[i, 1], [2, 3]])} for i in range(3)]
    files = [results(tmp_path, "a", data), results(tmp_path, "b", data[::-1])]
    assert run("run", "--load-outputs", *files, "--save-error-metrics-plot", "p").code == 1
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == [
        "error_metrics_y (2).png", "error_metrics_y (3).png", "error_metrics_y.png"]


@pytest.mark.parametrize("array", [np.float32([np.nan, np.inf, 0, 1]), np.zeros((2, 2), np.float32), np.float32(3),
                                   np.zeros((0, 4), np.float32), np.array([True, False]), np.int64([1, 2 ** 60]),
                                   np.ones((1, 2000, 3), np.float16), np.float32([-np.inf] * 3)], ids=str)
def test_awkward_values(array, run, tmp_path):
    files = [results(tmp_path, "a", [{"y": array}]), results(tmp_path, "b", [{"y": np.zeros_like(array)}])]
    outcome = run("run", "--load-outputs", *files, "--save-heatmaps", "m", "--save-error-metrics-plot", "m")
    assert outcome.code in (0, 1) and "[!]" not in outcome.text and "Traceback" not in outcome.text, outcome
    made = list((tmp_path / "m").iterdir())
    assert len(made) == (3 if array.size else 0)


def test_many_images_make_several_figures(run, tmp_path):
    rng = np.random.RandomState(1)
    y = rng.rand(5, 2, 400, 500).astype(np.float32)
    files = [results(tmp_path, "a", [{"y": y}]), results(tmp_path, "b", [{"y": y * 2}])]
    assert run("run", "--load-outputs", *files, "--save-heatmaps", "m").code == 1
    # 2 x 3 images of 400 x 500 fit into a screen.
    assert sum(path.name.startswith("Absolute") for path in (tmp_path / "m").iterdir()) == 2


@pytest.mark.parametrize("option", ["--show-heatmaps", "--show-error-metrics-plot"])
def test_no_display(option, run, model):
    outcome = run("run", model, "--onnxrt", "--onnxrt", option, env={"DISPLAY": "", "WAYLAND_DISPLAY": "", "MPLBACKEND": ""})
    assert outcome.code == 1 and "expected a display" in outcome.text and "--save-heatmaps DIR" in outcome.text, outcome
    assert "Activating" not in outcome.out  # found out before anything runs


def test_missing_matplotlib(run, model, tmp_path):
    (tmp_path / "broken" / "matplotlib").mkdir(parents=True)
    (tmp_path / "broken" / "matplotlib" / "__init__.py").write_text("raise ImportError('none here')\n")
    outcome = run("run", model, "--onnxrt", "--onnxrt", "--save-heatmaps", "m", env={"PYTHONPATH": str(tmp_path / "broken")})
    assert outcome.code == 1 and "-m pip install matplotlib" in outcome.text and sys.executable in outcome.text, outcome


def test_folder_that_cannot_be_made(run, model, tmp_path):
    (tmp_path / "file").write_text("")
    outcome = run("run", model, "--onnxrt", "--onnxrt", "--save-heatmaps", "file/below")
    assert outcome.code == 1 and "expected a folder to write to" in outcome.text, outcome
