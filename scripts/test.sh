#!/usr/bin/env bash
# Sets up, builds everything and runs every test on all cores. The last line has the totals, and which instruction sets
# this processor could not show; exits 0 only if all passed.
#   scripts/test.sh [PRESET]    PRESET: release (default), dev, asan or tsan
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-release}
build=$PWD/build/$preset
say() { echo "[test] $(date +%T) $*"; }

say "setting up"
scripts/setup.sh --tests || exit 1
say "building build/$preset"
scripts/build.sh "$preset" || exit 1

jobs=$(nproc)
reports=$build/reports
rm -rf "$reports" && mkdir -p "$reports"
say "linters, on what has changed"
.venv/bin/python3 scripts/lint.py --build "$build" --junit "$reports/lint.xml"
say "test programs"
ctest --test-dir "$build" -j "$jobs" --output-on-failure --output-junit "$reports/ctest.xml" </dev/null |
  grep -vE '^ *Start|^\[ *[0-9]+/[0-9]+\] Test|Passed +[0-9.]+ sec'
say "tests in Python"
# Files as a whole: what they make once is made once.
ULPSCOPE_BUILD_DIR=$build PYTHONPATH=$build/python .venv/bin/python3 -m pytest tests -q -n "$jobs" --dist loadfile \
  --junitxml "$reports/pytest.xml" </dev/null
say "done"
.venv/bin/python3 scripts/test_totals.py "$reports/lint.xml" "$reports/ctest.xml" "$reports/pytest.xml"
