#!/usr/bin/env bash
# Configures (once) and builds a preset: scripts/build.sh PRESET [TARGET...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
shift
if [ ! -f "build/$preset/build.ninja" ]; then
  cmake --preset "$preset" >"build/configure-$preset.log" 2>&1 || {
    tail -n 30 "build/configure-$preset.log" >&2
    echo "[build] configuring failed; the whole log is in build/configure-$preset.log" >&2
    exit 1
  }
fi
ninja -C "build/$preset" "$@" >"build/build-$preset.log" 2>&1 || {
  grep -A 20 -E 'FAILED|error:' "build/build-$preset.log" | head -n 60 >&2 || tail -n 30 "build/build-$preset.log" >&2
  echo "[build] compiling failed; the whole log is in build/build-$preset.log" >&2
  exit 1
}
