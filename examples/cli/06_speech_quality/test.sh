#!/usr/bin/env bash
# A trained network is NaN in FP16, some layers stay in FP32, and the answer holds on 200 recordings that the search has not seen, or
# with `./test.sh quick` on four. Exits 0 if each step ends as it should. Needs `ulpscope` on PATH, and Python with NumPy and speechmos.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")"
unseen=unseen
if [ "${1:-}" = quick ]; then unseen=few_unseen; fi
python3 make_model.py || exit 1
wrong=0
summary=()

# step TITLE EXPECTED_EXIT_CODE ARGUMENT...
step() {
  local title=$1 expected=$2 code
  shift 2
  printf '\n=== %s\n    ulpscope %s\n\n' "$title" "$*"
  ulpscope "$@"
  code=$?
  if [ "$code" = "$expected" ]; then summary+=("as expected: $title"); else summary+=("NOT AS EXPECTED (exit code $code): $title"); wrong=1; fi
}

answer="--answer model.fp16.answer.json"
step "all in FP16: NaN" 1 run model.onnx --trt --fp16 --assume-lowest --validate --data-loader-script data.py:two -qq
step "the search: which layers need FP32, and why" 0 precision search model.onnx --fp16 --force --data-loader-script data.py \
  --atol 0.02 --rtol 0
step "the typed model: these layers in FP32, the rest in FP16" 0 convert model.onnx $answer -o typed.onnx --data-loader-script data.py:two
step "the answer holds on recordings that the search has not seen" 0 verify model.onnx $answer --data-loader-script data.py:$unseen
step "a page that shows the answer" 0 report model.fp16.answer.json -o report.html

printf '\n%s' "${summary[@]}"
printf '\n'
exit $wrong
