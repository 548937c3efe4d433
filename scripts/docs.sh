#!/usr/bin/env bash
# Builds the documentation site from docs/ into build/site, which needs no network; warnings are errors.
#   scripts/docs.sh [FOLDER]    another folder for the site
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec env NO_MKDOCS_2_WARNING=1 "${PYTHON:-.venv/bin/python3}" -m mkdocs build --strict --site-dir "${1:-$PWD/build/site}"
