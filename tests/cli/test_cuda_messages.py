"""`--backend cuda` where it cannot run: one clear sentence that says what to do, and the status of errors. A driver
that is none, compiled here, shows what it says of old and absent GPUs."""
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DRIVER = (ROOT / "src" / "backend" / "cuda" / "driver.h").read_text()
FUNCTIONS = re.findall(r'library\.function\("(\w+)"', DRIVER)

# What the driver's functions do; those that are not here do nothing, successfully.
BODIES = {
    "cuInit": "int cuInit(unsigned flags) { (void)flags; return INIT; }",
    "cuDeviceGetCount": "int cuDeviceGetCount(int* count) { *count = COUNT; return 0; }",
    "cuDeviceGetName": "int cuDeviceGetName(char* name, int size, int device)"
                       " { (void)device; if (size > 4) strcpy(name, \"Fake\"); return 0; }",
    "cuDeviceGetAttribute": "int cuDeviceGetAttribute(int* value, int attribute, int device)"
                            " { (void)device; *value = attribute == 75 ? MAJOR : 0; return 0; }",
    "cuGetErrorString": "int cuGetErrorString(int code, const char** text)"
                        " { (void)code; *text = \"something is broken\"; return 0; }",
    "cuGetErrorName": "int cuGetErrorName(int code, const char** text)"
                      " { (void)code; *text = \"CUDA_ERROR_FAKE\"; return 0; }",
}


def compiled(folder, name, source, *flags):
    if shutil.which("cc") is None:
        pytest.skip("no compiler cc")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "source.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / name, *flags, folder / "source.c"], check=True)
    return folder


@pytest.fixture
def driver(tmp_path):
    """Makes a driver; the environment that finds it."""

    def make(init=0, count=1, major=9, without=()):
        bodies = [BODIES.get(name, f"int {name}(void) {{ return 0; }}") for name in FUNCTIONS if name not in without]
        folder = compiled(tmp_path / "driver", "libcuda.so.1", "#include <string.h>\n" + "\n".join(bodies),
                          f"-DINIT={init}", f"-DCOUNT={count}", f"-DMAJOR={major}")
        return {"LD_LIBRARY_PATH": str(folder)}

    return make


def says(outcome, *texts):
    """Status 1, and one message of one line with these texts."""
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    assert outcome.code == 1, outcome
    assert len(lines) == 1 and lines[0].startswith("[!] ["), outcome
    assert "backend 'cuda': " in lines[0], outcome
    for text in texts:
        assert text in lines[0], outcome
    assert "defect" not in outcome.text, outcome


COMMANDS = {
    "run": ["run", "MODEL", "--trt", "--fp16", "--backend", "cuda"],
    "search": ["precision", "search", "MODEL", "--fp16", "--backend", "cuda", "--atol", "0.1"],
    "rates": ["target", "measure", "-o", "t.json", "--backend", "cuda"],
    "groups": ["target", "measure", "MODEL", "-o", "t.json", "--backend", "cuda"],
    "measured": ["precision", "search", "MODEL", "--fp16", "--backend", "cuda", "--atol", "0.1", "--target", "measured"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_gpu(command, run, model):
    """No driver, or, where there is one, no GPU that it may show."""
    words = [str(model) if word == "MODEL" else word for word in COMMANDS[command]]
    outcome = run(*words, env={"CUDA_VISIBLE_DEVICES": ""})
    says(outcome, "leave out --backend cuda")
    assert "no NVIDIA driver: libcuda.so.1" in outcome.err or "the driver shows no GPU" in outcome.err, outcome


@pytest.mark.parametrize("given, texts", [
    ({"init": 100}, ["the driver shows no GPU", "CUDA_VISIBLE_DEVICES"]),
    ({"count": 0}, ["the driver shows no GPU", "nvidia-smi"]),
    ({"major": 7}, ["Fake is sm_70", "expected sm_80"]),
    ({"init": 999}, ["something is broken (CUDA_ERROR_FAKE)", "leave out --backend cuda"]),
    ({"without": ["cuGraphLaunch"]}, ["libcuda.so.1 has no function cuGraphLaunch", "newer driver"]),
])  # fmt: skip
def test_what_is_wrong_with_a_driver(given, texts, run, model, driver):
    says(run(*[str(model) if word == "MODEL" else word for word in COMMANDS["run"]], env=driver(**given)), *texts)


def found_by_the_system(name):
    """Also without the folders that the environment names."""
    if any((pathlib.Path(folder) / name).exists() for folder in ("/usr/local/cuda/lib64", "/usr/local/cuda/lib")):
        return True
    return name in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout


def hidden(tmp_path):
    """An environment in which no package of Python is found."""
    return {"PATH": str(tmp_path), "VIRTUAL_ENV": "", "PYTHONPATH": "", "ULPSCOPE_CUDA_LIBRARIES": "",
            "HOME": str(tmp_path)}


def test_a_missing_library_names_its_package(run, model, driver, tmp_path):
    for name in ("libcublasLt.so.13", "libcublasLt.so.12"):
        if found_by_the_system(name):
            pytest.skip(f"the system has {name}")
    outcome = run("run", model, "--trt", "--fp16", "--assume-lowest", "--backend", "cuda",
                  env={**driver(), **hidden(tmp_path)})
    says(outcome, "libcublasLt.so.13 is missing", "pip install 'nvidia-cublas'", "pip install 'ulpscope[cuda]'",
         "ULPSCOPE_CUDA_LIBRARIES")


def test_an_old_library_says_what_renews_it(run, model, driver, tmp_path):
    """The named folder comes first, whatever else there is."""
    folder = compiled(tmp_path / "old", "libcublasLt.so.13",
                      "int cublasLtCreate(void **handle) { (void)handle; return 1; }")
    shutil.copy(folder / "libcublasLt.so.13", folder / "libcudnn.so.9")
    outcome = run("run", model, "--trt", "--fp16", "--assume-lowest", "--backend", "cuda",
                  env={**driver(), "ULPSCOPE_CUDA_LIBRARIES": str(folder), "ULPSCOPE_CACHE": str(tmp_path / "cache")})
    says(outcome, f"{folder}/libcublasLt.so.13 has no function cublasLt", "pip install --upgrade 'ulpscope[cuda]'")
