"""What is shipped: one version, what the module exports, the wheels of dist/ where there are some, and the Dockerfile.

Wheels are built by scripts/wheel.sh and tried in bare systems by scripts/test_wheel.sh; here they are looked at.
"""

from __future__ import annotations

import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

import ulpscope
from ulpscope import _core

from limits import HANGS

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "cli" / "02_smallest_set_of_layers"
VERSION = re.search(r"^project\(ulpscope VERSION (\S+) ", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
WHEELS = sorted((ROOT / "dist").glob("ulpscope-*manylinux*.whl"))
LARGEST = 25 * 10**6
FOREIGN = re.compile(r"protobuf|onnx|dnnl|nanobind|nlohmann|msgpack|3fmt")
wheels = pytest.mark.parametrize("wheel", WHEELS or [None], ids=lambda path: path.name if path else "none")


def needs(wheel: pathlib.Path | None) -> pathlib.Path:
    if wheel is None:
        pytest.skip("there is no wheel in dist; scripts/wheel.sh builds one")
    return wheel


def exported(file: pathlib.Path) -> list[str]:
    """Of a file for any processor; nm reads those for one."""
    done = subprocess.run(["readelf", "-W", "--dyn-syms", str(file)], capture_output=True, text=True, check=True)
    symbols = [line.split() for line in done.stdout.splitlines() if re.match(r" *\d+: ", line)]
    return [
        words[7].partition("@")[0] for words in symbols if len(words) > 7 and words[4] != "LOCAL" and words[6] != "UND"
    ]


def test_the_version_is_said_once(program, build_dir):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"] and "version" not in project["project"]
    provider = project["tool"]["scikit-build"]["metadata"]["version"]
    assert re.search(provider["regex"], (ROOT / provider["input"]).read_text())["value"] == VERSION
    assert ulpscope.__version__ == VERSION
    assert subprocess.check_output([program, "--version"], text=True).split()[1] == VERSION


@pytest.mark.parametrize("state", ["git", "distribution", "neither"])
def test_the_commit_is_that_of_the_source(state, tmp_path):
    expected = ""
    if state == "git":
        for words in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "a"], ["tag", "v1"]):
            subprocess.run(["git", *words], cwd=tmp_path, check=True)
        expected = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=tmp_path, text=True)[:12]
    if state == "distribution":
        (tmp_path / "COMMIT").write_text(expected := "0123456789ab")
    source = tmp_path / "commit.cpp"
    command = ["cmake", f"-DFOLDER={tmp_path}", f"-DOUTPUT={source}", "-P", str(ROOT / "cmake" / "commit.cmake")]
    subprocess.run(command, check=True)
    assert f'return "{expected}";' in source.read_text()
    before = source.stat().st_mtime_ns
    subprocess.run(command, check=True)
    assert source.stat().st_mtime_ns == before, "nothing changed, and it would be compiled again"


def test_the_module_exports_nothing_but_itself():
    assert exported(pathlib.Path(_core.__file__)) == ["PyInit__core"]


def test_a_package_for_another_processor_says_so(tmp_path):
    package = pathlib.Path(ulpscope.__file__).parent
    shutil.copytree(package, tmp_path / "ulpscope", ignore=shutil.ignore_patterns("_core*", "bin", "__pycache__"))
    here = platform.machine()
    other, number = ("aarch64", 183) if here == "x86_64" else ("x86_64", 62)
    module = f"_core.cpython-{sys.version_info[0]}{sys.version_info[1]}-{other}-linux-gnu.so"
    (tmp_path / "ulpscope" / "bin").mkdir()
    for name in ("bin/ulpscope", module):
        file = tmp_path / "ulpscope" / name
        file.write_bytes(b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + number.to_bytes(2, "little"))
        file.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for words in (["-c", "import ulpscope.engine"], ["-m", "ulpscope", "--version"]):
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment)
        expected = f"expected a file for {here}, got one for {other}; try the wheel whose name ends in {here}.whl"
        assert done.returncode == 1 and expected in done.stderr


def test_the_program_of_a_package_that_has_none_says_so():
    done = subprocess.run([sys.executable, "-m", "ulpscope", "--version"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(pathlib.Path(ulpscope.__file__).parents[1])})  # fmt: skip
    assert done.returncode == 1 and "expected the program at" in done.stderr


@wheels
def test_wheels_hold_all_that_they_need(wheel, tmp_path):
    assert needs(wheel).stat().st_size <= LARGEST
    glibc = [int(minor) for minor in re.findall(r"manylinux_2_(\d+)_(?:x86_64|aarch64)", wheel.name)]
    assert glibc and min(glibc) <= 36, "Debian 12 and Ubuntu 24.04 must take it"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path)
        program = archive.getinfo("ulpscope/bin/ulpscope")
    assert program.external_attr >> 16 & 0o111
    for name in ("ulpscope/worker/__main__.py", "ulpscope/worker/report/assets/compare.js", "ulpscope/py.typed"):
        assert name in names
    assert "ulpscope=ulpscope.__main__:main" in (next(tmp_path.glob("*.dist-info/entry_points.txt")).read_text().replace(" ", ""))
    (module,) = tmp_path.glob("ulpscope/_core*.so")
    assert exported(module) == ["PyInit__core"]
    assert not [name for name in exported(tmp_path / "ulpscope/bin/ulpscope") if FOREIGN.search(name)]
    libraries = list(tmp_path.glob("ulpscope.libs/*"))
    for library in libraries:
        assert re.search(r"-[0-9a-f]{8}\.so", library.name), "another library of this name may be in the process"
        assert not [name for name in exported(library) if "google8protobuf" in name]
    # Every library that is asked for is in the wheel, or everywhere (PEP 600).
    everywhere = {f"lib{name}" for name in "c.so.6 m.so.6 dl.so.2 pthread.so.0 gcc_s.so.1 stdc++.so.6 z.so.1".split()}
    everywhere |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    for file in (module, tmp_path / "ulpscope/bin/ulpscope", *libraries):
        dynamic = subprocess.check_output(["readelf", "-d", str(file)], text=True)
        assert set(re.findall(r"NEEDED.*\[(.*)\]", dynamic)) <= everywhere | {each.name for each in libraries}


