#!/usr/bin/env bash
# Makes build/sysroot-aarch64: Debian 12's packages for arm64 that ulpscope is compiled with, and Python, as files in a folder.
# Nothing of this system changes: apt works on lists of its own (build/apt-aarch64), dpkg only unpacks. Needs no root.
#   scripts/sysroot.sh [PACKAGE...]     also these packages, with what they depend on; only what is new is unpacked
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fail() { echo "[sysroot] $*" >&2; exit 1; }
root=$PWD/build/sysroot-aarch64 apt=$PWD/build/apt-aarch64 keys=/usr/share/keyrings/debian-archive-keyring.gpg
packages=(libc6-dev libstdc++-12-dev libprotobuf-dev libfmt-dev libxxhash-dev zlib1g-dev nlohmann-json3-dev libgtest-dev
  libgmock-dev python3-dev python3-venv "$@")
if [ ! -e "$keys" ]; then fail "expected the keys of Debian in $keys; try 'apt-get install debian-archive-keyring'"; fi
mkdir -p "$apt"/{lists/partial,archives/partial,etc} "$root"
if [ "$(cat "$root/.done" 2>/dev/null)" = "${packages[*]}" ]; then exit 0; fi

mirror=${ULPSCOPE_DEBIAN_MIRROR:-http://deb.debian.org/debian}
touch "$apt/status"
echo "deb [arch=arm64 signed-by=$keys] $mirror bookworm main" >"$apt/etc/sources.list"
options=(-o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Get::List-Cleanup=false
  -o Dir::State="$apt" -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt"
  -o Dir::Cache::archives="$apt/archives" -o Dir::Etc::SourceList="$apt/etc/sources.list" -o Dir::Etc::SourceParts=/dev/null
  -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null -o APT::Install-Recommends=false -o APT::Sandbox::User=root)
log=build/sysroot.log
{ apt-get "${options[@]}" -q update && apt-get "${options[@]}" -q -y --download-only install "${packages[@]}"; } >"$log" 2>&1 ||
  { tail -n 15 "$log" >&2; fail "apt-get could not get the packages; is the network reachable? The whole log is in $log"; }

# Symbolic links as installed systems have them; tar keeps them.
for folder in bin sbin lib; do
  mkdir -p "$root/usr/$folder"
  if [ ! -e "$root/$folder" ]; then ln -s "usr/$folder" "$root/$folder"; fi
done
for file in "$apt"/archives/*.deb; do
  if [ -e "$root/.unpacked/$(basename "$file")" ]; then continue; fi
  dpkg-deb --fsys-tarfile "$file" | tar -x --keep-directory-symlink --no-same-owner -C "$root"
  mkdir -p "$root/.unpacked"
  touch "$root/.unpacked/$(basename "$file")"
done
# Absolute ones would lead to this system's files.
find "$root" -type l -lname '/*' -printf '%l %p\n' | while read -r target link; do ln -sfrn "$root$target" "$link"; done
echo "${packages[*]}" >"$root/.done"
