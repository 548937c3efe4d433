#!/usr/bin/env bash
# Sets up, builds the program, its library and its Python module, and runs examples/cli/02_smallest_set_of_layers: a network that is
# wrong in FP16, the search for the layers that need FP32, and the proof on other samples. Exits 0 if every step ends as it should.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh
echo "[demo] building build/release (the first time takes some minutes)"
scripts/build.sh release ulpscope ulpscope_library ulpscope_python
export PATH=$PWD/build/release/bin:$PWD/.venv/bin:$PATH
example=examples/cli/02_smallest_set_of_layers
$example/test.sh
cat <<EOF

The model, its samples and the answer are in $example. Next, from there:
    cd $example && export PATH=$PWD/build/release/bin:$PWD/.venv/bin:\$PATH
    ulpscope convert model.onnx --answer model.fp16.answer.json -o typed.onnx     # the mixed-precision model
    ulpscope report model.fp16.answer.json -o report.html      # the answer as a page
    PYTHONPATH=$PWD/build/release/python python3 -c 'import ulpscope; help(ulpscope.search)'
EOF
