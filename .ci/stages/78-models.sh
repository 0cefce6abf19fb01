#!/usr/bin/env bash
# model files held against transformers, PyTorch and ONNX Runtime: parameters, shapes and operations
. .ci/lib.sh

[ -x target/release/rooflinectl ] || release

began=$SECONDS
# torch is that of the engines.
venv engines tests/engines/requirements.txt
venv models tests/models/requirements.txt "$VENV"
echo "transformers was installed after $((SECONDS - began)) s"

# What a judge that ran in the background found.
told() {
    cat "$1"
    return "$2"
}

# Graphs of operators are small and many, and leave a core idle: they are judged next to the rest.
"$VENV/bin/python" -B tests/models/operators.py target/release/rooflinectl >"$CI_OUT/operators.txt" 2>&1 &
operators=$!
check "defaults of families are those of transformers" "$VENV/bin/python" -B tests/models/defaults.py --check
"$VENV/bin/python" -B tests/models/judge.py target/release/rooflinectl
check "caches and states are those of transformers" "$VENV/bin/python" -B tests/models/cache.py target/release/rooflinectl
check "tensors of checkpoints are what their configurations describe" "$VENV/bin/python" -B tests/models/checkpoints.py target/release/rooflinectl
check "networks have the shapes and operations that ONNX Runtime and torch count" \
    "$VENV/bin/python" -B tests/models/networks.py target/release/rooflinectl
status=0
wait "$operators" || status=$?
check "shapes of operators are those of ONNX Runtime" told "$CI_OUT/operators.txt" "$status"
echo "the stage took $((SECONDS - began)) s"
checked
