#!/usr/bin/env bash
# no lint anywhere, tests and benches included
. .ci/lib.sh

cargo clippy --locked --all-targets -- -D warnings
