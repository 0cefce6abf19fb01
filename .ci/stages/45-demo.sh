#!/usr/bin/env bash
# the README's first command ends by itself, within a minute
. .ci/lib.sh

need dbus
[ -x target/release/rooflinectl ] || cargo build --locked --release
began=$SECONDS
timeout --kill-after=5 90 target/release/rooflinectl demo
echo "the demo took $((SECONDS - began)) s"
[ $((SECONDS - began)) -le 60 ] || fail "the demo promises less than 60 s"
