"""The instruction sets that kernels are made for, and the variables that choose one of them."""

from __future__ import annotations

import os
import pathlib
import platform
import subprocess
import sys

import pytest

ENVIRONMENTS = {
    "baseline": {"ULPSCOPE_ISA": "baseline", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "avx2": {"ULPSCOPE_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "avx2_vnni": {"ULPSCOPE_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2_VNNI"},
    "avx512": {"ULPSCOPE_ISA": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
}
_NEEDS = {
    "baseline": set(),
    "avx2": {"avx2", "fma"},
    "avx2_vnni": {"avx2", "fma", "avx_vnni"},
    "avx512": {"avx512f", "avx512dq", "avx512vl", "avx512bw"},
}
_BEYOND = {"avx_vnni", "avx512_vnni", "avx512_bf16", "amx_tile"}  #: What oneDNN uses where it may.
LACKING = "no such instructions here: "  #: How reasons of skipped tests begin; scripts/test_totals.py lists them.


def _flags() -> set[str]:
    if platform.machine() not in ("x86_64", "AMD64"):
        return set()
    info = pathlib.Path("/proc/cpuinfo").read_text()
    return set(next((line for line in info.splitlines() if line.startswith("flags")), "").partition(":")[2].split())


def is_there(name: str) -> bool:
    """True if this processor has the set."""
    return _NEEDS[name] <= _flags()


def settings(name: str) -> dict[str, str]:
    """The variables that choose the set; "all": none."""
    return ENVIRONMENTS.get(name, {})


def output_of(script: str, name: str) -> "subprocess.CompletedProcess[str]":
    """Runs a file of tests as a program on the set, with this folder and the package on its path and nothing that other
    tests put there."""
    import ulpscope

    path = [str(pathlib.Path(__file__).parent), str(pathlib.Path(ulpscope.__file__).parents[1])]
    environment = {**os.environ, **settings(name), "PYTHONPATH": os.pathsep.join(path)}
    return subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)


def parameters() -> list:
    """Of pytest: "all", which is what the processor has, and each set. What the processor lacks is skipped, and so is
    what would be the same twice."""
    sets = [name for name in ENVIRONMENTS if is_there(name)]
    same = "" if _flags() & _BEYOND else sets[-1]
    result = [pytest.param("all")]
    for name in ENVIRONMENTS:
        if name != same:
            marks = [] if name in sets else [pytest.mark.skip(reason=LACKING + name)]
            result.append(pytest.param(name, marks=marks))
    return result
