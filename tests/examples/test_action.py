"""action.yml and examples/ci, their steps run in a shell as GitHub runs them."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

yaml = pytest.importorskip("yaml")

ROOT = pathlib.Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
SEARCH = ["--fp16", "--objective", "smallest", "--data-loader-script", "data.py", "--atol", "0.3", "--rtol", "0"]

# Writes two samples of data.py into a file each.
SAMPLES = """
import numpy, data
for name, sample in zip(["first half.npz", "second half.npz"], data.load_unseen()):
    numpy.savez(name, **sample)
"""


@pytest.fixture
def folder(tmp_path, environment):
    """Example 02 with its answer."""
    result = tmp_path / "repository"
    shutil.copytree(ROOT / "examples/cli/02_smallest_set_of_layers", result)
    for command in ([sys.executable, "make_model.py"], ["ulpscope", "precision", "search", "model.onnx", *SEARCH]):
        subprocess.run(command, cwd=result, env=environment, check=True, capture_output=True)
    return result


class Job:
    """A job on a runner that has done the step of installation, or does it with `package`."""

    def __init__(self, folder: pathlib.Path, environment: dict[str, str]):
        self.folder, self.runner, self.outputs, self.log = folder, folder.parent, {}, ""
        self.environment = {**environment, "RUNNER_TEMP": str(self.runner), "GITHUB_STEP_SUMMARY": str(self.runner / "summary.md"),
                            "GITHUB_OUTPUT": str(self.runner / "output"), "GITHUB_PATH": str(self.runner / "path")}  # fmt: skip

    def run(self, install: bool = False, steps: int | None = None, **inputs: str) -> int:
        """The exit status of the first step that fails, or 0; `steps` counts those of the action, default: all."""
        given = {name: str(entry.get("default", "")) for name, entry in ACTION["inputs"].items()}
        assert set(inputs) <= set(given)
        given.update(inputs)
        values = {f"inputs.{name}": value for name, value in given.items()} | {"github.action_path": str(ROOT)}
        for step in ACTION["runs"]["steps"][0 if install else 1 : steps]:
            assert step["shell"] == "bash"
            own = {name: re.sub(r"\$\{\{ (.+?) \}\}", lambda match: values[match[1]], text) for name, text in step["env"].items()}
            assert "${{" not in step["run"], "an input in the text of a script could be a command"
            (self.runner / "output").write_text("")
            done = subprocess.run(["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]], cwd=self.folder,
                                  env={**self.environment, **own}, capture_output=True, text=True)  # fmt: skip
            self.log += done.stdout + done.stderr
            for name, value in (line.split("=", 1) for line in (self.runner / "output").read_text().splitlines()):
                values[f"steps.{step.get('id')}.outputs.{name}"] = value
            if (self.runner / "path").exists():
                self.environment["PATH"] = (self.runner / "path").read_text().strip() + os.pathsep + self.environment["PATH"]
            if done.returncode:
                break
        self.outputs = {name: values.get(entry["value"][4:-3]) for name, entry in ACTION["outputs"].items()}
        return done.returncode

    def summary(self) -> str:
        return (self.runner / "summary.md").read_text()


@pytest.fixture
def job(folder, environment):
    return Job(folder, environment)


def test_an_answer_that_holds(job):
    assert job.run(model="model.onnx", answer="model.fp16.answer.json", data="data.py:load_unseen") == 0, job.log
    text = job.summary()
    assert "**The answer holds** on ulpscope: 200 sample(s)" in text and "11 of 96 layers kept" in text
    assert "| `scores` |" in text and "| `/head/Sub_1` | Sub | fp32 | cancellation:" in text and "### Error against time" in text
    assert job.outputs["passed"] == "true" and 0 < float(job.outputs["used"]) < 1
    assert json.loads(pathlib.Path(job.outputs["json"]).read_text())["samples"] == 200


def test_one_that_does_not(job):
    inputs = {"model": "model.onnx", "answer": "model.fp16.answer.json", "data": "data.py", "threshold": "1e9 scores:1e-9"}
    assert job.run(**inputs) == 1, job.log
    assert "**The answer does not hold**" in job.summary() and "times the tolerance." in job.summary() and job.outputs["passed"] == "false" and "::error::" in job.log


def test_nothing_to_judge(job):
    assert job.run(model="missing.onnx", answer="model.fp16.answer.json") == 4, job.log
    assert "**Not judged** (exit status 4)" in job.summary() and job.outputs["passed"] == "false"


def test_names_are_no_commands(job):
    assert job.run(model="$(touch taken); touch taken #", answer="model.fp16.answer.json") != 0
    assert not (job.folder / "taken").exists()


def test_a_worse_answer_than_the_baseline(job):
    answer = json.loads((job.folder / "model.fp16.answer.json").read_text())
    inputs = {"model": "model.onnx", "answer": "model.fp16.answer.json", "data": "data.py", "baseline": "old.json"}
    (job.folder / "old.json").write_text(json.dumps(answer))
    assert job.run(**inputs) == 0, job.log
    fewer = {**answer, "layers": answer["layers"][1:]}
    faster = {**answer, "time_us": {**answer["time_us"], "answer": 0.9 * answer["time_us"]["answer"]}}
    for old, words in ((fewer, "11 layers are kept, there were 10"), (faster, "us on l4, it was")):
        (job.folder / "old.json").write_text(json.dumps(old))
        assert job.run(**inputs) == 1, job.log
        assert words in job.summary() and job.outputs["passed"] == "false"


def test_the_curve(job):
    answer = json.loads((job.folder / "model.fp16.answer.json").read_text())
    answer["curve"] = [[80, "inf", 0], [85, 1.9, 3], [100, 0.2, 11], [120, 0, 96]]
    (job.folder / "model.fp16.answer.json").write_text(json.dumps(answer))
    assert job.run(model="model.onnx", answer="model.fp16.answer.json", data="data.py") == 0, job.log
    text = job.summary()
    assert "[85, 100, 120]" in text and "line [1.9, 0.2, 0]" in text and "| 80 | not finite | 0 |" in text


@pytest.mark.skipif(not list((ROOT / "dist").glob(f"ulpscope-*-cp{sys.version_info.major}{sys.version_info.minor}-*.whl")), reason="no wheel in dist")
def test_the_step_of_installation(job):
    """pip is told where the packages are, and installs the wheel alone: tests need no network."""
    wheel = next((ROOT / "dist").glob(f"ulpscope-*-cp{sys.version_info.major}{sys.version_info.minor}-*.whl"))
    job.environment |= {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1"}
    job.environment["PYTHONPATH"] = str(pathlib.Path(yaml.__file__).parents[1])
    inputs = {"model": "model.onnx", "answer": "model.fp16.answer.json", "data": "data.py", "package": str(wheel)}
    assert job.run(install=True, **inputs) == 0, job.log
    assert shutil.which("ulpscope", path=job.environment["PATH"]) == str(job.runner / "ulpscope/bin/ulpscope")


def wheel_of(version: str, folder: pathlib.Path) -> pathlib.Path:
    """A wheel whose program says its version, and nothing else."""
    info = f"ulpscope-{version}.dist-info"
    files = {
        "ulpscope/__main__.py": f"def main():\n    print('ulpscope {version}')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: ulpscope\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nulpscope = ulpscope.__main__:main\n",
        f"{info}/RECORD": "",
    }
    folder.mkdir(exist_ok=True)
    path = folder / f"ulpscope-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    "package, version",
    [
        ("0.1.0", "0.1.0"),
        ("<0.3", "0.2.1"),
        ("our wheels/ulpscope-0.4.0-py3-none-any.whl", "0.4.0"),
        ("ulpscope-0.5.0-py3-none-any.whl", "0.5.0"),
    ],
)
def test_the_package_is_a_version_or_the_path_of_a_wheel(package, version, tmp_path, environment):
    repository = tmp_path / "a repository"
    repository.mkdir()
    for each in ("0.1.0", "0.2.1", "0.3.0"):
        wheel_of(each, tmp_path / "index")
    wheel_of("0.4.0", repository / "our wheels")
    wheel_of("0.5.0", repository)
    job = Job(repository, {**environment, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "index")})
    job.environment.pop("PYTHONPATH", None)
    job.runner = tmp_path / "a runner"
    job.runner.mkdir()
    job.environment |= {"RUNNER_TEMP": str(job.runner), "GITHUB_PATH": str(job.runner / "path")}
    assert job.run(install=True, steps=1, package=package) == 0, job.log
    program = shutil.which("ulpscope", path=job.environment["PATH"])
    assert subprocess.check_output([program], env=job.environment, text=True) == f"ulpscope {version}\n"


def test_names_with_blanks(folder, job):
    subprocess.run([sys.executable, "-c", SAMPLES], cwd=folder, check=True)
    for old, new in (("model.onnx", "my model.onnx"), ("data.py", "my data.py")):
        (folder / old).rename(folder / new)
    for name in ("my model.fp16.answer.json", "old answer.json"):
        shutil.copy(folder / "model.fp16.answer.json", folder / name)
    inputs = {"model": "my model.onnx", "answer": "my model.fp16.answer.json", "baseline": "old answer.json"}
    assert job.run(**inputs, data="my data.py:load_unseen") == 0, job.log
    assert job.run(**inputs, inputs="first half.npz\n\nsecond half.npz\n") == 0, job.log
    assert json.loads(pathlib.Path(job.outputs["json"]).read_text())["samples"] == 2
    assert job.run(**inputs, inputs="second half.npz") == 0, job.log
    assert json.loads(pathlib.Path(job.outputs["json"]).read_text())["samples"] == 1


def test_the_workflow_of_the_example_names_what_the_action_has(job):
    workflow = yaml.safe_load((ROOT / "examples/ci/precision.yml").read_text())
    (step,) = [step for step in workflow["jobs"]["verify"]["steps"] if "ulpscope" in step["uses"]]
    assert set(step["with"]) <= set(ACTION["inputs"])
    assert {name for name, entry in ACTION["inputs"].items() if entry.get("required")} <= set(step["with"])
    assert job.run(**step["with"]) == 0, job.log


def test_the_hook_of_the_example(folder, environment):
    hook = [str(ROOT / "examples/ci/pre-push")]
    done = subprocess.run(hook, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    # Dots belong to the name of a model where there is one of that name.
    answer = (folder / "model.fp16.answer.json").read_text()
    (folder / "model.onnx").rename(folder / "net.v1.2 small.onnx")
    (folder / "model.fp16.answer.json").unlink()
    names = ("net.v1.2 small.answer.json", "net.v1.2 small.fp16.answer.json", "net.v1.2 small.fp16.try.2.answer.json")
    for name in names:
        (folder / name).write_text(answer)
    done = subprocess.run(hook, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    # An answer is that of the longest name, and of no other model.
    (folder / "net.onnx").write_bytes(b"no model")
    (folder / "net.v1.2 small.fp16.onnx").write_bytes(b"no model")
    done = subprocess.run(hook, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"{names[1]} could not be judged for net.v1.2 small.fp16.onnx" in done.stderr
    assert "does not hold" not in done.stderr and "for net.onnx" not in done.stderr
    (folder / "other.fp16.answer.json").write_text(answer)
    done = subprocess.run(hook, cwd=folder, env=environment, capture_output=True, text=True)
    assert "expected the model of other.fp16.answer.json beside it, such as other.onnx" in done.stderr
