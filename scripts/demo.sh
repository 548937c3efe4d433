#!/usr/bin/env bash
# Sets up, builds the program, and runs examples/cli/01_adding_precision_constraints: an FP16 build that goes wrong against
# ONNX Runtime, and the constraints that repair it. Exits 0 if every case ends as it should.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh
echo "[demo] building build/release (the first time takes some minutes)"
scripts/build.sh release ulpscope
export PATH=$PWD/build/release/bin:$PWD/.venv/bin:$PATH
examples/cli/01_adding_precision_constraints/test.sh
