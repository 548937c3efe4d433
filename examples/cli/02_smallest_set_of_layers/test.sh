#!/usr/bin/env bash
# The search of README.md from the model to the proof: FP16 is wrong, a few layers are found, with them it is right on samples that
# the search has not seen. Exits 0 if each step ends as it should. Needs `ulpscope` on PATH and Python with onnx.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")"
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

tolerance="--atol 0.3 --rtol 0"
fp16="--trt --fp16 --assume-lowest"
unseen="--load-inputs unseen.json --load-outputs unseen_golden.json $tolerance -qq"
step "what ONNX Runtime computes in FP32, for 16 samples" 0 run model.onnx --onnxrt \
  --data-loader-script data.py --save-inputs samples.json --save-outputs golden.json -qq
step "the same for 200 samples that the search does not see" 0 run model.onnx --onnxrt \
  --data-loader-script data.py:load_unseen --save-inputs unseen.json --save-outputs unseen_golden.json -qq
step "FP16 alone: most of the 200 are wrong" 1 run model.onnx $fp16 $unseen
step "the search: which layers need FP32, and why" 0 precision search model.onnx --fp16 --objective smallest --load-inputs samples.json \
  --golden golden.json $tolerance --save-layer-precisions layers.txt
step "these layers in FP32, the rest in FP16: all of the 200 are right" 0 run model.onnx $fp16 $unseen \
  --precision-constraints obey --clamp-constants causal_mask --layer-precisions $(cat layers.txt)

printf '\n'
printf '%s\n' "${summary[@]}"
exit $wrong
