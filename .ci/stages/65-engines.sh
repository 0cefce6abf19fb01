#!/usr/bin/env bash
# predictions held against llama.cpp, PyTorch and ONNX Runtime, which run here and now
. .ci/lib.sh

# The compiler's package brings libgomp, which llama.cpp's threads meet in.
need gcc libc6-dev
python3 -c 'import ensurepip' 2>/dev/null || need python3 python3-venv
[ -x target/release/rooflined ] || release

began=$SECONDS
requirements=tests/engines/requirements.txt
venv=$CI_CACHE/engines-$({ cat $requirements && python3 --version; } | sha256sum | cut -c 1-12)
if [ ! -e "$venv/complete" ]; then
    rm -rf "$CI_CACHE"/engines-*
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir -r $requirements
    touch "$venv/complete"
fi
echo "the engines were installed after $((SECONDS - began)) s"
"$venv/bin/python" -B tests/engines/test_loop.py
"$venv/bin/python" -B tests/engines/loop.py target/release
echo "the stage took $((SECONDS - began)) s"