@wheels
def test_wheels_work(wheel, tmp_path):
    """Only the wheel for this Python; its dependencies are those of this environment."""
    if f"-cp{sys.version_info.major}{sys.version_info.minor}-" not in needs(wheel).name:
        pytest.skip("for another Python")
    if not wheel.name.endswith(f"_{platform.machine()}.whl"):
        pytest.skip("for another processor")
    model = tmp_path / "model"
    shutil.copytree(EXAMPLE, model)
    subprocess.run([sys.executable, "make_model.py"], cwd=model, check=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "site/ulpscope/bin/ulpscope").chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    script = ROOT / "tests" / "python" / "wheel_smoke.py"
    done = subprocess.run([sys.executable, str(script), str(model), "onnxruntime", "onnx"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"[smoke] ulpscope {VERSION}" in done.stdout


def test_the_lines_of_the_dockerfile():
    """Docker itself is not needed: bash reads every RUN line, and what it names is there."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    assert {word for word, _ in lines} <= {"ARG", "FROM", "WORKDIR", "RUN", "COPY", "ENV", "ENTRYPOINT", "CMD"}
    stages = [rest for word, rest in lines if word == "FROM"]
    assert stages == ["${BASE} AS build", "${BASE}"] and any(word == "ARG" and rest.startswith("BASE=") for word, rest in lines)
    for rest in (re.sub(r"^(--\S+ )+", "", rest) for word, rest in lines if word == "RUN"):
        subprocess.run(["bash", "-n", "-c", rest], check=True)
        for script in re.findall(r"scripts/\S+\.sh", rest):
            assert os.access(ROOT / script, os.X_OK)


def pretend_wheel(program: pathlib.Path, place: pathlib.Path) -> None:
    """What is built here as a wheel, without the libraries that it takes from this system."""
    import base64
    import hashlib

    info = f"ulpscope-{VERSION}.dist-info"
    package = pathlib.Path(ulpscope.__file__).parent
    # Folders of a build are links.
    paths = [pathlib.Path(folder) / name for folder, _, names in os.walk(package, followlinks=True) for name in names]
    files = {f"ulpscope/{path.relative_to(package)}": path.read_bytes() for path in paths if path.parent.name != "__pycache__"}
    files |= {
        "ulpscope/bin/ulpscope": program.read_bytes(),
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: ulpscope\nVersion: {VERSION}\nProvides-Extra: onnx\n"
            "Provides-Extra: scripts\n"
        ).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": b"[console_scripts]\nulpscope = ulpscope.__main__:main\n",
    }
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    with zipfile.ZipFile(place / f"ulpscope-{VERSION}-py3-none-any.whl", "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100755 if name.startswith("ulpscope/bin/") else 0o100644) << 16
            archive.writestr(entry, content)
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")


def test_the_last_stage_of_the_dockerfile_runs(program, tmp_path):
    """Its instructions in a shell, under another root; the packages that pip would fetch are left out."""
    for folder in ("dist", "opt", "work"):
        (tmp_path / folder).mkdir()
    pretend_wheel(pathlib.Path(program), tmp_path / "dist")
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    stage = text[text.rindex("\nFROM ") :]
    moved = re.sub(r"(?<![\w/.])/(dist|opt|work)\b", lambda match: str(tmp_path / match[1]), stage)
    lines = [line.split(maxsplit=1) for line in moved.splitlines() if line and not line.startswith("#")]
    path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"HOME": str(tmp_path), "PATH": path, "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    directory, words = str(tmp_path), {}
    for instruction, rest in lines[1:]:
        if instruction == "RUN":
            command = re.sub(r"^(--\S+ )+", "", rest)
            subprocess.run(
                ["sh", "-e", "-c", command],
                cwd=directory,
                env=environment,
                check=True,
                capture_output=True,
                timeout=HANGS,
            )
        elif instruction == "ENV":
            name, value = rest.split("=", 1)
            environment[name] = value.replace("$PATH", environment["PATH"])
        elif instruction == "WORKDIR":
            directory = rest
        else:
            assert instruction in ("ENTRYPOINT", "CMD")
            words[instruction] = json.loads(rest)
    run = {"cwd": directory, "env": environment, "capture_output": True, "text": True}
    assert shutil.which("ulpscope", path=environment["PATH"]).startswith(str(tmp_path))
    done = subprocess.run([*words["ENTRYPOINT"], *words["CMD"]], executable=shutil.which("ulpscope", path=environment["PATH"]), **run)
    assert done.returncode == 0 and "precision" in done.stdout, done.stderr
    done = subprocess.run([*words["ENTRYPOINT"], "--version"], executable=shutil.which("ulpscope", path=environment["PATH"]), **run)
    assert done.stdout.split()[1] == VERSION
