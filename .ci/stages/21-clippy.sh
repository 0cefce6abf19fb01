#!/usr/bin/env bash
# no lint anywhere, tests and benches included, nor in a build without simulated boards
. .ci/lib.sh

cargo clippy --locked --workspace --all-targets -- -D warnings
cargo clippy --locked --no-default-features --package rooflined -- -D warnings
