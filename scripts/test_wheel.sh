#!/usr/bin/env bash
# Installs the wheels of dist/ in bare systems that have Python and pip and nothing else, and runs tests/python/wheel_smoke.py
# there. Needs root and debootstrap; the systems are made in build/chroots (half a minute each) and kept for the next time.
#   scripts/test_wheel.sh [SYSTEM...]    debian12 (cp311 wheel), ubuntu24 (cp312 wheel); default: both
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fail() { echo "[test_wheel] $*" >&2; exit 1; }
limit=30  # seconds for pip install
if [ "$(id -u)" != 0 ]; then fail "making and entering a chroot needs root; try sudo"; fi
command -v debootstrap >/dev/null || fail "there is no debootstrap; try apt-get install debootstrap"
systems=("$@")
if [ $# = 0 ]; then systems=(debian12 ubuntu24); fi

# bootstrap SYSTEM FOLDER
bootstrap() {
  local packages=--include=python3,python3-venv,ca-certificates scripts=/usr/share/debootstrap/scripts check=()
  case "$1" in
    debian12) debootstrap --variant=minbase $packages bookworm "$2" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" ;;
    ubuntu24)
      # Debian has neither Ubuntu's keys nor always the name of this release.
      if [ ! -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ]; then check=(--no-check-gpg); fi
      debootstrap "${check[@]}" --variant=minbase --components=main,universe $packages noble "$2" \
        "${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}" $scripts/gutsy ;;
    *) fail "unknown system '$1'; try debian12 or ubuntu24" ;;
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
  inside() { env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin PIP_DISABLE_PIP_VERSION_CHECK=1 \
    unshare --mount sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$root" "$@"; }
  tag=$(inside python3 -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  wheels=(dist/ulpscope-*-"$tag"-*.whl)
  if [ ! -e "${wheels[0]}" ]; then fail "there is no wheel for $tag in dist; try scripts/wheel.sh"; fi
  rm -rf "$root/test"
  mkdir -p "$root/test/model"
  cp "${wheels[-1]}" tests/python/wheel_smoke.py "$root/test"
  cp examples/cli/02_smallest_set_of_layers/{make_model,data}.py "$root/test/model"
  (cd "$root/test/model" && "$OLDPWD/.venv/bin/python3" make_model.py)

  inside python3 -m venv /test/venv
  start=$(date +%s%N)
  inside /test/venv/bin/pip install -q --no-cache-dir "/test/$(basename "${wheels[-1]}")"
  milliseconds=$((($(date +%s%N) - start) / 1000000))
  echo "[test_wheel] $system: pip install took $milliseconds ms, $(du -sm "$root/test/venv" | cut -f1) MB installed"
  if [ $milliseconds -gt $((limit * 1000)) ]; then fail "expected at most $limit s"; fi
  inside /test/venv/bin/python3 /test/wheel_smoke.py /test/model
  inside /test/venv/bin/pip install -q --no-cache-dir "/test/$(basename "${wheels[-1]}")[onnx,scripts]"
  inside /test/venv/bin/python3 /test/wheel_smoke.py /test/model onnxruntime onnx
  rm -rf "$root/test"
done
