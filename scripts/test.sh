#!/usr/bin/env bash
# Sets up, builds everything and runs every test. The last line has the totals; exits 0 only if all passed.
#   scripts/test.sh [PRESET]    PRESET: release (default), dev, asan, ubsan or tsan
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-release}
build=$PWD/build/$preset
scripts/setup.sh --tests || exit 1
echo "[test] building build/$preset"
scripts/build.sh "$preset" || exit 1

jobs=$(nproc)
reports=$build/reports
rm -rf "$reports" && mkdir -p "$reports"
ctest --test-dir "$build" -j "$jobs" --output-on-failure --output-junit "$reports/ctest.xml" </dev/null |
  grep -vE '^ *Start|^\[ *[0-9]+/[0-9]+\] Test|Passed +[0-9.]+ sec'
ULPSCOPE_BUILD_DIR=$build PYTHONPATH=$build/python .venv/bin/python3 -m pytest tests -q --junitxml "$reports/pytest.xml" </dev/null
.venv/bin/python3 scripts/test_totals.py "$reports/ctest.xml" "$reports/pytest.xml"
