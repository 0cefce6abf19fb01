#!/usr/bin/env bash
# every command of README.md and docs/ runs, and prints what the page shows
. .ci/lib.sh

need dbus curl jq libglib2.0-bin systemd python3
[ -x target/release/rooflinectl ] || release

# One choice of packages with the tests, or everything would be compiled again.
cargo build --quiet --locked --workspace --bin rooflined-lab
programs=$(mktemp -d "$CI_OUT/programs.XXXXXX")
ln -s "$PWD/target/release/rooflined" "$PWD/target/release/rooflinectl" "$(realpath "${CARGO_TARGET_DIR:-target}")/debug/rooflined-lab" "$programs"
ROOFLINED_BINARIES=$programs python3 tests/documents/run.py
