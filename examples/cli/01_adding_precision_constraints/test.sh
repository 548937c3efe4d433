#!/usr/bin/env bash
# The three cases of README.md. Exits 0 if each ends as it should. Needs `ulpscope` on PATH and Python with onnx.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")"
python3 make_model.py || exit 1

# FP16 wherever it is enabled, and every layer stores its output, as on a GPU that does not fuse Add with Sub.
fp16="--fp16 --assume-lowest --fusion none"
compare="--trt --onnxrt --val-range x:[1,2] --check-error-stat median"
wrong=0

# case TITLE EXPECTED_EXIT_CODE ARGUMENT...
case_of() {
  local title=$1 expected=$2 code
  shift 2
  printf '\n=== %s\n    ulpscope run %s\n\n' "$title" "$*"
  ulpscope run "$@"
  code=$?
  if [ "$code" = "$expected" ]; then summary+=("as expected: $title"); else summary+=("NOT AS EXPECTED (exit code $code): $title"); wrong=1; fi
}
summary=()
case_of "default: FP32 agrees with ONNX Runtime" 0 needs_constraints.onnx $compare
case_of "FP16 only: the sum stops at 65504 and x is lost, the comparison fails" 1 needs_constraints.onnx $compare $fp16 \
  --trt-outputs mark all --onnx-outputs mark all
case_of "constrained: Add and Sub in FP32, the rest in FP16, the comparison passes" 0 needs_constraints.onnx $compare $fp16 \
  --trt-npps add_constraints.py --precision-constraints obey

printf '\n'
printf '%s\n' "${summary[@]}"
exit $wrong
