#!/usr/bin/env bash
# the README's test command
. .ci/lib.sh

# The bus tests start their own dbus-daemon; rustc links with cc.
need dbus gcc libc6-dev strace
cargo test --workspace --locked
