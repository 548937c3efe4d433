#!/usr/bin/env bash
# Runs all benchmarks. usage: bench/run.sh [--quick] [--build FOLDER] [--output json|csv|md]
# --quick: a few runs of each, which shows that they work; FOLDER: a build with ULPSCOPE_BUILD_BENCHMARKS and
# ULPSCOPE_BUILD_PYTHON on (default: build/release). What the folder does not have is left out, with a line that says so.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
build="$root/build/release"
options=()
minimum=()
while (($#)); do
  case "$1" in
    --quick) options+=(--quick); minimum=(--benchmark_min_time=0.01) ;;
    --build) build="$2"; shift ;;
    --output) options+=(--output "$2"); shift ;;
    *) echo "bench/run.sh: expected --quick, --build FOLDER or --output FORMAT, got '$1'" >&2; exit 2 ;;
  esac
  shift
done
python="$root/.venv/bin/python"
[[ -x $python ]] || python=python3
[[ ! -d $build/python/ulpscope ]] || export PYTHONPATH="$build/python${PYTHONPATH:+:$PYTHONPATH}"

[[ -f $root/build/models/minilm.onnx ]] || "$python" "$root/tests/models/make_models.py" "$root/build/models"

if "$python" -c "import ulpscope" 2>/dev/null; then
  for script in forward precision; do
    echo "== $script"
    "$python" "$root/bench/$script.py" "${options[@]}"
  done
else
  echo "forward and precision are left out: no Python module in $build/python (ULPSCOPE_BUILD_PYTHON)" >&2
fi
if [[ -x $build/bin/ulpscope ]]; then
  echo "== process"
  "$python" "$root/bench/process.py" --ulpscope "$build/bin/ulpscope" "${options[@]}"
  echo "== memory"
  "$python" "$root/bench/memory.py" --program "$build/bin/ulpscope" "${options[@]}"
fi
if [[ -x $build/bin/search_bench ]]; then
  echo "== search"
  "$python" "$root/bench/search/speed.py" --program "$build/bin/search_bench" "${options[@]}"
fi
for program in plan_bench backend_bench; do
  if [[ -x $build/bin/$program ]]; then
    echo "== $program"
    "$build/bin/$program" "${minimum[@]}"
  else
    echo "$program is left out: it is not in $build/bin (ULPSCOPE_BUILD_BENCHMARKS)" >&2
  fi
done
