#!/usr/bin/env bash
# predictions held against llama.cpp, PyTorch and ONNX Runtime, which run here and now
. .ci/lib.sh

# The compiler's package brings libgomp, which llama.cpp's threads meet in.
need gcc libc6-dev
[ -x target/release/rooflined ] || release

began=$SECONDS
venv engines tests/engines/requirements.txt
echo "the engines were installed after $((SECONDS - began)) s"
"$VENV/bin/python" -B tests/engines/test_loop.py

"$VENV/bin/python" -B tests/engines/memory.py target/release
# Not built: its sources have llama.cpp's parser of options.
sources=$CI_CACHE/llama_cpp_python-0.3.36.tar.gz
[ -e "$sources" ] || "$VENV/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
    --dest "$CI_CACHE" llama-cpp-python==0.3.36
"$VENV/bin/python" -B tests/engines/flags.py "$sources" target/release
echo "memory and options were checked after $((SECONDS - began)) s"
"$VENV/bin/python" -B tests/engines/loop.py target/release
echo "engines were predicted and observed after $((SECONDS - began)) s"
"$VENV/bin/python" -B tests/engines/instructions.py target/release
# Here and not with the other judges of model files: those run beside other stages, and these are times.
venv models tests/models/requirements.txt "$VENV"
check "compare runs a network in ONNX Runtime, and encoders of text take the time that is predicted" \
    "$VENV/bin/python" -B tests/models/compare.py target/release
echo "the stage took $((SECONDS - began)) s"
checked
