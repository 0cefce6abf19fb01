#!/usr/bin/env bash
# the Python client: wheel, types, tests, and its examples, which run here and now; the agents' protocol by its own client
. .ci/lib.sh

# llama.cpp's threads meet in the compiler's libgomp.
need curl gcc libc6-dev
[ -x target/release/rooflined ] || release

began=$SECONDS
# torch and llama.cpp are those that the stage before was held against.
venv engines tests/engines/requirements.txt
venv python clients/python/requirements.txt "$VENV"
export ROOFLINED_BINARIES=$PWD/target/release PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
echo "the tools were installed after $((SECONDS - began)) s"

work=$(mktemp -d /tmp/rl-python.XXXXXX)
daemon=
finish() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

# Twice, from copies of different age: nothing of the machine or the moment may be in a wheel.
wheels() {
    local copy
    for copy in a b; do
        mkdir "$work/$copy"
        cp -r clients/python/{pyproject.toml,README.md,rooflined} "$work/$copy"
        [ "$copy" = a ] || find "$work/$copy" -exec touch -d 2001-01-01 {} +
        "$VENV/bin/pip" wheel --quiet --no-build-isolation --no-deps -w "$work/$copy/dist" "$work/$copy"
    done
    cmp "$work"/a/dist/*.whl "$work"/b/dist/*.whl
}

# The package as it is installed, seen from outside the checkout, by a Python that has nothing else.
install_wheel() {
    python3 -m venv "$work/bare"
    "$work/bare/bin/pip" install --quiet --no-index "$work"/a/dist/*.whl
    cd "$work"
    bare/bin/python -c 'import rooflined, pathlib; assert pathlib.Path(rooflined.__file__).with_name("py.typed").exists()'
}

older_python() {
    # Kept for JetPack 5. Where there is no such Python, what the sources use is looked up in tables.
    "$VENV/bin/vermin" --quiet --no-tips -t=3.8- --violations clients/python/rooflined
    local python
    for python in python3.8 /usr/bin/python3.8; do
        if "$python" -c '' 2>/dev/null; then
            (cd clients/python/tests && PYTHONPATH=.. "$python" -m unittest test_client)
            return
        fi
    done
}

in_bare() { (cd clients/python/tests && "$work/bare/bin/python" -m unittest "$@"); }

# With the installed wheel, and the daemon of the examples.
example() {
    (cd "$work" && PYTHONPATH=$work/bare/lib/$("$work/bare/bin/python" -c 'import sys; print(f"python{sys.version_info[0]}.{sys.version_info[1]}")')/site-packages \
        timeout --kill-after=5 150 "$VENV/bin/python" "$@")
}

# One that predicts for the CPU, calibrated beside whatever else runs.
start_daemon() {
    mkdir "$work/state"
    printf '[calibration]\nautomatic = false\n[control]\nenabled = true\n[daemon]\naccelerator = "cpu"\n' >"$work/rooflined.toml"
    "$ROOFLINED_BINARIES/rooflined" --config "$work/rooflined.toml" --socket "$work/run" --state-dir "$work/state" --bus none \
        >"$work/log" 2>&1 &
    daemon=$!
    export ROOFLINED_SOCKET=$work/run
    for _ in {1..100}; do
        [ ! -S "$work/run/query.sock" ] || break
        sleep 0.1
    done
    # Neighbours on the machine come and go.
    for _ in 1 2 3 4; do
        ! "$ROOFLINED_BINARIES/rooflinectl" calibrate --wait --force 2>&1 | grep -E '^(calibrated|error)' || return 0
    done
    fail "this machine cannot be calibrated"
}

says() {
    local pattern=$1 output
    shift
    output=$("$@")
    printf '%s\n' "$output"
    # As a whole: a pipe would break where grep has seen enough.
    grep -qE "$pattern" <<<"$output"
}

on_a_t4() { ROOFLINED_HARDWARE=t4 example "$examples/run_notebook.py" "$examples/roofline.ipynb"; }

check "the wheel of the Python client is the same when it is built again" wheels
check "it installs where there is nothing but Python, with its types" install_wheel
check "its types hold for mypy --strict" "$VENV/bin/mypy" --strict clients/python/rooflined
check "it needs no more than Python 3.8" older_python
check "its tests pass against a daemon of a simulated board" in_bare test_client
check "its manual's program and curl lines do what they say" in_bare test_manual

start_daemon
examples=$PWD/clients/python/examples
# Wide and with few layers: threads meet often in a small model, and each waits there for what else runs.
python3 tests/random_gguf.py qwen2.5-0.5b q8_0 "$work/wide.gguf" --layers 2 --vocab 4096 >/dev/null
python3 tests/random_gguf.py qwen2.5-0.5b fp16 "$work/wide-f16.gguf" --layers 2 --vocab 4096 >/dev/null
printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$VENV/bin/python" "$PWD/tests/engines/llama-server" >"$work/llama-server"
chmod +x "$work/llama-server"
# check keeps the output of what passes to itself; the figures are worth a look.
show() { "$@" | tee -a "$work/shown"; }
check "the torchao example quantises, measures and reports" \
    show says '^int4_g32 .*steps' example "$examples/torchao_quantize.py" "$PWD/README.md" --seconds 1 --steps 20
check "the llama.cpp example starts the server as recommended and reports" \
    show says 'predicted now' example "$examples/llama_cpp_server.py" "$work/wide.gguf" --server "$work/llama-server"
check "of a file in 16 bits the llama.cpp example asks about the file, not about what can be made of it" \
    show says '^With llama.cpp, fp16 ' example "$examples/llama_cpp_server.py" "$work/wide-f16.gguf" --server "$work/llama-server"
check "the vLLM example says what it would start and report" \
    show says '^then POST /v1/observations' example "$examples/vllm_server.py" llama-3.2-1b CHECKPOINT --dry-run --hardware l4
check "the notebook runs with this machine's figures" \
    show says '3 pictures' example "$examples/run_notebook.py" "$examples/roofline.ipynb"
check "the notebook runs with a T4 of the registry" \
    show says 'NVIDIA T4' on_a_t4
cat "$work/shown" 2>/dev/null || true
venv mcp tests/mcp/requirements.txt
check "the protocol's own client lists and calls every tool of rooflinectl mcp" "$VENV/bin/python" tests/mcp/test_mcp.py
echo "the stage took $((SECONDS - began)) s"
checked
