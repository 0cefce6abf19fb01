#!/usr/bin/env bash
# the README's demos end by themselves, within a minute each
. .ci/lib.sh

[ -x target/release/rooflinectl ] || release
began=$SECONDS
timeout --kill-after=5 90 target/release/rooflinectl demo
echo "the demo took $((SECONDS - began)) s"
[ $((SECONDS - began)) -le 60 ] || fail "the demo promises less than 60 s"

for board in orin-nano-8gb-super gb10; do
    began=$SECONDS
    timeout --kill-after=5 90 target/release/rooflinectl demo --simulate "$board"
    echo "the demo of $board took $((SECONDS - began)) s"
    [ $((SECONDS - began)) -le 60 ] || fail "the demo of $board took longer than 60 s"
done
