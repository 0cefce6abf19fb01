#!/usr/bin/env bash
# Puts a real llama.cpp server and a random model below a directory, to be observed there: engine.sh ROOT
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 ROOT" >&2 && exit 2; }
root=$(realpath "$1")
cd "$(dirname "$0")/../.."

python=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
# For the Python of that system, whatever runs here.
"$scratch/venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary=:all: \
    --python-version "$python" --target "$root/opt/engine" "$(grep '^xllamacpp==' tests/engines/requirements.txt)"
install -m 755 tests/engines/llama-server "$root/opt/engine/llama-server"
python3 tests/random_gguf.py tinyllama q8_0 "$root/srv/model.gguf" --layers 2 --vocab 2048
