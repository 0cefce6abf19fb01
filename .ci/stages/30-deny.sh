#!/usr/bin/env bash
# licences, banned crates and sources of the dependencies
. .ci/lib.sh

PATH=$PATH:$CI_CACHE/tools/bin
# Unoptimised it builds in a third of the time, and checks in a few seconds.
cargo deny --version 2>/dev/null || CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --quiet --debug --root "$CI_CACHE/tools" cargo-deny
# Everything in the lock file, other platforms' crates too, so that the check itself can stay offline.
cargo fetch --locked --quiet
cargo deny --offline --log-level error check --hide-inclusion-graph licenses bans sources
