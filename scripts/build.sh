#!/usr/bin/env bash
# Configures (once) and builds a preset: scripts/build.sh PRESET [TARGET...]
# Says how far it is: on a terminal in one line, elsewhere once a minute.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
shift
log=build/build-$preset.log
if [ ! -f "build/$preset/build.ninja" ]; then
  cmake --preset "$preset" >"build/configure-$preset.log" 2>&1 || {
    tail -n 30 "build/configure-$preset.log" >&2
    echo "[build] configuring failed; the whole log is in build/configure-$preset.log" >&2
    exit 1
  }
fi

# Reads ninja's lines, `[done/total seconds] what`; says nothing where all is done within the first seconds.
progress() {
  local line next=10 interval=60 end='\n' pattern='^\[([0-9]+)/([0-9]+) ([0-9]+)' shown=false
  if [ -t 2 ]; then interval=2 end='   \r'; fi
  while read -r line; do
    [[ $line =~ $pattern ]] || continue
    local done=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]} seconds=${BASH_REMATCH[3]}
    if [ "$done" = 0 ] || [ "$seconds" -lt "$next" ]; then continue; fi
    next=$((seconds + interval)) shown=true
    printf "[build] %d of %d steps, about %d min left; log: %s$end" "$done" "$total" \
      $(((seconds * (total - done) / done + 59) / 60)) "$log" >&2
  done
  if $shown && [ -t 2 ]; then printf '\n' >&2; fi
}

NINJA_STATUS='[%f/%t %e] ' ninja -C "build/$preset" "$@" 2>&1 | tee "$log" | progress || {
  grep -A 20 -E 'FAILED|error:' "$log" | head -n 60 >&2 || tail -n 30 "$log" >&2
  echo "[build] compiling failed; the whole log is in $log" >&2
  exit 1
}
