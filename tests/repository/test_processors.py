"""That the sources still compile for aarch64 and without oneDNN: what can be seen without the sysroot of
scripts/sysroot.sh, and without a compiler for it."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in (".cpp", ".h", ".inc"))
# What one processor has, and conditions under which it is compiled. The widths are those of AVX2 and AVX-512.
OF_X86 = re.compile(
    r"\b(_mm\d*_\w+|__m(128|256|512)\w*|__mmask\d+|immintrin\.h|__builtin_(cpu_supports|ia32_\w+))\b"
    r"|target(_clones)?\(\""
)
FOR_X86 = re.compile(r"defined\(__x86_64__\)|defined\(__SSE2__\)|ULPSCOPE_VECTOR_BYTES == (32|64)")
OF_ARM = re.compile(r"\b(v[a-z]+q?_[fsu](8|16|32|64)|arm_neon\.h)\b")
FOR_ARM = re.compile(r"defined\(__aarch64__\)")


def unguarded(text: str, named: re.Pattern[str], condition: re.Pattern[str]) -> list[str]:
    """The lines that have what is `named`, in no branch of an #if whose `condition` is met."""
    found, branches = [], list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("//")[0].strip()
        if code.startswith("#if"):
            branches.append(code)
        elif code.startswith(("#elif", "#else")):
            branches[-1] = code
        elif code.startswith("#endif"):
            branches.pop()
        elif named.search(code) and not any(condition.search(branch) for branch in branches):
            found.append(f"{number}: {code}")
    return found


def test_unguarded_lines_are_found() -> None:
    text = "#if defined(__x86_64__)\n__m128 x;\n#else\nauto x = _mm_setzero_ps();\n#endif\n__m128 y;  // __m128"
    assert unguarded(text, OF_X86, FOR_X86) == ["4: auto x = _mm_setzero_ps();", "6: __m128 y;"]
    assert unguarded("#ifdef A\nvfmaq_f32(c, a, b)\n#endif", OF_ARM, FOR_ARM) == ["2: vfmaq_f32(c, a, b)"]


def test_what_one_processor_has_is_compiled_for_it_alone() -> None:
    texts = {path: path.read_text() for path in SOURCES}
    assert sum(bool(OF_X86.search(text)) for text in texts.values()) >= 5, "the pattern finds nothing any more"
    assert sum(bool(OF_ARM.search(text)) for text in texts.values()) >= 2
    for path, text in texts.items():
        assert unguarded(text, OF_X86, FOR_X86) == [], path
        assert unguarded(text, OF_ARM, FOR_ARM) == [], path


def test_without_onednn_nothing_includes_it() -> None:
    rules = (ROOT / "src/backend/CMakeLists.txt").read_text()
    (left_out,) = re.findall(r"else\(\)\n  set\(without (.*)\)", rules)
    files = {ROOT / "src/backend" / name for name in left_out.split()}
    assert all(path.exists() for path in files), "CMake takes a name that no source has for nothing to leave out"
    include = re.compile(r'#include ["<](backend/cpu/onednn\.h|(oneapi/dnnl/)?dnnl\w*\.h(pp)?)[">]')
    assert {path for path in SOURCES if include.search(path.read_text())} - {ROOT / "src/backend/cpu/onednn.h"} <= files


def flags_of(build_dir: pathlib.Path) -> list[str]:
    """How a source of the backend is compiled, without precompiled headers and the flags of instruction sets."""
    commands = json.loads((build_dir / "compile_commands.json").read_text())
    (entry,) = [each for each in commands if each["file"].endswith("/program_kernels_baseline.cpp")]
    words = shlex.split(entry["command"])
    return words[next(i for i, word in enumerate(words) if word.startswith(("-D", "-I"))) : words.index("-o")]


def test_the_source_in_the_place_of_onednn_compiles(build_dir: pathlib.Path) -> None:
    source = str(ROOT / "src/backend/cpu/without_onednn.cpp")
    command = ["c++", *flags_of(build_dir), "-fsyntax-only", "-Werror", source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "source",
    ["backend/cpu/integer_depthwise.cpp", "backend/cpu/program_kernels_baseline.cpp", "backend/cpu/program_kernels.cpp",
     "backend/cpu/without_onednn.cpp", "core/instruction_set.cpp", "formats/rounding.cpp",
     "ops/contraction/matrix_product.cpp", "precision/sample_server.cpp"],
)  # fmt: skip
def test_sources_that_name_processors_compile_for_aarch64(source: str, tmp_path: pathlib.Path) -> None:
    compiler = shutil.which("aarch64-linux-gnu-g++")
    if not compiler:
        pytest.skip("there is no aarch64-linux-gnu-g++; scripts/setup.sh --target aarch64 installs it")
    # Of this system's headers, only those that are the same for all processors.
    for name in ("fmt", "nlohmann", "xxhash.h"):
        (tmp_path / name).symlink_to(f"/usr/include/{name}")
    folders = [f"-I{ROOT / 'include'}", f"-I{ROOT / 'src'}", f"-I{tmp_path}"]
    command = [
        compiler,
        "-std=c++20",
        "-fsyntax-only",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-psabi",
        "-Wno-missing-field-initializers",
        '-DULPSCOPE_VERSION=""',
    ]
    done = subprocess.run([*command, *folders, str(ROOT / "src" / source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
