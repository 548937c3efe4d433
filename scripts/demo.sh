#!/usr/bin/env bash
# Sets up, builds the program, its library and its Python module, and runs examples/cli/06_speech_quality: a trained network that is
# NaN in FP16, the search for the layers that need FP32, and the proof on 200 recordings that the search has not seen. Exits 0 if
# every step ends as it should.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh --demo
echo "[demo] building build/release (the first time takes some minutes)"
scripts/build.sh release ulpscope ulpscope_library ulpscope_python
export PATH=$PWD/build/release/bin:$PWD/.venv/bin:$PATH
example=examples/cli/06_speech_quality
$example/test.sh
cat <<EOF

In $example are the model, its answer (model.fp16.answer.json), the typed model (typed.onnx) and a page
to open in a browser (report.html). Next, from there:
    cd $example && export PATH=$PWD/build/release/bin:$PWD/.venv/bin:\$PATH
    ulpscope run typed.onnx --trt --onnxrt --data-loader-script data.py:two --atol 0.02   # the typed model in two runtimes
    ulpscope precision search YOUR.onnx --fp16 --load-inputs YOUR.npz                     # your own model and inputs
    PYTHONPATH=$PWD/build/release/python python3 -c 'import ulpscope; help(ulpscope.search)'
EOF
