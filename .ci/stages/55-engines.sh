#!/usr/bin/env bash
# a real llama.cpp server, observed from outside, learned from and predicted again
. .ci/lib.sh

need python3-venv
[ -x target/release/rooflinectl ] || cargo build --locked --release
# The wheel is llama.cpp's own server as a library; its weights are random, so nothing but a package is fetched.
python3 -m venv "$CI_OUT/engines"
"$CI_OUT/engines/bin/pip" -q install 'xllamacpp==2026.10.11549'
timeout --kill-after=10 170 "$CI_OUT/engines/bin/python" tests/engines/observe.py target/release || {
    status=$?
    [ "$status" -ne 124 ] || fail "observing took longer than 170 s"
    fail "a check failed"
}
