#!/usr/bin/env bash
# the README's test command
. .ci/lib.sh

# The bus tests start their own dbus-daemon; rustc links with cc; completions are tried in the shells they are for.
need dbus gcc libc6-dev strace zsh fish bash-completion
# Tests of processes mostly wait: with as many threads as cores these are idle half of the time.
RUST_TEST_THREADS=$(($(nproc) + 1)) cargo test --workspace --locked
