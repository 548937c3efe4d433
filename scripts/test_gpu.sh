#!/usr/bin/env bash
# Runs what needs an NVIDIA GPU: the engine's tests on the backend `cuda`, convolutions and products against their
# definition, tactics that travel in files, whole networks against the CPU. The last line says what failed; exits 0 only
# if nothing did, 1 without a GPU.
#   scripts/test_gpu.sh [--if-present] [--bin FOLDER] [MODEL.onnx...]
#     --if-present    without a GPU, say so and exit 0
#     --bin FOLDER    take the programs of this folder; default: those of build/release, which are built first
#     MODEL.onnx      further networks for tests/gpu/check_models.py (bench/gpu/make_networks.py makes some)
# Python needs numpy: that of .venv, else python3, else the one that PYTHON names.
set -uo pipefail
call_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
say() { echo "[test_gpu] $*"; }

if_present=false bin='' models=()
while [ $# -gt 0 ]; do
  case "$1" in
    --if-present) if_present=true; shift ;;
    --bin) bin=$(cd "$call_from" && realpath "${2:?--bin needs a folder}"); shift 2 ;;
    -*) say "unknown argument '$1'; try --if-present, --bin FOLDER, or networks" >&2; exit 2 ;;
    *) models+=("$(cd "$call_from" && realpath "$1")"); shift ;;
  esac
done
python=${PYTHON:-.venv/bin/python3}
if [ -z "${PYTHON:-}" ] && [ ! -x "$python" ]; then python=python3; fi

# What the driver says, before anything is built.
gpu=$("$python" - 2>&1 <<'PYTHON'
import ctypes
import sys

try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    sys.exit(f"no NVIDIA driver: {error}")
count, status = ctypes.c_int(0), driver.cuInit(0)
if status == 0:
    status = driver.cuDeviceGetCount(ctypes.byref(count))
if status != 0 or count.value == 0:
    sys.exit(f"the driver shows no GPU (status {status})")
name, device = ctypes.create_string_buffer(256), ctypes.c_int(0)
driver.cuDeviceGet(ctypes.byref(device), 0)
driver.cuDeviceGetName(name, 256, device)
print(name.value.decode())
PYTHON
) || {
  reason=${gpu:-no GPU}
  if $if_present; then say "skipped: $reason"; exit 0; fi
  say "$reason; with --if-present this is no failure" >&2
  exit 1
}
say "$gpu"

if [ -z "$bin" ]; then
  bin=$PWD/build/release/bin
  scripts/setup.sh --tests || exit 1
  scripts/build.sh release engine_tests convolution_check matrix_check product_check ulpscope || exit 1
fi

failed=()
check() {  # check NAME COMMAND...
  say "$1"
  "${@:2}" </dev/null || failed+=("$1")
}
# What the backend has to do as every other one does; tests of the CPU's own memory and threads are its own.
check "tests of the engine" env ULPSCOPE_TEST_BACKEND=cuda "$bin/engine_tests" --gtest_brief=1 \
  "--gtest_filter=-ActivationStore.Keeps*:ActivationStore.Only*:Determinism.*:*Threads*"
check "convolutions" "$bin/convolution_check"
check "products" "$bin/matrix_check"
check "products with programs" "$bin/product_check"
check "tactics" "$python" tests/gpu/check_tactics.py "$bin/ulpscope" tests/truth/residual_cnn.onnx tests/truth/mlp.onnx
if "$python" -c 'import ml_dtypes, onnx' 2>/dev/null; then
  check "fp8, and weights of a few bits" "$python" tests/gpu/check_formats.py "$bin/ulpscope"
else
  say "fp8, and weights of a few bits: left out, $python lacks onnx or ml_dtypes"
fi
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
for kind in attention recurrent upsampling; do
  check "$kind networks" "$python" "tests/gpu/make_$kind.py" "$made/$kind"
  check "$kind networks against the CPU" "$python" tests/gpu/check_models.py "$bin/ulpscope" "$made/$kind"/*.onnx
done
check "attention networks against the CPU, --attention flash" "$python" tests/gpu/check_models.py "$bin/ulpscope" \
  "$made/attention"/*.onnx --attention flash --fusion full
check "whole networks" "$python" tests/gpu/check_models.py "$bin/ulpscope" tests/truth/*.onnx ${models[@]+"${models[@]}"}

if [ ${#failed[@]} -gt 0 ]; then
  say "FAILED: $(printf '%s, ' "${failed[@]}" | sed 's/, $//')"
  exit 1
fi
say "passed: tests of the engine, convolutions, products, tactics, attention, recurrent layers, upsampling, whole networks"
