#!/usr/bin/env bash
# Sets up, builds the fuzz targets and runs each for some time on its corpus. Prints executions and findings per target;
# exits 1 if there are any, and leaves their inputs in build/fuzz/findings.
#   scripts/fuzz.sh [SECONDS] [TARGET...]    SECONDS: per target, 60; TARGET: onnx_model, plan, ... (all)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=60
if [[ "${1:-}" =~ ^[0-9]+$ ]]; then seconds=$1; shift; fi
sources=tests/fuzz_targets
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
  for source in "$sources"/*.cpp; do targets+=("$(basename "$source" .cpp)"); done
fi
scripts/setup.sh --fuzz
scripts/build.sh fuzz "${targets[@]/#/fuzz_}"

findings=build/fuzz/findings
mkdir -p "$findings"
failed=0
for target in "${targets[@]}"; do
  new=build/fuzz/corpus/$target log=build/fuzz/$target.log
  mkdir -p "$new"
  dictionary=()
  if [ -f "$sources/$target.dict" ]; then dictionary=(-dict="$sources/$target.dict"); fi
  # A file of 8 KiB has no business with more memory, nor with seconds of time.
  status=0
  "build/fuzz/bin/fuzz_$target" -max_total_time="$seconds" -max_len=8192 -timeout=10 -malloc_limit_mb=256 -rss_limit_mb=2048 \
    -artifact_prefix="$findings/$target-" -print_final_stats=1 "${dictionary[@]}" "$new" "$sources/corpus/$target" \
    >"$log" 2>&1 </dev/null || status=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  echo "[fuzz] $target: ${runs:-0} executions in $seconds s, $([ "$status" = 0 ] && echo "no finding" || echo "a finding")"
  if [ "$status" != 0 ]; then
    failed=1
    grep -m 1 -E 'FINDING|ERROR: |runtime error|terminate called|what\(\)' "$log" || true
    sed -n 's/.*Test unit written to /[fuzz] its input: /p' "$log"
  fi
done
exit "$failed"
