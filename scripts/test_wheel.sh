#!/usr/bin/env bash
# Installs the wheels of dist/ in environments of their own, and runs tests/python/wheel_smoke.py there: first with nothing
# else, then in one process with ONNX Runtime and onnx. Says how large they are and how long pip took.
#   scripts/test_wheel.sh [SYSTEM...]           in bare systems that have Python and pip: ubuntu22 (cp310 wheel), debian12
#                                               (cp311), ubuntu24 (cp312); default: all. Needs root and debootstrap; the
#                                               systems are made in build/chroots (half a minute each) and kept.
#   scripts/test_wheel.sh --python PYTHON...    in virtual environments of these Pythons
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fail() { echo "[test_wheel] $*" >&2; exit 1; }
limit=30  # seconds for pip install
largest=25  # MB of a wheel
# Nothing of this shell's environment helps a package.
bare=(env -i LANG=C.UTF-8 PIP_DISABLE_PIP_VERSION_CHECK=1)

# wheel_for VERSION: the wheel for Python 3.VERSION; one is for 3.12 and all later ones.
wheel_for() {
  local tag=cp3$(($1 < 12 ? $1 : 12)) wheels
  wheels=(dist/ulpscope-*-"$tag"-*_"$(uname -m)".whl)
  if [ ! -e "${wheels[0]}" ]; then fail "there is no wheel for $tag on $(uname -m) in dist; try scripts/wheel.sh"; fi
  if [ "$(stat -c %s "${wheels[-1]}")" -gt $((largest * 1000000)) ]; then fail "expected at most $largest MB: ${wheels[-1]}"; fi
  echo "${wheels[-1]}"
}

# try NAME FOLDER SEEN COMMAND...: makes FOLDER, which COMMAND, what starts a program there, sees as SEEN, and tries the wheel.
try() {
  local name=$1 folder=$2 seen=$3 wheel version start milliseconds
  shift 3
  version=$("$@" python3 -c 'import sys; print(sys.version_info[1])')
  wheel=$(wheel_for "$version")
  rm -rf "$folder"
  mkdir -p "$folder/model"
  cp "$wheel" tests/python/wheel_smoke.py "$folder"
  cp examples/cli/02_smallest_set_of_layers/{make_model,data}.py "$folder/model"
  (model_python=$PWD/.venv/bin/python3 && cd "$folder/model" && "$model_python" make_model.py)
  wheel=$(basename "$wheel")

  "$@" python3 -m venv "$seen/venv"
  start=$(date +%s%N)
  "$@" "$seen/venv/bin/python3" -m pip install -q --no-cache-dir "$seen/$wheel"
  milliseconds=$((($(date +%s%N) - start) / 1000000))
  echo "[test_wheel] $name: $wheel, $(du -m --apparent-size "$folder/$wheel" | cut -f1) MB;" \
    "pip install took $milliseconds ms, $(du -sm "$folder/venv" | cut -f1) MB installed"
  if [ $milliseconds -gt $((limit * 1000)) ]; then fail "expected at most $limit s"; fi
  "$@" "$seen/venv/bin/python3" "$seen/wheel_smoke.py" "$seen/model"
  "$@" "$seen/venv/bin/python3" -m pip install -q --no-cache-dir "$seen/$wheel[onnx,scripts]"
  "$@" "$seen/venv/bin/python3" "$seen/wheel_smoke.py" "$seen/model" onnxruntime onnx
  rm -rf "$folder"
}

if [ "${1:-}" = --python ]; then
  shift
  if [ $# = 0 ]; then fail "--python needs programs"; fi
  for python in "$@"; do
    python=$("$python" -c 'import sys; print(sys.executable)') || fail "could not start $python"
    folder=$PWD/build/wheel-try-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    # By its own name: it may be a python3.12 without a python3 beside it.
    inside() { local program=$1; shift; if [ "$program" = python3 ]; then program=$python; fi
      "${bare[@]}" HOME="$folder" PATH=/usr/bin:/bin "$program" "$@"; }
    try "$("$python" --version)" "$folder" "$folder" inside
  done
  exit 0
fi

if [ "$(id -u)" != 0 ]; then fail "making and entering a chroot needs root; try sudo"; fi
command -v debootstrap >/dev/null || fail "there is no debootstrap; try apt-get install debootstrap"
systems=("$@")
if [ $# = 0 ]; then systems=(ubuntu22 debian12 ubuntu24); fi

# bootstrap SYSTEM FOLDER
bootstrap() {
  local packages=--include=python3,python3-venv,ca-certificates scripts=/usr/share/debootstrap/scripts check=()
  case "$1" in
    debian12) debootstrap --variant=minbase $packages bookworm "$2" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" ;;
    ubuntu22 | ubuntu24)
      local release=noble
      if [ "$1" = ubuntu22 ]; then release=jammy; fi
      # Debian has neither Ubuntu's keys nor always the name of this release.
      if [ ! -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ]; then check=(--no-check-gpg); fi
      debootstrap "${check[@]}" --variant=minbase --components=main,universe $packages $release "$2" \
        "${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}" $scripts/gutsy ;;
    *) fail "unknown system '$1'; try ubuntu22, debian12 or ubuntu24" ;;
  esac
}

for system in "${systems[@]}"; do
  root=build/chroots/$system
  if [ ! -e "$root/.done" ]; then
    rm -rf "$root"
    mkdir -p build/chroots
    bootstrap "$system" "$root" >"$root.log" 2>&1 || { tail -n 5 "$root.log" >&2; fail "no $system: see $root.log"; }
    touch "$root/.done"
  fi
  # A mount of its own that ends with the process: the loader finds libraries beside a program through /proc.
  # Names and certificates of this machine, for pip.
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  inside() { "${bare[@]}" HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    unshare --mount sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$root" "$@"; }
  try "$system" "$root/test" /test inside
done
