"""Ctrl-C, and what asks the program to end: it ends at once, with its children, and leaves no file behind."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from hostile_models import floats, loop, save
from limits import HANGS


def children_with(text):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if text.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def processor_ticks(token):
    """Of all processes with the token: what they have computed so far."""
    ticks = 0
    for pid in children_with(token):
        try:
            user, system = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            ticks += int(user) + int(system)
        except OSError:
            pass
    return ticks


def interrupt(binary, folder, words, marker, number=signal.SIGINT):
    """Starts the program, sends a signal once the file `marker` is there; without one, once it has run for long."""
    token = f"ULPSCOPE_TEST_TOKEN={os.getpid()}-{time.monotonic_ns()}"
    environment = {**os.environ, "ULPSCOPE_PYTHON": sys.executable, token.split("=")[0]: token.split("=")[1]}
    process = subprocess.Popen(
        [str(binary), *map(str, words)],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        if marker is None:
            while "Activating" not in process.stdout.readline():
                assert process.poll() is None, process.communicate()
            started = processor_ticks(token)
        while not (folder / marker).exists() if marker else processor_ticks(token) < started + os.sysconf("SC_CLK_TCK"):
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=HANGS)
    finally:
        process.kill()
    assert process.returncode == 130, (process.returncode, out, err)
    assert "Interrupted" in err, err
    while children_with(token):  # Killed, and about to be gone.
        time.sleep(0.1)
    return out, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_during_a_script(number, binary, dynamic_model, tmp_path):
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\n\ndef postprocess(network):\n"
        "    pathlib.Path('started').touch()\n    time.sleep(10000)\n"
    )
    interrupt(
        binary,
        tmp_path,
        ["run", dynamic_model, "--trt", "--trt-npps", "slow.py", "--save-outputs", "o.json"],
        "started",
        number,
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dynamic.onnx", "slow.py", "started"]


def test_interrupt_of_an_endless_loop(binary, tmp_path):
    save(tmp_path, loop(2**63 - 1, True), {"x": floats(2)})
    interrupt(
        binary, tmp_path, ["run", "m.onnx", "--trt", "--load-inputs", "in.json", "--save-outputs", "o.json"], None
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.json", "m.onnx"]


def test_interrupt_between_iterations(binary, dynamic_model, tmp_path):
    interrupt(
        binary,
        tmp_path,
        ["run", dynamic_model, "--trt", "--onnxrt", "--iterations", "1000000", "--save-outputs", "o.json"],
        None,
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dynamic.onnx"]


def test_interrupt_while_onnxruntime_runs(binary, dynamic_model, tmp_path):
    interrupt(binary, tmp_path, ["run", dynamic_model, "--onnxrt", "--iterations", "1000000"], None)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dynamic.onnx"]
