#!/usr/bin/env bash
# every command of README.md and docs/ runs, and prints what the page shows
. .ci/lib.sh

need dbus curl jq systemd python3
[ -x target/release/rooflinectl ] || release

# As the tests had it built: without their features of crates, half of the workspace would be compiled again.
cargo test --quiet --locked --workspace --no-run
programs=$(mktemp -d "$CI_OUT/programs.XXXXXX")
ln -s "$PWD/target/release/rooflined" "$PWD/target/release/rooflinectl" "$(realpath "${CARGO_TARGET_DIR:-target}")/debug/rooflined-lab" "$programs"
ROOFLINED_BINARIES=$programs python3 tests/documents/run.py
