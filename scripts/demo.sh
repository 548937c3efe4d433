#!/usr/bin/env bash
# Sets up, builds the program, and runs examples/cli/02_smallest_set_of_layers: a network that is wrong in FP16, the search for
# the layers that need FP32, and the proof on other samples. Exits 0 if every step ends as it should.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh
echo "[demo] building build/release (the first time takes some minutes)"
scripts/build.sh release ulpscope
export PATH=$PWD/build/release/bin:$PWD/.venv/bin:$PATH
examples/cli/02_smallest_set_of_layers/test.sh
